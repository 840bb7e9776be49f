"""One-to-one assignment of rows to columns with the largest sum."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def linear_assignment(gain: Tensor) -> Tensor:
    """Assign every row to a column of its own, so that the sum of the chosen entries is largest.

    The algorithm is that of shortest augmenting paths with potentials (Jonker & Volgenant, Computing 1987), with one
    vector operation per edge of a path.

    Args:
        gain: Entries to choose from, shape [n, n].

    Returns:
        The column of each row, shape [n], on the device of `gain`.
    """
    cost = (gain.max() - gain).double().cpu().numpy()
    n = len(cost)
    row_potential = np.zeros(n)
    column_potential = np.zeros(n + 1)
    row_of = np.full(n + 1, -1)  # row of each column; column n is the start of a path
    for row in range(n):
        row_of[n] = row
        column = n
        least, previous = np.full(n, np.inf), np.full(n, n)
        done = np.zeros(n + 1, dtype=bool)
        while row_of[column] != -1:
            done[column] = True
            current = row_of[column]
            reduced = cost[current] - row_potential[current] - column_potential[:n]
            better = ~done[:n] & (reduced < least)
            least[better] = reduced[better]
            previous[better] = column
            column = int(np.where(done[:n], np.inf, least).argmin())
            step = least[column]
            row_potential[row_of[done]] += step
            column_potential[done] -= step
            least[~done[:n]] -= step
        while column != n:
            row_of[column], column = row_of[previous[column]], int(previous[column])
    column_of = torch.empty(n, dtype=torch.long)
    column_of[torch.from_numpy(row_of[:n])] = torch.arange(n)
    return column_of.to(gain.device)
