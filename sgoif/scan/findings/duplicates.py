"""Copies under different labels: at most one of the labels can be right.

Exact copies have the same content, by a hash. Near copies are found by the cosines of their features. A cosine alone
does not tell: in a dense part of the data two unlike examples are nearer to each other than two copies in a sparse one.
So the distance r = sqrt(2 - 2 cos) of an example to its nearest neighbour is compared with that to its k-th. If the k
neighbours lie by chance in a region of m dimensions, the share of the volume that belongs to the nearest is so small
that r_1 / r_k <= t has the probability of about (k - 1) t^m. So two examples are copies if

    r(i, j) <= t min(r_k(i), r_k(j)),        t = (CHANCE / (N (k - 1)))^(1/m),

with which `CHANCE` of the N examples would have a copy by chance. The number of dimensions m is estimated from the
data: 1 / m is the mean of log(r_k / r_j), j < k (Levina and Bickel, 2004); the median over the examples is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sgoif.scan.findings.neighbours import directions, nearest_neighbours

NEIGHBOURS = 10  # k
CHANCE = 0.1  # examples that would have a near copy by chance
LEAST_EXAMPLES = 4 * NEIGHBOURS  # with fewer, neighbours say nothing about how dense the data is
LEAST_DISTANCE = 1e-4  # of directions in float32; two below it are the same


@dataclass(frozen=True)
class Copies:
    """Examples that are copies of each other, and have more than one label.

    Attributes:
        kind: "exact" or "near".
        examples: Positions, in ascending order.
        similarity: Least cosine that joins one of them to the others; 1 of exact copies.
    """

    kind: str
    examples: list[int]
    similarity: float


def find_copies(labels: np.ndarray, digests: list[bytes], features: Tensor | None) -> list[Copies]:
    """Find copies under different labels.

    Args:
        labels: Labels, shape [N].
        digests: Hash of the content of each example, N of them.
        features: Features, shape [N, d]; None: only exact copies are searched for.

    Returns:
        Groups of exact copies, then groups with near copies, the most alike first.
    """
    _, first, same = np.unique(np.array(digests, dtype="S16"), return_index=True, return_inverse=True)
    exact = [Copies("exact", rows, 1.0) for rows in _groups(same) if _differ(labels[rows])]
    if features is None or len(first) < LEAST_EXAMPLES:
        return exact
    pairs, cosines = near_pairs(features[torch.from_numpy(first)])
    pairs = first[pairs]
    across = labels[pairs[:, 0]] != labels[pairs[:, 1]]
    joined = _connect(len(labels), pairs[across])
    near = []
    for rows in _groups(joined):
        inside = across & np.isin(pairs[:, 0], rows)
        near.append(Copies("near", rows, round(float(cosines[inside].min()), 4)))
    return exact + sorted(near, key=lambda c: -c.similarity)


def near_pairs(features: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Find pairs of examples that are nearer to each other than by chance.

    Args:
        features: Features of N examples with different contents, shape [N, d].

    Returns:
        Positions of the pairs [n, 2], the smaller first, and their cosines [n].
    """
    n, k = len(features), NEIGHBOURS
    cosine, position = nearest_neighbours(directions(features), k)
    distance = (2 - 2 * cosine).clamp(min=0).sqrt().clamp(min=LEAST_DISTANCE)
    reach = distance[:, -1] * chance_ratio(distance)
    near = distance <= torch.minimum(reach.unsqueeze(1), reach[position])
    near |= distance <= LEAST_DISTANCE
    one = torch.arange(n).unsqueeze(1).expand(n, k)[near]
    other = position[near]
    pairs = torch.stack([torch.minimum(one, other), torch.maximum(one, other)], dim=1).numpy()
    unique, where = np.unique(pairs, axis=0, return_index=True)
    return unique, cosine[near].numpy()[where]


def chance_ratio(distance: Tensor) -> float:
    """Return t: how much nearer than the k-th a neighbour must be to be a copy.

    Args:
        distance: Distances of N examples to their k nearest neighbours, ascending, shape [N, k].
    """
    n, k = distance.shape
    spread = (distance[:, -1:] / distance[:, :-1]).log().mean(1).median()
    return float((CHANCE / (n * (k - 1))) ** spread)


def _connect(n: int, pairs: np.ndarray) -> np.ndarray:
    """Return for each of n examples a number that all examples connected to it by pairs share."""
    root = np.arange(n)

    def find(i: int) -> int:
        while root[i] != i:
            root[i] = root[root[i]]
            i = int(root[i])
        return i

    for a, b in pairs.tolist():
        root[find(b)] = find(a)
    return np.array([find(i) for i in range(n)])


def _groups(numbers: np.ndarray) -> list[list[int]]:
    """Return the positions that share a number, of numbers that occur more than once."""
    order = np.argsort(numbers, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
    found: list[list[int]] = [part.tolist() for part in parts if len(part) > 1]
    return sorted(found)


def _differ(labels: np.ndarray) -> bool:
    return bool((labels != labels[0]).any())
