"""Label noise: from the clean labels and a specification to the labels that methods are given, and the truth.

A specification is a dictionary with `kind` and that kind's keys:

    {kind: clean}
    {kind: class_conditional, noise: 0.2, sparsity: 0.4, seed: 0}   confident-learning noise: trace = K (1 - noise)
    {kind: symmetric, rate: 0.2, seed: 0}                           to any other class
    {kind: asymmetric, rate: 0.4, map: cifar10, seed: 0}            map: cifar10 (Patrini), next, or {from: to, ...}
    {kind: superclass, rate: 0.2, seed: 0}                          to the next class of the same superclass, circular
    {kind: human, column: worse_label}                              CIFAR-10N / CIFAR-100N
    {kind: collected}                                               the labels the images came with (`data/setting.py`)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sgoif.bench.data.noise.matrix import noise_matrix
from sgoif.bench.data.noise.spec import check_spec, class_map
from sgoif.errors import UserError

__all__ = ["Corruption", "check_spec", "corrupt", "noise_matrix"]


@dataclass(frozen=True)
class Corruption:
    """What a specification did to the labels of one dataset."""

    given: np.ndarray  # int64 [N]: the labels a method may see
    wrong: np.ndarray  # bool [N]: where they differ from the clean ones
    rate: float  # the share that is wrong
    matrix: np.ndarray  # float64 [K, K]: P(given = row | true = column) as asked for (human labels: as found)


def corrupt(
    labels: np.ndarray,
    n_classes: int,
    spec: Mapping,
    superclasses: Sequence[int] | None = None,
    human: Mapping[str, np.ndarray] | None = None,
) -> Corruption:
    """Applies `spec` to clean labels [N] in 0 .. n_classes - 1, always with a generator of its own.

    `superclasses` [K] holds the superclass of each class; `human` the columns of a human label file. One of those is
    `clean_label`, which must equal `labels` in every place.
    """
    clean = _checked(labels, n_classes)
    check_spec(spec, n_classes, superclasses=superclasses)
    kind = spec["kind"]
    if kind == "human":
        given = _human(clean, spec["column"], human, n_classes)
        matrix = _found(clean, given, n_classes)
    else:
        matrix = _wanted(spec, n_classes, superclasses)
        rng = np.random.RandomState(spec.get("seed", 0))
        draw = _symmetric if kind == "symmetric" else _by_matrix if kind == "class_conditional" else _by_map
        given = clean.copy() if kind == "clean" else draw(clean, matrix, rng)
    wrong = given != clean
    return Corruption(given, wrong, float(wrong.mean()), matrix)


def published_order(labels: np.ndarray) -> np.ndarray:
    """The order in which the published CIFAR-10 label files were drawn: by class, then by file name.

    The files were named `<index>_<class>.png`, so that 10008 comes before 1012 and 1012 before 999.
    """
    names = np.array([f"{i}_" for i in range(len(labels))])
    return np.lexsort((names, labels))


def _wanted(spec: Mapping, k: int, superclasses: Sequence[int] | None) -> np.ndarray:
    if spec["kind"] == "class_conditional":
        # Rounded, because 10 * (1 - 0.7) is a little more than the 3 of the published matrices.
        return noise_matrix(k, round(k * (1 - spec["noise"]), 9), spec.get("sparsity", 0.0), spec.get("seed", 0))
    if spec["kind"] == "symmetric":
        rate = spec["rate"]
        return np.where(np.eye(k, dtype=bool), 1 - rate, rate / (k - 1))
    matrix = np.eye(k)
    for source, target in class_map(spec, k, superclasses).items():
        matrix[source, source] -= spec["rate"]
        matrix[target, source] += spec["rate"]
    return matrix


def _by_matrix(clean: np.ndarray, matrix: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
    """floor(T[s, y] n_y) examples of class y, chosen at random, are given label s: exact counts, as published.

    The floors lose up to K - 1 flips a class, so where classes are small the realised rate lies below the nominal one
    (digits, 20%: 17%; CIFAR-100, 20%: 13%). `Corruption.rate` is the realised one.
    """
    k = len(matrix)
    counts = (matrix * (np.bincount(clean, minlength=k) / len(clean)) * len(clean)).astype(int)
    np.fill_diagonal(counts, 0)
    order, given = published_order(clean), clean.copy()
    for y in range(k):
        members = order[clean[order] == y]
        new = np.repeat(np.arange(k), np.maximum(counts[:, y], 0))
        if len(new):
            given[rng.choice(members, len(new), replace=False)] = new
    return given


def _symmetric(clean: np.ndarray, matrix: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
    """In every class the same share, to the nearest example, moves to one of the other classes, drawn uniformly."""
    k, given = len(matrix), clean.copy()
    for y in range(k):
        members = np.flatnonzero(clean == y)
        flipped = rng.choice(members, _share(1 - matrix[y, y], members), replace=False)
        given[flipped] = (y + rng.randint(1, k, len(flipped))) % k
    return given


def _by_map(clean: np.ndarray, matrix: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
    """In every class with a target the same share, to the nearest example, moves to that target."""
    given = clean.copy()
    for y in range(len(matrix)):
        target = np.flatnonzero(np.delete(matrix[:, y], y))
        members = np.flatnonzero(clean == y)
        if len(target):
            flipped = rng.choice(members, _share(1 - matrix[y, y], members), replace=False)
            given[flipped] = target[0] + (target[0] >= y)
    return given


def _share(rate: float, members: np.ndarray) -> int:
    return int(np.floor(rate * len(members) + 0.5))


def _human(clean: np.ndarray, column: str, human: Mapping[str, np.ndarray] | None, k: int) -> np.ndarray:
    if human is None:
        raise UserError(f"noise.column {column}: no human label file; prepare cifar10n or cifar100n first")
    if column not in human:
        raise UserError(f"noise.column {column}: the human label file has only {', '.join(sorted(human))}")
    theirs = np.asarray(human["clean_label"], dtype=np.int64)
    differ = len(theirs) if theirs.shape != clean.shape else int((theirs != clean).sum())
    if differ:
        raise UserError(
            f"human {column}: clean_label differs from the dataset's labels in {differ} of {len(clean)} places: "
            "the two do not belong together; prepare both again from the official files"
        )
    return _checked(human[column], k)


def _found(clean: np.ndarray, given: np.ndarray, k: int) -> np.ndarray:
    counts = np.bincount(given * k + clean, minlength=k * k).reshape(k, k).astype(float)
    return counts / np.maximum(counts.sum(0), 1)


def _checked(labels: np.ndarray, n_classes: int) -> np.ndarray:
    labels = np.asarray(labels)
    if labels.ndim != 1 or not len(labels) or labels.dtype.kind not in "iu":
        raise UserError(f"labels: expected a list of integers, got {labels.dtype} of shape {labels.shape}")
    if labels.min() < 0 or labels.max() >= n_classes:
        at = int(np.flatnonzero((labels < 0) | (labels >= n_classes))[0])
        raise UserError(f"labels[{at}] is {labels[at]}, outside 0 .. {n_classes - 1}; prepare the dataset again")
    return labels.astype(np.int64)
