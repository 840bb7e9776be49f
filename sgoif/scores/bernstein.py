"""Empirical-Bernstein intervals of a score over an example's visits.

    W(alpha) = sqrt(2 V ln(3 / alpha) / m) + 3 B ln(3 / alpha) / m,

V the sample variance over m visits and B the range of one visit's score (Audibert, Munos and Szepesvari 2009; the
paper's form).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def half_width(total: Tensor, squares: Tensor, visits: Tensor, spread: Tensor | float, alpha: float) -> Tensor:
    """W(alpha) from the sum and the sum of squares over visits, all `[N]`; infinite where an example was never
    visited."""
    log_term = math.log(3 / alpha)
    visits = visits.to(total.dtype)
    mean = total / visits
    variance = (squares / visits - mean.square()).clamp(min=0)
    width = torch.sqrt(2 * variance * log_term / visits) + 3 * spread * log_term / visits
    return torch.where(visits > 0, width, torch.inf)
