"""The parameters in scope, a list of layer matrices, seen as one flat vector.

Every vector of the method (g_v, phi_v, a subspace row) is a row of a [K, d] tensor. Layer l owns the columns of its
weight matrix, of shape [out_l, in_l]. The bias is the last input column; its activation is the constant 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor


class ParameterSpace:
    """Converts between flat rows and layer matrices.

    Args:
        shapes: (outputs, inputs) of each layer in scope, the bias counted as an input.
    """

    def __init__(self, shapes: Sequence[tuple[int, int]]) -> None:
        self.shapes = tuple(shapes)
        self.sizes = tuple(rows * columns for rows, columns in self.shapes)
        self.offsets = (0, *accumulate(self.sizes))
        self.dim = self.offsets[-1]

    def split(self, rows: Tensor) -> list[Tensor]:
        """Return one view of shape [K, out, in] per layer of rows of shape [K, d]."""
        if len(self.shapes) == 1:
            return [rows.view(rows.shape[0], *self.shapes[0])]
        return [
            torch.unflatten(rows[:, start : start + size], 1, shape)
            for start, size, shape in zip(self.offsets, self.sizes, self.shapes, strict=False)
        ]

    def join(self, blocks: Sequence[Tensor]) -> Tensor:
        """Return rows of shape [K, d] from one block of shape [K, out, in] per layer."""
        flat = [block.reshape(block.shape[0], -1) for block in blocks]
        return flat[0] if len(flat) == 1 else torch.cat(flat, dim=1)
