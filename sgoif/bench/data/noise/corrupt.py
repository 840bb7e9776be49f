"""Apply label noise: from true labels and a noise specification to noisy labels.

A specification is a mapping with `kind` and the keys of that kind (`noise/spec.py` checks them):

    {kind: clean}
    {kind: class_conditional, noise: 0.2, sparsity: 0.4, seed: 0}   confident-learning noise: trace = K (1 - noise)
    {kind: symmetric, rate: 0.2, seed: 0}                           to any other class
    {kind: asymmetric, rate: 0.4, map: cifar10, seed: 0}            map: cifar10 (Patrini), next, or {from: to, ...}
    {kind: superclass, rate: 0.2, seed: 0}                          to the next class of the same superclass, circular
    {kind: human, column: worse_label}                              CIFAR-10N / CIFAR-100N
    {kind: published, rate: 0.25}                                   labels that are published with Imagenette
    {kind: collected}                                               the labels the images came with, see `noisy_labels`
    {kind: file, path: labels.csv}                                  labels that a user brings, see `label_file`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sgoif.bench.data.noise.matrix import noise_matrix
from sgoif.bench.data.noise.spec import check_spec, class_map, label_column
from sgoif.errors import UserError


@dataclass(frozen=True)
class Corruption:
    """The result of applying a noise specification to the labels of one dataset.

    Attributes:
        labels: Noisy labels, which methods may see, int64, shape [N].
        wrong: Where they differ from the true labels, bool, shape [N].
        rate: Share of wrong labels.
        matrix: P(label = row | true label = column), float64, shape [K, K]. As specified; of human,
            published labels and those of a file, as counted.
    """

    labels: np.ndarray
    wrong: np.ndarray
    rate: float
    matrix: np.ndarray


def corrupt(
    true_labels: np.ndarray,
    n_classes: int,
    spec: Mapping[str, Any],
    superclasses: Sequence[int] | None = None,
    columns: Mapping[str, np.ndarray] | None = None,
    given: np.ndarray | None = None,
) -> Corruption:
    """Apply a noise specification to true labels, with a random generator of its own.

    Args:
        true_labels: True labels in 0 .. n_classes - 1, shape [N].
        n_classes: Number of classes K.
        spec: Noise specification, see the module docstring.
        superclasses: Superclass of each class, length K; needed by superclass noise.
        columns: Columns of the label file that belongs to the dataset, shape [N] each; needed by human and published
            noise. Its column `clean_label` must equal `true_labels`.
        given: Labels of a user's file, shape [N]; needed by noise of kind `file`.

    Returns:
        The noisy labels, where they are wrong, and their noise matrix.

    Raises:
        UserError: If the labels or the specification are not valid, or the label file belongs to other data.
    """
    true_labels = _checked(true_labels, n_classes)
    check_spec(spec, n_classes, superclasses=superclasses)
    kind = spec["kind"]
    if kind in ("human", "published"):
        labels = _labels_of_column(true_labels, label_column(spec), columns, n_classes)
        matrix = _counted_matrix(true_labels, labels, n_classes)
    elif kind == "file":
        if given is None:
            raise UserError("noise.path: the labels of the file were not read")
        labels = _checked(given, n_classes)
        matrix = _counted_matrix(true_labels, labels, n_classes)
    else:
        matrix = _specified_matrix(spec, n_classes, superclasses)
        labels = _DRAWS[kind](true_labels, matrix, np.random.RandomState(spec.get("seed", 0)))
    wrong = labels != true_labels
    return Corruption(labels, wrong, float(wrong.mean()), matrix)


def published_order(labels: np.ndarray) -> np.ndarray:
    """Return the order in which the published CIFAR-10 label files were drawn: by class, then by file name.

    The files were named `<index>_<class>.png`, so that 10008 comes before 1012 and 1012 before 999.
    """
    names = np.array([f"{i}_" for i in range(len(labels))])
    return np.lexsort((names, labels))


def _specified_matrix(spec: Mapping[str, Any], n_classes: int, superclasses: Sequence[int] | None) -> np.ndarray:
    """Return the noise matrix [K, K] that a specification stands for."""
    if spec["kind"] == "class_conditional":
        # Rounded, because 10 * (1 - 0.7) is a little more than the 3 of the published matrices.
        trace = round(n_classes * (1 - spec["noise"]), 9)
        return noise_matrix(n_classes, trace, spec.get("sparsity", 0.0), spec.get("seed", 0))
    if spec["kind"] == "symmetric":
        rate = spec["rate"]
        return np.where(np.eye(n_classes, dtype=bool), 1 - rate, rate / (n_classes - 1))
    matrix = np.eye(n_classes)
    for source, target in class_map(spec, n_classes, superclasses).items():
        matrix[source, source] -= spec["rate"]
        matrix[target, source] += spec["rate"]
    return matrix


def _draw_none(true_labels: np.ndarray, matrix: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
    return true_labels.copy()


def _draw_by_matrix(true_labels: np.ndarray, matrix: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
    """Give floor(T[s, y] n_y) random examples of class y the label s: exact counts, as published.

    The floors lose up to K - 1 flips per class, so where classes are small the realised rate lies below the nominal one
    (digits, 20%: 17%; CIFAR-100, 20%: 13%). `Corruption.rate` is the realised one.
    """
    k = len(matrix)
    counts = (matrix * (np.bincount(true_labels, minlength=k) / len(true_labels)) * len(true_labels)).astype(int)
    np.fill_diagonal(counts, 0)
    order = published_order(true_labels)
    labels = true_labels.copy()
    for y in range(k):
        members = order[true_labels[order] == y]
        flips = np.repeat(np.arange(k), np.maximum(counts[:, y], 0))
        if len(flips):
            labels[rng.choice(members, len(flips), replace=False)] = flips
    return labels


def _draw_symmetric(true_labels: np.ndarray, matrix: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
    """Move the same share of every class, to the nearest example, to other classes drawn uniformly."""
    k = len(matrix)
    labels = true_labels.copy()
    for y in range(k):
        members = np.flatnonzero(true_labels == y)
        flipped = rng.choice(members, _flip_count(1 - matrix[y, y], members), replace=False)
        labels[flipped] = (y + rng.randint(1, k, len(flipped))) % k
    return labels


def _draw_by_map(true_labels: np.ndarray, matrix: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
    """Move the same share of every class that has a target, to the nearest example, to that target."""
    labels = true_labels.copy()
    for y in range(len(matrix)):
        members = np.flatnonzero(true_labels == y)
        targets = [s for s in np.flatnonzero(matrix[:, y]) if s != y]
        if targets:
            flipped = rng.choice(members, _flip_count(1 - matrix[y, y], members), replace=False)
            labels[flipped] = targets[0]
    return labels


_DRAWS: dict[str, Callable[[np.ndarray, np.ndarray, np.random.RandomState], np.ndarray]] = {
    "clean": _draw_none,
    "class_conditional": _draw_by_matrix,
    "symmetric": _draw_symmetric,
    "asymmetric": _draw_by_map,
    "superclass": _draw_by_map,
}


def _flip_count(rate: float, members: np.ndarray) -> int:
    return int(np.floor(rate * len(members) + 0.5))


def _labels_of_column(
    true_labels: np.ndarray, column: str, columns: Mapping[str, np.ndarray] | None, n_classes: int
) -> np.ndarray:
    if columns is None:
        raise UserError(f"noise column {column}: no label file; prepare cifar10n, cifar100n or imagenette_noisy first")
    if column not in columns:
        raise UserError(f"noise column {column}: the label file has only {', '.join(sorted(columns))}")
    theirs = np.asarray(columns["clean_label"], dtype=np.int64)
    same_length = theirs.shape == true_labels.shape
    different = int((theirs != true_labels).sum()) if same_length else len(theirs)
    if different:
        raise UserError(
            f"noise column {column}: clean_label differs from the dataset's labels in {different} of "
            f"{len(true_labels)} places: the two do not belong together; prepare both again from the official files"
        )
    return _checked(columns[column], n_classes)


def _counted_matrix(true_labels: np.ndarray, labels: np.ndarray, n_classes: int) -> np.ndarray:
    pairs = np.bincount(labels * n_classes + true_labels, minlength=n_classes * n_classes)
    counts = pairs.reshape(n_classes, n_classes).astype(float)
    return counts / np.maximum(counts.sum(0), 1)


def _checked(labels: np.ndarray, n_classes: int) -> np.ndarray:
    """Return labels as int64 [N], after checking that they are integers in 0 .. n_classes - 1."""
    labels = np.asarray(labels)
    if labels.ndim != 1 or not len(labels) or labels.dtype.kind not in "iu":
        raise UserError(f"labels: expected a list of integers, got {labels.dtype} of shape {labels.shape}")
    if labels.min() < 0 or labels.max() >= n_classes:
        at = int(np.flatnonzero((labels < 0) | (labels >= n_classes))[0])
        raise UserError(f"labels[{at}] is {labels[at]}, outside 0 .. {n_classes - 1}; prepare the dataset again")
    return labels.astype(np.int64)
