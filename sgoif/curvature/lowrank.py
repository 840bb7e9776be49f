"""Diagonal plus low rank: P = D + Q S Q', Q `[d, r]` orthonormal, streaming; S `[r, r]` its core (Lambda in eigen-
coordinates).

Refresh (r + r curvature products, r^2 d algebra): with the running operator C = w Q S Q' + (1 - w) C(newest batch),

    Q <- orth(C Q),   S <- Q' C Q,   D <- max(diag(C) - diag(Q S Q'), 0) + lambda.

Inverse (Woodbury), exact for this P:  P^-1 = D^-1 - D^-1 Q (I + S M)^-1 S Q' D^-1 with M = Q' D^-1 Q.
Rows are stored, so `basis` is Q' `[r, d]`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sgoif.backend import collectives
from sgoif.backend.linalg import across, orthonormal_rows
from sgoif.curvature.diagonal import DiagonalCurvature
from sgoif.gradients.factored_batch import FactoredBatch


class LowRankCurvature(DiagonalCurvature):
    """`DiagonalCurvature` plus buffers `basis` `[r, d]` and `core` `[r, r]`."""

    name = "lowrank"

    def __init__(self, space, config, closed_form, dtype) -> None:
        super().__init__(space, config, closed_form, dtype)
        rank = min(config.rank, space.dim)
        start = torch.randn(rank, space.dim, dtype=dtype, device="cpu", generator=torch.Generator().manual_seed(0))
        self.register_buffer("basis", orthonormal_rows(start.to(torch.get_default_device()))[0])
        self.register_buffer("core", torch.zeros(rank, rank, dtype=dtype))
        self.register_buffer("middle", torch.zeros(rank, rank, dtype=dtype))
        self.kept = 0.0  # share of the old operator that is still in C at the next refresh
        self.newest: FactoredBatch | None = None

    def update(self, batch: FactoredBatch, decay: float) -> None:
        super().update(batch, decay)
        self.kept *= decay
        self.newest = batch.newest(self.config.probe_examples) if batch.closed_form else batch

    def _running(self, rows: Tensor) -> Tensor:
        """C V for the running operator, undamped."""
        fresh = self.newest.matvec(rows, self.kind)
        collectives.sum_(fresh)
        old = across(rows, self.basis) @ self.core @ self.basis
        return self.kept * old + (1 - self.kept) / collectives.size() * fresh

    def refresh(self) -> None:
        super().refresh()
        if self.newest is not None and len(self.basis):
            basis = orthonormal_rows(self._running(self.basis))[0]
            core = across(basis, self._running(basis))
            self.basis, self.core, self.kept, self.newest = basis, (core + core.T) / 2, 1.0, None
        explained = ((self.core @ self.basis) * self.basis).sum(0, keepdim=True)
        self.diagonal = (self.diagonal - explained).clamp(min=0)
        inverse = 1 / (self.diagonal + self.damping)
        inner = across(self.basis * inverse, self.basis)
        eye = torch.eye(len(inner), dtype=inner.dtype, device=inner.device)
        self.middle = torch.linalg.solve_ex(eye + self.core @ inner, self.core)[0]

    def arithmetic(self) -> int:
        return super().arithmetic() + 8 * len(self.basis) * self.space.dim

    def matvec(self, rows: Tensor) -> Tensor:
        return super().matvec(rows) + across(rows, self.basis) @ self.core @ self.basis

    def solve(self, rows: Tensor) -> Tensor:
        base = super().solve(rows)
        return base - super().solve(across(base, self.basis) @ self.middle.T @ self.basis)

    def decompose(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """phi = Q a + u: the in-subspace coordinates a = (Q' P Q)^-1 Q' V `[K, r]` and the rest u `[K, d]`."""
        inside = self.basis @ self.matvec(self.basis).T
        coordinates = torch.linalg.solve_ex(inside, (rows @ self.basis.T).T)[0].T
        return coordinates, self.solve(rows) - coordinates @ self.basis

    def condition(self) -> Tensor:
        return (self.diagonal.max() + torch.linalg.matrix_norm(self.core) + self.damping) / (
            self.diagonal.min() + self.damping
        )

    def mean_eigenvalue(self) -> Tensor:
        return super().mean_eigenvalue() + self.core.diagonal().sum() / self.space.dim

    def get_extra_state(self) -> dict:
        return {"kept": self.kept}

    def set_extra_state(self, state: dict) -> None:
        self.kept = state["kept"]
