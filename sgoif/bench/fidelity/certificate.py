"""What the certificate of a score is worth, where the exact answer is known.

The exact windowed influence of example i is the mean over all steps t of the score window of

    -<phibar_t, g_i(theta_t)>,   phibar_t = sum_v pi_v / K (H_t + D_t)^-1 g_v(theta_t),

with gradients of the last layer, exact Gauss-Newton matrix H_t and anchors g_v of all training examples at that step,
and the damping D_t that the method used. The score is its estimate from the few visits of an example, by directions
that are stale and solved approximately.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif import InfluenceConfig, OnlineInfluence
from sgoif.bench.fidelity.measure import rank_correlation
from sgoif.bench.fidelity.problem import AttributionProblem
from sgoif.bench.fidelity.run import AnalysedRun

BINS = 5


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


def measure_certificate(
    problem: AttributionProblem, config: InfluenceConfig | None = None
) -> dict[str, list[float | None]]:
    """Train once with scores, and compare score, interval, confidence and residual with the exact answer.

    Args:
        problem: The problem; its true labels are read for the last measure alone.
        config: Settings of the scores; the defaults if None.

    Returns:
        One number each, but for the last two: `coverage` (share of intervals that hold the exact influence), `width`
        (median half-width over the standard deviation of the exact influence), the same of the paper's interval
        (`paper_coverage`, `paper_width`), `error` (median error over that deviation), `correlation` (rank correlation
        of score and exact influence), `confidence`, `residual` and `width_rank` (rank correlation of confidence,
        residual and half-width with the true error), `wrong` (share of wrong labels among the highest scores, in
        quantiles of the half-width, narrow first; None without such scores) and `covered` (coverage in the same
        quantiles).
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
    sums, alpha = window.columns, influence.config.alpha
    paper = bernstein_half_width(sums["score"], sums["square"], sums["visits"], window.score_range, alpha)
    exact, score, width = total.cpu() / max(count, 1), result.score.double(), result.half_width.double()
    error, spread = (score - exact).abs(), exact.std()
    inside = (error <= width).double()
    quantiles = width.argsort().chunk(BINS)
    wrong = (problem.labels != problem.true_labels).cpu()
    suspicious = score > score.quantile(1 - wrong.double().mean().item())
    return {
        "coverage": [inside.mean().item()],
        "width": [(width.median() / spread).item()],
        "paper_coverage": [(error <= paper).double().mean().item()],
        "paper_width": [(paper.median() / spread).item()],
        "error": [(error.median() / spread).item()],
        "correlation": [_rank(score, exact)],
        "confidence": [_rank(result.confidence, error)],
        "residual": [_rank(result.residual, error)],
        "width_rank": [_rank(width, error)],
        "covered": [inside[rows].mean().item() for rows in quantiles],
        "wrong": [_share(wrong[rows], suspicious[rows]) for rows in quantiles],
    }


def _rank(a: Tensor, b: Tensor) -> float:
    """Return the rank correlation of two vectors; 0 where one of them is constant."""
    return rank_correlation(a.double().unsqueeze(1), b.double().unsqueeze(1)).nan_to_num(0).item()


def _share(wrong: Tensor, chosen: Tensor) -> float | None:
    """Return the share of wrong labels among the chosen ones; None if none is chosen."""
    return wrong[chosen].double().mean().item() if chosen.any() else None


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
