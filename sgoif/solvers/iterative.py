"""Solvers of H phi_v = g_v for all anchors at once: rows of `[K, d]`, one row per anchor.

`operator` is V -> H V, `precondition` V -> P^-1 V. Loops have fixed length and stop row by row through masks, so that
nothing ever waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sgoif.backend.linalg import across

Apply = Callable[[Tensor], Tensor]


def norms(rows: Tensor) -> Tensor:
    """Euclidean length of each row, `[K, 1]`."""
    return torch.linalg.vector_norm(rows, dim=1, keepdim=True)


def quotient(numerator: Tensor, denominator: Tensor) -> Tensor:
    """numerator / denominator, and 0 where that is not finite."""
    ratio = numerator / denominator
    return torch.where(torch.isfinite(ratio), ratio, 0)


def richardson(phi: Tensor, residual: Tensor, precondition: Apply, step: Tensor) -> Tensor:
    """One step phi + rho P^-1 (g - H phi), rho `[K, 1]`; the residual g - H phi is given."""
    return phi + step * precondition(residual)


def neumann(
    target: Tensor, operator: Apply, precondition: Apply, scale: Tensor | float, depth: int
) -> tuple[Tensor, Tensor]:
    """sum_{k <= depth} (I - s P^-1 H)^k s P^-1 g, each row cut before the first term that is not shorter than the last.

    Returns phi `[K, d]` and the depth each row reached `[K]`.
    """
    term = scale * precondition(target)
    phi, alive, used = term, torch.ones_like(term[:, :1], dtype=torch.bool), torch.zeros_like(term[:, 0])
    for _ in range(depth):
        following = term - scale * precondition(operator(term))
        alive = alive & (norms(following) < norms(term))
        phi = torch.where(alive, phi + following, phi)
        used = used + alive[:, 0]
        term = following
    return phi, used


def conjugate_gradient(target: Tensor, start: Tensor, operator: Apply, precondition: Apply, steps: int) -> Tensor:
    """Preconditioned conjugate gradients from `start`, `steps` iterations, all rows side by side (H, P symmetric
    positive)."""
    phi, residual = start, target - operator(start)
    corrected = precondition(residual)
    direction, energy = corrected, (residual * corrected).sum(1, keepdim=True)
    for _ in range(steps):
        image = operator(direction)
        length = quotient(energy, (direction * image).sum(1, keepdim=True))
        phi, residual = phi + length * direction, residual - length * image
        corrected = precondition(residual)
        following = (residual * corrected).sum(1, keepdim=True)
        direction = corrected + quotient(following, energy) * direction
        energy = following
    return phi


class Sketch:
    """The curvature seen through r directions: rows Q `[r, d]` and their images H Q `[r, d]` (a Nystroem sketch of H).

    `correct` solves exactly inside span(Q): with E = Q H Q', the correction of a residual r is Q' E^-1 Q r.
    `precondition` is the balancing two-level preconditioner (symmetric positive if P is)

        M^-1 = W P^-1 W' + Q' E^-1 Q,   W = I - Q' E^-1 (Q H),

    that deflates span(Q) and leaves the rest to P. It costs no further curvature product.
    """

    def __init__(self, basis: Tensor, images: Tensor) -> None:
        core = across(basis, images)
        core = (core + core.T) / 2
        ridge = torch.finfo(core.dtype).eps * core.diagonal().mean().abs()
        eye = torch.eye(len(core), dtype=core.dtype, device=core.device)
        self.basis, self.images = basis, images
        self.inverse, _ = torch.linalg.inv_ex(core + ridge * eye)

    def correct(self, residual: Tensor) -> tuple[Tensor, Tensor]:
        """(Q' E^-1 Q r, what remains of the residual), both `[K, d]`."""
        coordinates, rest = self._inside(residual)
        return coordinates @ self.basis, rest

    def _inside(self, residual: Tensor) -> tuple[Tensor, Tensor]:
        """The correction as coordinates `[K, r]`, and what remains `[K, d]`."""
        coordinates = across(residual, self.basis) @ self.inverse
        return coordinates, torch.addmm(residual, coordinates, self.images, alpha=-1)

    def precondition(self, base: Apply) -> Apply:
        def apply(residual: Tensor) -> Tensor:
            coordinates, rest = self._inside(residual)
            outside = base(rest)
            return outside.addmm_(coordinates - across(outside, self.images) @ self.inverse, self.basis)

        return apply
