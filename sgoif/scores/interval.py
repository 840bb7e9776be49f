"""The interval of a score: how far it may lie from the exact influence over the score window.

    W_i = z sqrt( R_i^2 S + V / (2 m_i) ),

with the normal quantile z, the estimated relative error R_i of the directions at the visits of example i, the mean
square S of all scores, the mean sample variance V of an example's visits, and the number of visits m_i.

The first part is the error of the directions. All examples share it, so its size is that of all scores and not of the
one at hand: R_i s_i would be far too small where a score is near 0. The second part is what varies from visit to visit
(parameters, batches, augmentation). It is half the variance of a mean of independent visits, because visits are spread
evenly over training, and a mean over all examples, because the variance of a few visits does not say which score is
off. docs/fidelity.md has the measured coverage. The paper's empirical-Bernstein interval
(`sgoif.bench.fidelity.certificate`) assumes nothing but the range of a score; it is over ten times as wide.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

EVEN_VISITS = 0.5  # variance of a mean over visits that are spread evenly, relative to independent ones


def normal_quantile(alpha: float) -> float:
    """Return the two-sided quantile of the normal distribution, P(|Z| > z) = alpha."""
    return math.sqrt(2) * torch.erfinv(torch.tensor(1 - alpha, dtype=torch.float64)).item()


def visit_half_width(total: Tensor, squares: Tensor, visits: Tensor, residual: Tensor, alpha: float) -> Tensor:
    """Return the half-width of the interval for the exact influence over the score window.

    Args:
        total: Sum of the scores over the visits, shape [N].
        squares: Sum of the squared scores over the visits, shape [N].
        visits: Number of visits m, shape [N].
        residual: Mean estimated relative error of the directions at these visits, shape [N].
        alpha: Probability that the interval misses.

    Returns:
        Half-widths, shape [N]; infinite where an example was never visited, and everywhere if no example was visited
        twice, from which nothing about their variance follows.
    """
    visits = visits.to(total.dtype)
    visited, twice = visits > 0, visits > 1
    mean = total / visits.clamp(min=1)
    variance = (squares - visits * mean.square()).clamp(min=0) / (visits - 1).clamp(min=1)
    size = mean[visited].square().mean()
    by_direction = residual.to(total.dtype).square() * size
    by_visits = EVEN_VISITS * variance[twice].mean() / visits.clamp(min=1)  # not a number without such an example
    width = normal_quantile(alpha) * torch.sqrt(by_direction + by_visits)
    return torch.where(visited & torch.isfinite(width), width, torch.inf)
