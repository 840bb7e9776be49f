"""Copies: examples with the same features and the same label. A head that has seen one of them has seen them all.

Where examples with the same features have different labels, each of them was labelled by itself. Then what the others
say is evidence, and they are no copies. Where this is so in more than a hundredth of the cases, there are none at all:
labels that agree were given one by one, too.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch import Tensor

MOST_CONTRADICTIONS = 0.01  # share of the groups of equal features with more than one label; of copies few have
FACTOR_SEED = 0  # of the numbers that a row is hashed by
MIXER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio, as Fibonacci hashing has it
CHUNK = 2**22  # numbers that are hashed at a time


def copy_groups(blocks: Iterator[tuple[int, Tensor]], labels: np.ndarray) -> np.ndarray:
    """Number the groups of copies in the order in which they first occur.

    Rows are compared by a hash of 64 bits of their float32 values, so that no more than a block is in memory.

    Args:
        blocks: First position and features [b, d] of every block, on the host.
        labels: Shape [n].

    Returns:
        Number of the group of every example, shape [n]; 0 ... n - 1 where there are no copies.
    """
    hashes = np.concatenate([_hashes(rows) for _, rows in blocks])
    _, first, same = np.unique(hashes, return_index=True, return_inverse=True)
    contradicted = np.bincount(same, weights=labels != labels[first][same]) > 0  # by a label other than the first one's
    if contradicted.sum() > MOST_CONTRADICTIONS * (np.bincount(same) > 1).sum():
        return np.arange(len(labels))
    alone = np.where(contradicted[same], np.arange(len(labels)), first[same])
    _, first, group = np.unique(alone, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    return number[group]


def _hashes(rows: Tensor) -> np.ndarray:
    """Return a whole number for each row [b, d], the same for equal rows, shape [b]."""
    factors = np.random.default_rng(FACTOR_SEED).integers(0, 2**64, rows.shape[1], np.uint64) | np.uint64(1)
    found = np.empty(len(rows), np.uint64)
    size = max(1, CHUNK // rows.shape[1])
    for first in range(0, len(rows), size):
        values = rows[first : first + size].float().numpy() + np.float32(0)  # -0 becomes 0
        bits = np.ascontiguousarray(values).view(np.uint32) * MIXER  # many numbers have no low bits of their own
        bits ^= bits >> np.uint64(32)
        found[first : first + size] = (bits * factors).sum(1, dtype=np.uint64)
    return found
