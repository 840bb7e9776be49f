"""Labels of a CSV must be one class for each example: several labels and real numbers are refused with what to do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from sgoif.errors import UserError

SEPARATORS = "|;,"  # between several labels in a cell
BRACKETS = ("[]", "{}")  # around a list of labels
MULTI_LABEL = "which is not supported; scan once for each label, with a CSV of yes and no"


def require_one_class(path: Path, lines: Sequence[int], labels: Sequence[str]) -> None:
    """Check the labels of a CSV.

    A cell has several labels if it is written as a list, or if the parts between its separators are labels of other
    rows: `cat|dog` beside `cat` and `dog`. Real numbers are those of a regression. Among numbers `nan` is a label that
    is missing.

    Args:
        path: The CSV file.
        lines: Line of each label.
        labels: The labels.

    Raises:
        UserError: If they are several for an example, missing, or real numbers.
    """
    known = set(labels)
    for line, label in zip(lines, labels, strict=True):
        if label[:1] + label[-1:] in BRACKETS or any(_parts(label, separator) <= known for separator in SEPARATORS):
            raise UserError(f"{path}, line {line}: {label!r} is several labels (multi-label), {MULTI_LABEL}")
    numbers = _numbers(labels)
    for line, number in zip(lines, numbers, strict=False):
        if math.isnan(number):
            raise UserError(f"{path}, line {line}: the label is missing (nan); leave such rows out, or label them")
    for line, number in zip(lines, numbers, strict=False):
        if not number.is_integer():
            raise UserError(
                f"{path}, line {line}: the labels are real numbers, as of a regression, which is not supported; cut "
                "them into classes first, for example with pandas.qcut"
            )


def _parts(label: str, separator: str) -> set[str]:
    """Return the labels in a cell; the cell itself, and something that is no label, where there is one only."""
    parts = {part.strip() for part in label.split(separator)}
    return parts if separator in label else {label, "\0"}


def _numbers(labels: Sequence[str]) -> list[float]:
    """Return the labels as numbers; nothing if one of them is none."""
    try:
        return [float(label) for label in labels]
    except ValueError:
        return []
