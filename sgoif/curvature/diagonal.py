"""Diagonal curvature: C = diag(h), h the second moment of each parameter's gradient; damping = config.damping *
mean(h).

In head scope h = E[p (1 - p)] / T (x) E[a^2] taken jointly, the exact diagonal of the Gauss-Newton matrix; elsewhere
E[g^2].
"""

from __future__ import annotations

import torch
from torch import Tensor

from sgoif.backend import collectives
from sgoif.curvature.base import Curvature
from sgoif.gradients.factored_batch import FactoredBatch


def squares(batch: FactoredBatch, kind: str) -> Tensor:
    """Sum over examples of the curvature's diagonal: `[1, d]`."""
    if kind == "ggn":
        variance = batch.probs * (1 - batch.probs) * (batch.mass / batch.temperature).unsqueeze(1)
        return batch.space.join([(variance.T @ batch.layers[0].a.square()).unsqueeze(0)])
    return batch.space.join([layer.square_moment().unsqueeze(0) for layer in batch.layers])


class DiagonalCurvature(Curvature):
    """Buffers: `total` `[1, d]` (running sum), `diagonal` `[1, d]` and `damping` (since the last refresh)."""

    name = "diagonal"

    def __init__(self, space, config, closed_form, dtype) -> None:
        super().__init__(space, config, closed_form, dtype)
        self.register_buffer("total", torch.zeros(1, space.dim, dtype=dtype))
        self.register_buffer("diagonal", torch.ones(1, space.dim, dtype=dtype))
        self.register_buffer("damping", torch.ones((), dtype=dtype))

    def update(self, batch: FactoredBatch, decay: float) -> None:
        self.total.mul_(decay).add_(squares(batch, self.kind))
        self.weight.mul_(decay).add_(batch.mass.sum())

    def refresh(self) -> None:
        total, weight = self.total.clone(), self.weight.clone()
        collectives.sum_(total, weight)
        self.diagonal = total / weight.clamp(min=torch.finfo(total.dtype).tiny)
        self.damping = self.config.damping * self.diagonal.mean().clamp(min=1e-12)

    def arithmetic(self) -> int:
        return 5 * self.space.dim

    def matvec(self, rows: Tensor) -> Tensor:
        return rows * (self.diagonal + self.damping)

    def solve(self, rows: Tensor) -> Tensor:
        return rows / (self.diagonal + self.damping)

    def damp(self, rows: Tensor) -> Tensor:
        return rows * self.damping

    def condition(self) -> Tensor:
        return (self.diagonal.max() + self.damping) / (self.diagonal.min() + self.damping)

    def mean_eigenvalue(self) -> Tensor:
        return self.diagonal.mean() + self.damping
