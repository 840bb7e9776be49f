"""Two humps in a row of numbers: who belongs to the upper one, if there are two at all."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sgoif.label_noise.count import APART, two_normals


def upper_hump(x: Tensor) -> Tensor:
    """P(upper normal | x_i) `[N]` under a mixture of two normals fitted to x `[N]`; all zero unless their means are
    further apart than `APART` (Ashman's D). The fit starts at the two sides of zero."""
    x = x.double().cpu()
    mean, deviation, weight = two_normals(x)
    distance = math.sqrt(2) * (mean[1] - mean[0]) / torch.linalg.vector_norm(deviation)
    if not distance > APART:
        return torch.zeros_like(x)
    z = (x - mean.unsqueeze(1)) / deviation.unsqueeze(1)
    return torch.softmax((weight / deviation).log().unsqueeze(1) - z.square() / 2, dim=0)[1]
