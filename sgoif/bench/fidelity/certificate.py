"""What the certificate of a score is worth, where the exact answer is known.

The exact windowed influence of example i is the mean over all steps t of the score window of

    -<phibar_t, g_i(theta_t)>,   phibar_t = sum_v pi_v / K (H_t + D_t)^-1 g_v(theta_t),

with gradients of the last layer, exact Gauss-Newton matrix H_t and anchors g_v of all training examples at that step,
and the damping D_t that the method used. The score is its estimate from the few visits of an example, by directions
that are stale and solved approximately.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif import InfluenceConfig, InfluenceResult, OnlineInfluence
from sgoif.bench.fidelity.measure import spearman
from sgoif.bench.fidelity.problem import AttributionProblem
from sgoif.bench.fidelity.run import AnalysedRun

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)  # of the intervals
MEASURES = ("confidence", "residual", "standard_error", "size", "width")  # that might tell which score is off


def bernstein_half_width(
    total: Tensor, squares: Tensor, visits: Tensor, score_range: Tensor | float, alpha: float
) -> Tensor:
    """Return the half-width of the paper's empirical-Bernstein interval of a mean score.

        W(alpha) = sqrt(2 V ln(3 / alpha) / m) + 3 B ln(3 / alpha) / m

    with the sample variance V over m visits and the range B of one visit's score (Audibert, Munos and Szepesvari 2009).

    Args:
        total: Sum of the scores over the visits, shape [N].
        squares: Sum of the squared scores over the visits, shape [N].
        visits: Number of visits m, shape [N].
        score_range: Range B of one visit's score, a scalar.
        alpha: Probability that the interval misses the mean.

    Returns:
        Half-widths, shape [N]; infinite where an example was never visited.
    """
    log_term = math.log(3 / alpha)
    visits = visits.to(total.dtype)
    mean = total / visits
    variance = (squares / visits - mean.square()).clamp(min=0)
    width = torch.sqrt(2 * variance * log_term / visits) + 3 * score_range * log_term / visits
    return torch.where(visits > 0, width, torch.inf)


@dataclass(frozen=True)
class ScoredRun:
    """Scores of a run beside the exact answer, all of shape [N], on the host.

    Attributes:
        exact: Exact windowed influence.
        result: What `OnlineInfluence` returned.
        sums: Sums over the visits in the score window, by column.
        score_range: Largest score of a visit.
        wrong: Which labels are wrong.
    """

    exact: Tensor
    result: InfluenceResult
    sums: dict[str, Tensor]
    score_range: Tensor
    wrong: Tensor

    def half_width(self, level: float) -> Tensor:
        """Return the half-widths of the intervals of a level."""
        normal = torch.distributions.Normal(0.0, 1.0)
        own, asked = (normal.icdf(torch.tensor(1 - alpha / 2)) for alpha in (self.result.config.alpha, 1 - level))
        return self.result.half_width.double() * (asked / own)

    def standard_error(self) -> Tensor:
        """Return the standard error of each score over its visits."""
        visits = self.sums["visits"].clamp(min=2)
        variance = (self.sums["square"] - self.sums["score"].square() / visits).clamp(min=0) / (visits - 1)
        return (variance / visits).sqrt()


def score_run(problem: AttributionProblem, config: InfluenceConfig | None = None) -> ScoredRun:
    """Train once with scores, and compute the exact answer beside them.

    Args:
        problem: The problem, of a perceptron.
        config: Settings of the scores; the defaults if None.
    """
    run = AnalysedRun(problem)
    influence = OnlineInfluence(
        run.model, problem.n, problem.n_classes, config or InfluenceConfig(memory=False), problem.steps
    )
    total, count, first = problem.x.new_zeros(problem.n, dtype=torch.float64), 0, influence.window_start or 0

    def before_step() -> None:
        nonlocal total, count
        if influence.steps >= first and influence.checks:
            total, count = total + _exact_scores(influence, run, problem), count + 1

    with influence:
        run.train(
            influence.watch,
            lambda: influence.step(run.optimizer),
            before_step=before_step,
            after_epoch=influence.end_epoch,
        )
        result = influence.scores()
        window = influence._engine.visits.read()
    wrong = (problem.labels != problem.true_labels).cpu()
    return ScoredRun(total.cpu() / max(count, 1), result, window.columns, window.score_range, wrong)


def measure_certificate(problem: AttributionProblem, config: InfluenceConfig | None = None) -> dict[str, Any]:
    """Train once with scores, and compare score, interval, confidence and residual with the exact answer.

    Args:
        problem: The problem; its true labels are read for `right` alone.
        config: Settings of the scores; the defaults if None.

    Returns:
        `coverage` (share of the intervals of each of `LEVELS` that hold the exact influence), `paper_coverage` (of the
        paper's 95% interval), `width`, `paper_width` (median half-width at 95%), `error` (root mean square of score
        less exact influence), all three over the standard deviation of the exact influence, `bias` (mean error over
        `error`), `correlation` (rank correlation of score and exact influence), `ranks` (rank correlation with the
        absolute error, of each of `MEASURES`), `means` (mean of each) and `right` (share of wrong labels among the
        highest scores, in the upper and the lower half of each).
    """
    run = score_run(problem, config)
    exact, score = run.exact, run.result.score.double()
    signed, spread = score - exact, exact.std()
    error, rms = signed.abs(), signed.square().mean().sqrt()
    sums, width = run.sums, run.half_width(0.95)
    paper = bernstein_half_width(sums["score"], sums["square"], sums["visits"], run.score_range, 0.05)
    suspicious = score > score.quantile(1 - run.wrong.double().mean().item())
    measures = {
        "confidence": run.result.confidence.double(),
        "residual": run.result.residual.double(),
        "standard_error": run.standard_error() / spread,
        "size": score.abs() / spread,
        "width": width / spread,
    }
    return {
        "coverage": [(error <= run.half_width(level)).double().mean().item() for level in LEVELS],
        "paper_coverage": (error <= paper).double().mean().item(),
        "width": (width.median() / spread).item(),
        "paper_width": (paper.median() / spread).item(),
        "error": (rms / spread).item(),
        "bias": (signed.mean() / rms).item(),
        "correlation": spearman(score, exact),
        "ranks": {name: spearman(value, error) for name, value in measures.items()},
        "means": {name: value.mean().item() for name, value in measures.items()},
        "right": {name: _halves(value, suspicious, run.wrong) for name, value in measures.items()},
    }


def _halves(value: Tensor, suspicious: Tensor, wrong: Tensor) -> list[float | None]:
    """Return the share of wrong labels among the suspicious examples of the upper and the lower half of a value."""
    median = value[suspicious].median() if suspicious.any() else 0
    parts = suspicious & (value > median), suspicious & (value <= median)
    return [wrong[part].double().mean().item() if part.any() else None for part in parts]


@torch.no_grad()
def _exact_scores(influence: OnlineInfluence, run: AnalysedRun, problem: AttributionProblem) -> Tensor:
    """Return the exact scores of all training examples at the present parameters, shape [N]."""
    engine = influence._engine
    assert isinstance(run.model, torch.nn.Sequential)
    features = run.model[:-1](problem.x)
    logits = run.model[-1](features).double()
    temperature = float(engine.temperature())
    a, p = F.pad(features.double(), (0, 1), value=1.0), (logits / temperature).softmax(1)
    onehot = F.one_hot(problem.labels, problem.n_classes).double()
    gradients = (p - onehot).unsqueeze(2) * a.unsqueeze(1)  # [N, C, d + 1]
    outputs = (torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)) / temperature
    size = gradients[0].numel()
    curvature = torch.einsum("nce,nd,nf->cdef", outputs, a, a).reshape(size, size) / len(a)
    eye = torch.eye(size, dtype=engine.hooks.dtype, device=a.device)
    curvature = curvature + engine.parts.curvature.damp(eye).double()
    weights = onehot * logits.softmax(1)
    anchors = (weights.T @ gradients.flatten(1)) / weights.sum(0).clamp(min=1e-12).unsqueeze(1)
    prior = onehot.mean(0) * problem.n_classes
    direction = torch.linalg.solve(curvature, (prior.unsqueeze(1) * anchors).mean(0))
    return -gradients.flatten(1) @ direction
