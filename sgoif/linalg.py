"""Small dense helpers that never wait for the device: no error checks, no eigen-decompositions, no `.item()`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def orthonormal_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Orthonormal basis of the span of rows `[r, d]`, and |R_jj| `[r]`, the lengths met on the way.

    Cholesky QR, twice for float32's sake, after scaling each row to length one. In orthogonal iteration |R_jj|
    estimate the dominant eigenvalues, largest first.
    """
    lengths = torch.linalg.vector_norm(rows, dim=1).clamp(min=torch.finfo(rows.dtype).tiny)
    basis = rows / lengths.unsqueeze(1)
    for _ in range(2):
        gram = basis @ basis.T
        jitter = torch.finfo(rows.dtype).eps * len(rows) * torch.eye(len(rows), dtype=rows.dtype, device=rows.device)
        factor, _ = torch.linalg.cholesky_ex(gram + jitter)
        basis = torch.linalg.solve_triangular(factor, basis, upper=False)
        lengths = lengths * factor.diagonal()
    return basis, lengths


def smallest_eigenvalue(matrix: Tensor, squarings: int = 6) -> tuple[Tensor, Tensor]:
    """lambda_min of a symmetric positive definite `[K, K]` and the diagonal of its inverse, by powers of it."""
    inverse, _ = torch.linalg.inv_ex(
        matrix + torch.finfo(matrix.dtype).eps * torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    )
    power = inverse / torch.linalg.matrix_norm(inverse)
    for _ in range(squarings):
        power = power @ power
        power = power / torch.linalg.matrix_norm(power)
    return 1 / ((power @ inverse) * power).sum().mul(1 / (power * power).sum()), inverse.diagonal()


@contextmanager
def fast_products() -> Iterator[None]:
    """Products of float32 matrices by tensor cores (TF32: 10 bits of mantissa) on a GPU. The rounding it adds to
    P^-1 V lies in directions of little curvature, which hardly move a score."""
    try:
        before = torch.backends.cuda.matmul.allow_tf32
    except RuntimeError:  # the user has chosen by the newer switches, which this one cannot read: as they chose
        yield
        return
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@contextmanager
def hold_unless(sound: Tensor, *modules: nn.Module) -> Iterator[None]:
    """Give the modules' buffers their old values back unless the device scalar `sound` is true."""
    before = [dict(module.named_buffers()) for module in modules]
    yield
    for module, old in zip(modules, before, strict=True):
        for name, value in old.items():
            setattr(module, name, torch.where(sound, getattr(module, name), value))
