"""A Nystroem sketch of the curvature: exact inside a small subspace, a preconditioner outside it."""

from __future__ import annotations

import torch
from torch import Tensor

from sgoif.backend.linalg import matmul_nt
from sgoif.solvers.iterative import Apply


class Sketch:
    """The curvature on r directions, rows Q [r, d] with images H Q [r, d].

    `correct` solves exactly inside span(Q): with E = Q H Q', the correction of a residual r is Q' E^-1 Q r.
    `precondition` is the balancing two-level preconditioner (symmetric positive if P is)

        M^-1 = W P^-1 W' + Q' E^-1 Q,   W = I - Q' E^-1 (Q H),

    which deflates span(Q) and leaves the rest to P. It costs no further curvature product.

    Args:
        basis: Q, shape [r, d].
        images: H Q, shape [r, d].
    """

    def __init__(self, basis: Tensor, images: Tensor) -> None:
        core = matmul_nt(basis, images)
        core = (core + core.T) / 2
        ridge = torch.finfo(core.dtype).eps * core.diagonal().mean().abs()
        eye = torch.eye(len(core), dtype=core.dtype, device=core.device)
        self.basis = basis
        self.images = images
        self.inverse, _ = torch.linalg.inv_ex(core + ridge * eye)

    def correct(self, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Return the correction Q' E^-1 Q r and the residual that remains, both of shape [K, d]."""
        coordinates, rest = self._solve_inside(residual)
        return coordinates @ self.basis, rest

    def _solve_inside(self, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Return the correction as coordinates, shape [K, r], and the residual that remains, shape [K, d]."""
        coordinates = matmul_nt(residual, self.basis) @ self.inverse
        return coordinates, torch.addmm(residual, coordinates, self.images, alpha=-1)

    def precondition(self, base: Apply) -> Apply:
        """Return the two-level preconditioner on top of the preconditioner `base`."""

        def apply(residual: Tensor) -> Tensor:
            coordinates, rest = self._solve_inside(residual)
            outside = base(rest)
            return outside.addmm_(coordinates - matmul_nt(outside, self.images) @ self.inverse, self.basis)

        return apply
