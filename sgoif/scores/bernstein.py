"""Empirical-Bernstein intervals of a score over an example's visits.

    W(alpha) = sqrt(2 V ln(3 / alpha) / m) + 3 B ln(3 / alpha) / m,

where V is the sample variance over m visits and B the range of one visit's score (Audibert, Munos and Szepesvari 2009;
the paper's form).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def half_width(total: Tensor, squares: Tensor, visits: Tensor, score_range: Tensor | float, alpha: float) -> Tensor:
    """Return the half-width W(alpha) of every example's mean score.

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
