"""The interval of a score: how far it may lie from the exact influence over the score window.

    W = sqrt( t^2 V / m  +  (R s)^2 ),

with the score s, the sample variance V over its m visits, Student's quantile t of m - 1 degrees of freedom and the
estimated relative error R of the directions. The first part is what varies from visit to visit (parameters, batches,
augmentation), the second is shared by all visits. docs/fidelity.md has its measured coverage. The paper's
empirical-Bernstein interval (`sgoif.bench.fidelity.certificate`) assumes nothing but the range of a score. With the few
visits of a training it is over 20 times as wide, and always covers.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def student_quantile(degrees: Tensor, alpha: float) -> Tensor:
    """Return the two-sided quantile of Student's t, P(|T| > t) = alpha.

    Exact for one and two degrees of freedom; above, an expansion in 1 / degrees that is off by at most 2% at
    alpha = 0.05.

    Args:
        degrees: Degrees of freedom, shape [N]; infinite quantile below one.
        alpha: Probability outside.
    """
    p = 1 - alpha / 2
    z = math.sqrt(2) * torch.erfinv(torch.tensor(1 - alpha, dtype=torch.float64)).item()
    n = degrees.clamp(min=1)
    quantile = z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
    quantile = quantile + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    quantile = torch.where(n < 3, (2 * p - 1) / math.sqrt(2 * p * (1 - p)), quantile)
    quantile = torch.where(n < 2, math.tan(math.pi * (p - 0.5)), quantile)
    return torch.where(degrees < 1, torch.inf, quantile)


def visit_half_width(total: Tensor, squares: Tensor, visits: Tensor, residual: Tensor, alpha: float) -> Tensor:
    """Return the half-width of the interval for the exact influence over the score window.

    Args:
        total: Sum of the scores over the visits, shape [N].
        squares: Sum of the squared scores over the visits, shape [N].
        visits: Number of visits m, shape [N].
        residual: Mean estimated relative error of the directions at these visits, shape [N].
        alpha: Probability that the interval misses.

    Returns:
        Half-widths, shape [N]; infinite for fewer than two visits, from which nothing about their variance follows.
    """
    visits = visits.to(total.dtype)
    mean = total / visits.clamp(min=1)
    variance = (squares - visits * mean.square()).clamp(min=0) / (visits - 1).clamp(min=1)
    by_visits = student_quantile(visits - 1, alpha).square() * variance / visits.clamp(min=1)
    width = torch.sqrt(by_visits + (residual.to(total.dtype) * mean).square())
    return torch.where(visits > 1, width, torch.inf)
