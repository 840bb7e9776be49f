"""Copies: examples with the same features and the same label. A head that has seen one of them has seen them all.

Where examples with the same features have different labels, each of them was labelled by itself. Then what the others
say is evidence, and they are no copies. Where this is so in more than a hundredth of the groups of equal features,
there are none at all: labels that agree were given one by one, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable

import numpy as np
from torch import Tensor

MOST_CONTRADICTIONS = 0.01  # share of the groups of equal features with more than one label; of copies few have


def content_digests(rows: Iterable[np.ndarray]) -> list[bytes]:
    """Return a hash of the content of each example.

    Args:
        rows: What each example consists of: its pixels or its features.
    """
    return [hashlib.blake2b(np.ascontiguousarray(row).tobytes(), digest_size=16).digest() for row in rows]


def copy_groups(blocks: Iterable[tuple[int, Tensor]], labels: np.ndarray) -> np.ndarray:
    """Number the groups of copies in the order in which they first occur.

    Args:
        blocks: First position and features [b, d] of every block, on the host; no more than one is in memory.
        labels: Shape [n].

    Returns:
        Number of the group of every example, shape [n]; 0 ... n - 1 where there are no copies.
    """
    rows = (row for _, block in blocks for row in block.float().numpy() + np.float32(0))  # -0 becomes 0
    same = _numbered(content_digests(rows))
    _, first = np.unique(same, return_index=True)
    contradicted = np.bincount(same, weights=labels != labels[first][same]) > 0  # by a label other than the first one's
    if contradicted.sum() > MOST_CONTRADICTIONS * (np.bincount(same) > 1).sum():
        return np.arange(len(labels))
    return _numbered(zip(same, np.where(contradicted[same], np.arange(len(labels)), -1), strict=True))


def _numbered(keys: Iterable[Hashable]) -> np.ndarray:
    """Number keys in the order in which they first occur; equal keys have one number."""
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(key, len(known)) for key in keys])
