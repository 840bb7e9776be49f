"""The nearest neighbours of every example by the directions of its features.

Few examples are compared each with each. More are put into overlapping cells, each example into the cells of the
`CELLS_OF_AN_EXAMPLE` centres that are nearest to it, and compared within its first cell: two examples that are much
nearer to each other than to the rest share a cell. Time then grows with N instead of N^2, and memory is
bounded by blocks.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

ALL_PAIRS = 4_096  # so many examples are compared each with each
CELL_SIZE = 256  # examples of a cell, on the average, before the cells overlap
CELLS_OF_AN_EXAMPLE = 4
BLOCK = 1 << 22  # similarities that are in memory at a time


def directions(features: Tensor) -> Tensor:
    """Return centred features of length 1, so that their products are cosines, shape [N, d]."""
    rows = features.float() - features.float().mean(0)
    unit: Tensor = rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-12)
    return unit


def nearest_neighbours(rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Find for every example the k others with the most similar directions.

    Args:
        rows: Directions of length 1, shape [N, d].
        k: How many, less than N.

    Returns:
        Cosines, the greatest first, and positions, shape [N, k] each. In a cell of fewer examples the last places have
        the cosine -1.
    """
    similarity = torch.full((len(rows), k), -1.0)
    position = torch.zeros(len(rows), k, dtype=torch.long)
    for members, queries in _cells(rows):
        found = min(k + 1, len(members))
        candidates = rows[members].T
        for part in queries.split(max(BLOCK // len(members), 1)):
            cosine = rows[part] @ candidates
            cosine[part.unsqueeze(1) == members] = -2.0  # an example is no neighbour of its own
            best, place = cosine.topk(min(k, found - 1), dim=1)
            similarity[part, : best.shape[1]] = best
            position[part, : best.shape[1]] = members[place]
    return similarity.clamp(max=1.0), position


def _cells(rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the members of every cell, and those of them whose first cell it is."""
    n = len(rows)
    if n <= ALL_PAIRS:
        every = torch.arange(n)
        yield every, every
        return
    chosen = torch.randperm(n, generator=torch.Generator().manual_seed(0))[: n // CELL_SIZE]
    centres = rows[chosen].T.contiguous()
    cells = torch.cat([(part @ centres).topk(CELLS_OF_AN_EXAMPLE, dim=1).indices for part in rows.split(ALL_PAIRS)])
    order = cells.ravel().argsort(stable=True)
    sizes = cells.ravel().bincount(minlength=len(chosen)).tolist()
    for cell, entries in enumerate(order.split(sizes)):
        members = entries // CELLS_OF_AN_EXAMPLE
        yield members, members[cells[members, 0] == cell]
