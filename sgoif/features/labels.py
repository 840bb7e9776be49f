"""Labels of any kind as classes 0..C-1; what is no class is refused with what to do instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from sgoif.errors import InfluenceError

MIN_EXAMPLES = 5  # of a class; fewer make no anchor that could judge a label
MAX_NAMED = 5  # classes in an error message


@dataclass(frozen=True)
class ClassLabels:
    """One class for each of N examples.

    Attributes:
        codes: Positions in `classes`, int64, shape [N].
        classes: The distinct labels in ascending order, in the type that they were given in, shape [C].
    """

    codes: np.ndarray
    classes: np.ndarray

    def __len__(self) -> int:
        return len(self.codes)


def encode_labels(labels: Any, n: int) -> ClassLabels:
    """Number the classes of labels.

    Args:
        labels: One label for each example, shape [n]: whole numbers, texts or truth values, in an array, a tensor, a
            pandas series or a sequence.
        n: Number of examples.

    Raises:
        InfluenceError: If the labels are not one class for each example: missing ones, several for an example, or real
            numbers.
    """
    values = _as_vector(labels)
    if len(values) != n:
        raise InfluenceError(f"{n} rows of features and {len(values)} labels; there must be one label for each row")
    if values.dtype.kind == "O":
        values = _plain(values)
    if values.dtype.kind == "f":
        values = _whole_numbers(values)
    classes, codes = np.unique(values, return_inverse=True)
    return ClassLabels(codes.astype(np.int64), classes)


def require_judgeable(labels: ClassLabels) -> None:
    """Raise `InfluenceError` unless there are two classes or more, and each has `MIN_EXAMPLES` or more."""
    names, counts = labels.classes.tolist(), np.bincount(labels.codes)
    if len(names) < 2:
        raise InfluenceError(
            f"labels: there is one class only, {names[0]!r}; a wrong label can only be seen between two or more"
        )
    tiny = [f"{name!r} ({count})" for name, count in zip(names, counts, strict=True) if count < MIN_EXAMPLES]
    if tiny:
        named = ", ".join(tiny[:MAX_NAMED]) + (f" and {len(tiny) - MAX_NAMED} more" if len(tiny) > MAX_NAMED else "")
        raise InfluenceError(
            f"labels: too few examples of {named}; {MIN_EXAMPLES} a class are needed to judge its labels: "
            "leave such classes out, or merge them"
        )


def _as_vector(labels: Any) -> np.ndarray:
    """Return labels as an array [n]."""
    if isinstance(labels, Tensor):
        labels = labels.detach().cpu().numpy()
    if isinstance(labels, np.ma.MaskedArray) and (masked := np.ma.getmaskarray(labels)).any():
        raise InfluenceError(_missing(np.flatnonzero(masked.reshape(len(labels), -1).any(1)).tolist()))
    try:
        values = np.asarray(labels.to_numpy() if hasattr(labels, "to_numpy") else labels)
    except ValueError:  # sequences of different lengths
        raise InfluenceError(_multi_label("lists of different lengths")) from None
    if values.dtype.kind == "U" and values.ndim == 1:  # a missing label among texts would become one
        values = np.array(list(values if isinstance(labels, np.ndarray) else labels), dtype=object)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim == 2 and values.dtype.kind in "biuf" and _one_hot(values):
        raise InfluenceError("labels: one-hot rows; pass the classes themselves, labels.argmax(1)")
    if values.ndim != 1:
        raise InfluenceError(_multi_label(f"an array of shape {list(values.shape)}"))
    return values


def _one_hot(values: np.ndarray) -> bool:
    return bool(np.isin(values, (0, 1)).all() and (values.sum(1) == 1).all())


def _multi_label(found: str) -> str:
    return (
        f"labels: {found}, so several labels for an example (multi-label), which is not supported; "
        "call it once for each label, with its column of yes and no"
    )


def _plain(values: np.ndarray) -> np.ndarray:
    """Return labels of mixed Python objects as texts or whole numbers."""
    if any(isinstance(v, (list, tuple, set, dict, np.ndarray)) for v in values):
        raise InfluenceError(_multi_label("lists"))
    missing = [i for i, v in enumerate(values) if _is_missing(v)]
    if missing:
        raise InfluenceError(_missing(missing))
    if all(isinstance(v, (bool, int, np.integer)) for v in values):
        try:
            return values.astype(np.int64)
        except OverflowError:  # whole numbers of more than 64 bits, as of hashes
            return values.astype(str)
    if all(isinstance(v, (int, float, np.number)) for v in values):
        return values.astype(np.float64)
    return values.astype(str)


def _is_missing(value: Any) -> bool:
    if value is None or (isinstance(value, (str, bytes)) and not value):
        return True
    try:
        return bool(value != value)
    except TypeError:  # pandas.NA
        return True


def _whole_numbers(values: np.ndarray) -> np.ndarray:
    missing = np.flatnonzero(~np.isfinite(values)).tolist()
    if missing:
        raise InfluenceError(_missing(missing))
    if (values != np.round(values)).any():
        raise InfluenceError(
            "labels: real numbers, as of a regression, which is not supported; "
            "cut them into classes first, for example with pandas.qcut"
        )
    return values.astype(np.int64)


def _missing(rows: list[int]) -> str:
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return f"labels: row {rows[0]}{more} has none; leave such examples out, or label them"
