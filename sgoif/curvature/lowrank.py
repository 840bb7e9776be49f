"""Diagonal plus low rank: P = D + Q S Q', with a streaming orthonormal basis Q [d, r] and its core S [r, r].

A refresh costs 2 r curvature products and r^2 d algebra. With the running operator C = w Q S Q' + (1 - w) C(newest
batch),

    Q <- orth(C Q),   S <- Q' C Q,   D <- max(diag(C) - diag(Q S Q'), 0) + lambda.

The inverse is exact for this P (Woodbury):

    P^-1 = D^-1 - D^-1 Q (I + S M)^-1 S Q' D^-1,   M = Q' D^-1 Q.

Rows are stored, so the buffer `basis` is Q' [r, d].
"""

from __future__ import annotations

import torch
from torch import Tensor

from sgoif.backend import collectives
from sgoif.backend.linalg import matmul_nt, orthonormal_rows
from sgoif.config import InfluenceConfig
from sgoif.curvature.diagonal import DiagonalCurvature
from sgoif.gradients.factored_batch import FactoredBatch
from sgoif.gradients.parameter_space import ParameterSpace


class LowRankCurvature(DiagonalCurvature):
    """Adds to `DiagonalCurvature` the buffers `basis` [r, d], `core` S [r, r] and `middle` (I + S M)^-1 S [r, r]."""

    name = "lowrank"

    basis: Tensor
    core: Tensor
    middle: Tensor

    def __init__(self, space: ParameterSpace, config: InfluenceConfig, closed_form: bool, dtype: torch.dtype) -> None:
        super().__init__(space, config, closed_form, dtype)
        rank = min(config.rank, space.dim)
        start = torch.randn(rank, space.dim, dtype=dtype, device="cpu", generator=torch.Generator().manual_seed(0))
        self.register_buffer("basis", orthonormal_rows(start.to(torch.get_default_device()))[0])
        self.register_buffer("core", torch.zeros(rank, rank, dtype=dtype))
        self.register_buffer("middle", torch.zeros(rank, rank, dtype=dtype))
        self.old_share = 0.0  # weight w of the old operator in C at the next refresh
        self.newest: FactoredBatch | None = None

    def update(self, batch: FactoredBatch, decay: float) -> None:
        super().update(batch, decay)
        self.old_share *= decay
        self.newest = batch.newest(self.config.probe_examples)

    def _running_product(self, newest: FactoredBatch, rows: Tensor) -> Tensor:
        """Return C V for the running operator, undamped."""
        fresh = newest.matvec(rows, self.kind)
        collectives.sum_(fresh)
        old = matmul_nt(rows, self.basis) @ self.core @ self.basis
        return self.old_share * old + (1 - self.old_share) / collectives.size() * fresh

    def refresh(self) -> None:
        super().refresh()
        if self.newest is not None and len(self.basis):
            self._move_basis(self.newest)
        explained = ((self.core @ self.basis) * self.basis).sum(0, keepdim=True)
        self.diagonal = (self.diagonal - explained).clamp(min=0)
        inverse = 1 / (self.diagonal + self.damping)
        inner = matmul_nt(self.basis * inverse, self.basis)
        eye = torch.eye(len(inner), dtype=inner.dtype, device=inner.device)
        self.middle = torch.linalg.solve_ex(eye + self.core @ inner, self.core)[0]

    def _move_basis(self, newest: FactoredBatch) -> None:
        """Take one step of orthogonal iteration with the running operator."""
        basis = orthonormal_rows(self._running_product(newest, self.basis))[0]
        core = matmul_nt(basis, self._running_product(newest, basis))
        self.basis = basis
        self.core = (core + core.T) / 2
        self.old_share = 1.0
        self.newest = None

    def flops_per_product(self) -> int:
        return super().flops_per_product() + 8 * len(self.basis) * self.space.dim

    def matvec(self, rows: Tensor) -> Tensor:
        return super().matvec(rows) + matmul_nt(rows, self.basis) @ self.core @ self.basis

    def solve(self, rows: Tensor) -> Tensor:
        base = super().solve(rows)
        return base - super().solve(matmul_nt(base, self.basis) @ self.middle.T @ self.basis)

    def condition(self) -> Tensor:
        largest = self.diagonal.max() + torch.linalg.matrix_norm(self.core) + self.damping
        return largest / (self.diagonal.min() + self.damping)  # type: ignore[no-any-return]

    def mean_eigenvalue(self) -> Tensor:
        return super().mean_eigenvalue() + self.core.diagonal().sum() / self.space.dim

    def get_extra_state(self) -> dict[str, float]:
        """Return the weight of the old operator."""
        return {"old_share": self.old_share}

    def set_extra_state(self, state: dict[str, float]) -> None:
        """Restore the weight of the old operator."""
        self.old_share = state["old_share"]
