"""Checks the arrays of a cell, and builds the error for a cell whose files cannot be used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from sgoif.errors import UserError

DIMENSIONS = {
    "ids": 1,
    "scores": 1,
    "remove": 1,
    "remove_same": 1,
    "id_test": 1,
    "epoch_scores": 2,
    "test_logits": 2,
    "test_logits_same": 2,
    "id_logits": 2,
}
PER_EXAMPLE = (
    "scores",
    "remove",
    "remove_same",
    "epoch_scores",
)  # arrays whose last dimension is the training examples


def damaged_cell(folder: Path, batch: Path, what: str) -> UserError:
    """Build the error for a cell whose folder cannot be used.

    Args:
        folder: The cell's folder.
        batch: The batch file that lists the cell; Snakemake reruns a batch whose file is gone.
        what: What is wrong with the folder.

    Returns:
        An error whose message says which files to delete.
    """
    return UserError(f"{folder}: {what}. Delete this folder and {batch}, then run again: only this cell is computed")


def array_problem(arrays: Mapping[str, np.ndarray]) -> str:
    """Says which array of a cell has the wrong type, number of dimensions or number of examples; empty if none has."""
    for name, array in arrays.items():
        expected = DIMENSIONS.get(name, 1 if name.startswith(("variant:", "ood:")) else array.ndim)
        if array.ndim != expected or (name != "ids" and array.dtype.kind not in "biuf"):
            return f"`{name}` is {array.dtype} of shape {array.shape}"
    if "ids" in arrays:
        n = arrays["ids"].size
        for name, array in arrays.items():
            if (name in PER_EXAMPLE or name.startswith("variant:")) and array.shape[-1] != n:
                return f"`{name}` has shape {array.shape} for {n} `ids`"
    return ""
