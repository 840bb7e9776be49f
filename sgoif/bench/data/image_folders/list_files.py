"""Read the text lists of official datasets: one path, or one path and label, a line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sgoif.bench.data.image_folders.base import ProblemReport
from sgoif.errors import UserError


class LabelledLine(NamedTuple):
    """The label of a path, and the line that gives it."""

    label: int
    line: int


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of the lines that are not empty, counted from 1.

    Raises:
        UserError: If the file is missing.
    """
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as f:
            for number, line in enumerate(f, 1):
                if line.strip():
                    yield number, line.strip()
    except FileNotFoundError:
        raise UserError(f"{path} is missing; it is part of the dataset: unpack the dataset again") from None


def read_paths(path: Path, report: ProblemReport) -> dict[str, int]:
    """Read a list of paths, one a line, as {path: line}; faulty lines are reported and left out."""
    found: dict[str, int] = {}
    for number, text in read_lines(path):
        if is_usable(text, found.get(text), path.name, number, report):
            found[text] = number
    return found


def read_labelled_paths(path: Path, n_classes: int, report: ProblemReport) -> dict[str, LabelledLine]:
    """Read a list of `path label` as {path: label and line}; faulty lines are reported and left out.

    Args:
        path: The list.
        n_classes: Labels must lie in 0 .. n_classes - 1.
        report: Where faulty lines are reported.
    """
    found: dict[str, LabelledLine] = {}
    for number, text in read_lines(path):
        key, _, label = text.rpartition(" ")
        if not key or not label.lstrip("-").isdigit():
            report.add("malformed line", path.name, number, f"expected `path label`, got {text[:80]!r}")
        elif not 0 <= int(label) < n_classes:
            report.add("label out of range", path.name, number, f"{label} is not in 0 .. {n_classes - 1}")
        else:
            key = key.strip()
            first = found[key].line if key in found else None
            if is_usable(key, first, path.name, number, report):
                found[key] = LabelledLine(int(label), number)
    return found


def is_usable(key: str, first_line: int | None, file: str, line: int, report: ProblemReport) -> bool:
    """Return whether a listed path lies inside the folder and occurs for the first time; report it if not.

    Args:
        key: The path.
        first_line: The line in which it occurred before, if it did.
        file: Name of the list, for the report.
        line: Present line of the list, for the report.
        report: Where an unusable path is reported.
    """
    if key.startswith("/") or ".." in key.split("/"):
        report.add("path outside the tree", file, line, key[:120])
        return False
    if first_line is not None:
        report.add("duplicate key", file, line, f"{key} is in line {first_line} already, which counts")
        return False
    return True
