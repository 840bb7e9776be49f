"""Iterative solvers of H phi_v = g_v for all anchors at once: one row of [K, d] per anchor.

`operator` is V -> H V, `precondition` is V -> P^-1 V. Loops have a fixed length and rows stop through masks, so that
nothing ever waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Apply = Callable[[Tensor], Tensor]


def norms(rows: Tensor) -> Tensor:
    """Return the Euclidean length of each row, shape [K, 1]."""
    return torch.linalg.vector_norm(rows, dim=1, keepdim=True)  # type: ignore[no-any-return]


def safe_divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Return numerator / denominator, and 0 where that is not finite."""
    return (numerator / denominator).nan_to_num(0.0, 0.0, 0.0)


def richardson(phi: Tensor, residual: Tensor, precondition: Apply, step: Tensor | float) -> Tensor:
    """Take one step phi + rho P^-1 r.

    Args:
        phi: Current directions, shape [K, d].
        residual: r = g - H phi, shape [K, d].
        precondition: V -> P^-1 V.
        step: rho, shape [K, 1] or a number.
    """
    return phi + step * precondition(residual)


def neumann(target: Tensor, operator: Apply, precondition: Apply, scale: Tensor | float, depth: int) -> Tensor:
    """Return sum_{k <= depth} (I - s P^-1 H)^k s P^-1 g, each row cut before its terms stop to shrink.

    Args:
        target: g, shape [K, d].
        operator: V -> H V.
        precondition: V -> P^-1 V.
        scale: s.
        depth: Largest number of terms after the first.
    """
    term = scale * precondition(target)
    phi, alive = term, torch.ones_like(term[:, :1], dtype=torch.bool)
    for _ in range(depth):
        following = term - scale * precondition(operator(term))
        alive = alive & (norms(following) < norms(term))
        phi = torch.where(alive, phi + following, phi)
        term = following
    return phi


def conjugate_gradient(target: Tensor, start: Tensor, operator: Apply, precondition: Apply, steps: int) -> Tensor:
    """Run preconditioned conjugate gradients on all rows side by side (H and P symmetric positive).

    Args:
        target: g, shape [K, d].
        start: First phi, shape [K, d].
        operator: V -> H V.
        precondition: V -> P^-1 V.
        steps: Number of iterations.
    """
    phi, residual = start, target - operator(start)
    corrected = precondition(residual)
    direction, energy = corrected, (residual * corrected).sum(1, keepdim=True)
    for _ in range(steps):
        image = operator(direction)
        length = safe_divide(energy, (direction * image).sum(1, keepdim=True))
        phi, residual = phi + length * direction, residual - length * image
        corrected = precondition(residual)
        following = (residual * corrected).sum(1, keepdim=True)
        direction = corrected + safe_divide(following, energy) * direction
        energy = following
    return phi
