"""Checked examples: images whose labels are known to be right, from a folder of class folders or a CSV."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sgoif.errors import UserError
from sgoif.scan.sources.image_listing import Listing
from sgoif.scan.sources.read import ReadOptions, read_source

MAX_NAMED = 5  # classes in an error message


def read_checked(path: Path, reading: ReadOptions, classes: list[str]) -> Listing:
    """List checked examples.

    Args:
        path: A folder of class folders, or a CSV of path and label.
        reading: How a CSV is read.
        classes: Classes of what is scanned.

    Raises:
        UserError: If it cannot be read, or has labels that are none of these classes.
    """
    if not path.exists():
        raise UserError(f"--checked {path}: no such folder or file")
    checked = read_source(str(path), reading)
    unknown = [name for name in checked.classes if name not in classes]
    if unknown:
        named = ", ".join(map(repr, unknown[:MAX_NAMED]))
        raise UserError(f"--checked {path}: {named}: no such class among the {len(classes)} that are scanned")
    return checked


def match_checked(checked: Listing, decoded: Sequence[int], classes: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Find the checked examples of the classes that are scanned.

    Args:
        checked: The checked examples.
        decoded: Positions of those whose image could be read.
        classes: Classes that are scanned.

    Returns:
        Positions in `checked`, and positions in `classes`, both of shape [m].

    Raises:
        UserError: If a class has no checked example: its labels could not be judged.
    """
    number = {name: i for i, name in enumerate(classes)}
    pairs = [(i, number.get(checked.classes[checked.labels[i]])) for i in decoded]
    used = [(i, c) for i, c in pairs if c is not None]
    without = [name for c, name in enumerate(classes) if c not in {c for _, c in used}]
    if without:
        named = ", ".join(map(repr, without[:MAX_NAMED]))
        raise UserError(f"--checked {checked.source} has no readable image of {named}; every class needs one or more")
    return np.array([i for i, _ in used]), np.array([c for _, c in used])
