"""How far the directions of each scope are from solving their equations, while a convolutional network trains."""

from __future__ import annotations

from sgoif import CheckHistory, InfluenceConfig, OnlineInfluence
from sgoif.bench.fidelity.problem import AttributionProblem
from sgoif.bench.fidelity.run import AnalysedRun

SCOPES = ("head", "all")


def measure_residuals(problem: AttributionProblem) -> dict[str, dict[str, float]]:
    """Train once for each scope with the default settings of the scores.

    Args:
        problem: A problem of a convolutional network.

    Returns:
        By scope: `error` (mean over the examples of `InfluenceResult.residual`, the estimated relative error of a
        score), `residual` (mean over the checks of the score window of the relative residual R_v, itself a mean over
        the anchors), `confidence` (the same of c_v) and `checks`.
    """
    return {scope: _measure(problem, scope) for scope in SCOPES}


def _measure(problem: AttributionProblem, scope: str) -> dict[str, float]:
    run = AnalysedRun(problem)
    config = InfluenceConfig(scope=scope, memory=False)
    with OnlineInfluence(run.model, problem.n, problem.n_classes, config, problem.steps) as influence:
        history = CheckHistory(influence)

        def after_step() -> None:
            influence.step(run.optimizer)
            history.record()

        run.train(influence.watch, after_step, after_epoch=influence.end_epoch)
        error = influence.scores().residual.mean().item()
        found, first = history.arrays(), influence.window_start or 0
    late = found["step"] >= first
    return {
        "error": error,
        "residual": float(found["residual"][late].mean()),
        "confidence": float(found["confidence"][late].mean()),
        "checks": float(late.sum()),
    }
