"""Small dense helpers that never wait for the device: no error checks, no eigen-decompositions, no `.item()`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

LONG = 2**20  # entries of a row above which a product over rows is cut into pieces
PIECE = 2**14
ROWS = 2**10  # of a piece where a product sums over many rows
BUSY = 2**17  # entries of a result above which such a product needs no pieces


def across(a: Tensor, b: Tensor) -> Tensor:
    """a b' for rows `[m, d]` and `[n, d]`. Long rows go in pieces, side by side: as one product of few rows they may
    leave all of a GPU but a corner idle."""
    length = a.shape[1]
    if length <= LONG:
        return a @ b.T
    whole = length // PIECE * PIECE
    left, right = (rows[:, :whole].unflatten(1, (-1, PIECE)) for rows in (a, b))
    return (left.transpose(0, 1) @ right.permute(1, 2, 0)).sum(0) + a[:, whole:] @ b[:, whole:].T


def down(a: Tensor, b: Tensor) -> Tensor:
    """a' b for columns `[n, p]` and `[n, q]`: many rows go in pieces too, unless the result is large."""
    whole = len(a) // ROWS * ROWS
    if whole == 0 or a.shape[1] * b.shape[1] > BUSY:
        return a.T @ b
    left, right = (columns[:whole].unflatten(0, (-1, ROWS)) for columns in (a, b))
    return torch.bmm(left.mT, right).sum(0) + a[whole:].T @ b[whole:]


def from_left(matrix: Tensor, blocks: Tensor, onto: Tensor | None = None) -> Tensor:
    """M V_k, added to `onto` if given, for M `[m, m]` and blocks `[K, m, n]`: as one batched product, which copies
    neither."""
    repeated = matrix.expand(len(blocks), -1, -1)
    return torch.bmm(repeated, blocks) if onto is None else torch.baddbmm(onto, repeated, blocks)


def orthonormal_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Orthonormal basis of the span of rows `[r, d]`, and |R_jj| `[r]`, the lengths met on the way.

    Cholesky QR, twice for float32's sake, after scaling each row to length one. In orthogonal iteration |R_jj|
    estimate the dominant eigenvalues, largest first.
    """
    lengths = torch.linalg.vector_norm(rows, dim=1).clamp(min=torch.finfo(rows.dtype).tiny)
    basis, eye = rows / lengths.unsqueeze(1), torch.eye(len(rows), dtype=rows.dtype, device=rows.device)
    for _ in range(2):
        gram = across(basis, basis)
        jitter = torch.finfo(rows.dtype).eps * len(rows) * eye
        factor, _ = torch.linalg.cholesky_ex(gram + jitter)
        if rows.shape[1] > LONG:  # a triangular solve of millions of columns stalled a GPU; a product does not
            basis = torch.linalg.solve_triangular(factor, eye, upper=False) @ basis
        else:
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
def products(fast: bool) -> Iterator[None]:
    """Whether products of float32 matrices go by a GPU's tensor cores (TF32: 10 bits of mantissa).

    In head scope those do that say what probe examples make of all directions; scores, anchors, curvature and its
    inverses as the process has it (PyTorch: no; the benchmark's jobs on a GPU: yes), the latent classes never.
    """
    try:
        before = torch.backends.cuda.matmul.allow_tf32
    except RuntimeError:  # the user has chosen by the newer switches, which this one cannot read: as they chose
        yield
        return
    torch.backends.cuda.matmul.allow_tf32 = fast
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
