"""Diagonal curvature: C = diag(h), with h the second moment of each parameter's gradient.

    damping = config.damping * mean(h)

In head scope h = E[p (1 - p) / T (x) a^2], the exact diagonal of the Gauss-Newton matrix; in deep scopes h = E[g^2].
"""

from __future__ import annotations

import torch
from torch import Tensor

from sgoif.backend import collectives
from sgoif.config import InfluenceConfig
from sgoif.curvature.base import MIN_MEAN_EIGENVALUE, Curvature
from sgoif.gradients.factored_batch import FactoredBatch
from sgoif.gradients.parameter_space import ParameterSpace


def diagonal_sum(batch: FactoredBatch, kind: str) -> Tensor:
    """Return the sum over examples of the curvature's diagonal, shape [1, d]."""
    if kind == "ggn":
        variance = batch.probs * (1 - batch.probs) * (batch.mass / batch.temperature).unsqueeze(1)
        return batch.space.join([(variance.T @ batch.head_layer.a.square()).unsqueeze(0)])
    return batch.space.join([layer.sum_of_squares().unsqueeze(0) for layer in batch.materialised_layers()])


class DiagonalCurvature(Curvature):
    """Keeps the running sum `total` [1, d], and since the last refresh `diagonal` [1, d] and `damping`."""

    name = "diagonal"

    total: Tensor
    diagonal: Tensor
    damping: Tensor

    def __init__(self, space: ParameterSpace, config: InfluenceConfig, closed_form: bool, dtype: torch.dtype) -> None:
        super().__init__(space, config, closed_form, dtype)
        self.register_buffer("total", torch.zeros(1, space.dim, dtype=dtype))
        self.register_buffer("diagonal", torch.ones(1, space.dim, dtype=dtype))
        self.register_buffer("damping", torch.ones((), dtype=dtype))

    def update(self, batch: FactoredBatch, decay: float) -> None:
        self.total.mul_(decay).add_(diagonal_sum(batch, self.kind))
        self.weight.mul_(decay).add_(batch.mass.sum())

    def refresh(self) -> None:
        total, weight = self.total.clone(), self.weight.clone()
        collectives.sum_(total, weight)
        self.diagonal = total / weight.clamp(min=torch.finfo(total.dtype).tiny)
        self.damping = self.config.damping * self.diagonal.mean().clamp(min=MIN_MEAN_EIGENVALUE)

    def flops_per_product(self) -> int:
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
