"""Dense linear algebra that never waits for the device: no error checks, no eigen-decompositions, no `.item()`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

MAX_ROW_LENGTH = 2**20  # longer rows are multiplied in chunks
SQUARINGS = 6  # the inverse is raised to the power 2^SQUARINGS for its largest eigenvalue
ROW_CHUNK_LENGTH = 2**14  # columns of such a chunk


def matmul_nt(a: Tensor, b: Tensor) -> Tensor:
    """Return a b' for rows of shape [m, d] and [n, d].

    Long rows are multiplied in chunks, because a product of few long rows uses only a fraction of a GPU.
    """
    length = a.shape[1]
    if length <= MAX_ROW_LENGTH:
        return a @ b.T
    whole = length // ROW_CHUNK_LENGTH * ROW_CHUNK_LENGTH
    left, right = (torch.unflatten(rows[:, :whole], 1, (-1, ROW_CHUNK_LENGTH)) for rows in (a, b))
    return (left.transpose(0, 1) @ right.permute(1, 2, 0)).sum(0) + a[:, whole:] @ b[:, whole:].T


def left_multiply(matrix: Tensor, blocks: Tensor, onto: Tensor | None = None) -> Tensor:
    """Return M V_k, plus `onto` if it is passed, as one batched product without copies.

    Args:
        matrix: M, shape [m, m].
        blocks: The V_k, shape [K, m, n].
        onto: Summand, shape [K, m, n].
    """
    repeated = matrix.expand(len(blocks), -1, -1)
    return torch.bmm(repeated, blocks) if onto is None else torch.baddbmm(onto, repeated, blocks)


def damped_inverse(matrix: Tensor, damping: Tensor) -> Tensor:
    """Return (M + damping I)^-1 by Cholesky, without the host synchronisation of an error check."""
    eye = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    factor, _ = torch.linalg.cholesky_ex(matrix + damping * eye)
    root = torch.linalg.solve_triangular(factor, eye, upper=False)
    return root.T @ root  # type: ignore[no-any-return]


def orthonormal_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Orthonormalise rows by Cholesky QR, applied twice for the accuracy of float32.

    In orthogonal iteration |R_jj| estimate the leading eigenvalues, largest first.

    Args:
        rows: Shape [r, d].

    Returns:
        The basis, shape [r, d], and the diagonal |R_jj|, shape [r].
    """
    lengths = torch.linalg.vector_norm(rows, dim=1).clamp(min=torch.finfo(rows.dtype).tiny)
    basis, eye = rows / lengths.unsqueeze(1), torch.eye(len(rows), dtype=rows.dtype, device=rows.device)
    jitter = torch.finfo(rows.dtype).eps * len(rows) * eye
    for _ in range(2):
        factor, _ = torch.linalg.cholesky_ex(matmul_nt(basis, basis) + jitter)
        if rows.shape[1] > MAX_ROW_LENGTH:  # a triangular solve with millions of columns stalls a GPU
            basis = torch.linalg.solve_triangular(factor, eye, upper=False) @ basis
        else:
            basis = torch.linalg.solve_triangular(factor, basis, upper=False)
        lengths = lengths * factor.diagonal()
    return basis, lengths


def smallest_eigenvalue(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Estimate the smallest eigenvalue of a symmetric positive definite matrix by powers of its inverse.

    Args:
        matrix: Shape [K, K].

    Returns:
        The smallest eigenvalue, a scalar, and the diagonal of the inverse, shape [K].
    """
    eye = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    inverse, _ = torch.linalg.inv_ex(matrix + torch.finfo(matrix.dtype).eps * eye)
    power = inverse / torch.linalg.matrix_norm(inverse)
    for _ in range(SQUARINGS):
        power = power @ power
        power = power / torch.linalg.matrix_norm(power)
    # Rayleigh quotient of the inverse: its largest eigenvalue
    largest_of_inverse = ((power @ inverse) * power).sum().mul(1 / (power * power).sum())
    return 1 / largest_of_inverse, inverse.diagonal()


def zero_rows_unless(valid: Tensor, *matrices: Tensor) -> Sequence[Tensor]:
    """Return matrices with zeros in the rows that are not valid, whatever was there.

    Args:
        valid: Mask of the rows, shape [n].
        matrices: Each of shape [n, m], with an m of its own.
    """
    if known_to_hold(valid):
        return matrices
    return [torch.where(valid.unsqueeze(1), matrix, 0) for matrix in matrices]


def margins_of(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the largest other logit minus the label's, shape [n].

    Args:
        logits: Shape [n, C].
        labels: Labels, shape [n].
    """
    own = labels.unsqueeze(1)
    return logits.scatter(1, own, -torch.inf).amax(1) - logits.gather(1, own)[:, 0]


def known_to_hold(flags: Tensor) -> bool:
    """Return whether all flags are true, where that is known without waiting: on the host."""
    return flags.device.type == "cpu" and bool(flags.all())


@contextmanager
def tf32_products(enabled: bool) -> Iterator[None]:
    """Allow or forbid TF32 (10 bits of mantissa) for products of float32 matrices on a GPU inside the body.

    TF32 is used only for products of probe gradients with directions, in head scope. Scores, anchors and curvature
    follow the process-wide setting (PyTorch: off; the benchmark's GPU jobs: on). The class model is fitted without
    it.
    """
    try:
        before = torch.backends.cuda.matmul.allow_tf32
    except RuntimeError:  # the user has set the newer precision switches, which this one cannot read: leave them alone
        yield
        return
    torch.backends.cuda.matmul.allow_tf32 = enabled
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@contextmanager
def restore_buffers_unless(sound: Tensor, *modules: nn.Module) -> Iterator[None]:
    """Give the modules' buffers the values they had before the body, unless the device scalar `sound` is true."""
    before = [dict(module.named_buffers()) for module in modules]
    yield
    if known_to_hold(sound):
        return
    for module, old in zip(modules, before, strict=True):
        for name, value in old.items():
            setattr(module, name, torch.where(sound, getattr(module, name), value))
