"""Does a file that could be read hold what it should? Batch files, results and arrays, before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sgoif.bench.methods.registry import SHARED
from sgoif.errors import UserError
from sgoif.utils.files import read_json

DIMENSIONS = {"ids": 1, "scores": 1, "remove": 1, "id_test": 1, "epoch_scores": 2, "test_logits": 2, "id_logits": 2}


def entries(batch: Path) -> list[dict[str, Any]]:
    """The cells that a batch file lists, each with a path below the run's folder."""
    listed = read_json(batch)
    cells = listed.get("cells") if isinstance(listed, dict) else None
    if not isinstance(cells, list) or not all(isinstance(c, dict) and _is_inside(c.get("path")) for c in cells):
        raise UserError(f"{batch} does not list the cells of a batch; delete it and run again")
    return cells


def _is_inside(path: Any) -> bool:
    return isinstance(path, str) and path.startswith("cells/") and ".." not in path and "\0" not in path


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


def misshapen(result: Any) -> str:
    """What of a cell's result has the wrong type; empty when nothing has."""
    if not isinstance(result, dict) or not isinstance(result.get("cell"), dict):
        return "it has no `cell`"
    cell = result["cell"]
    if not all(isinstance(cell.get(k), str) for k in ("setting", "method")) or not isinstance(cell.get("seed"), int):
        return "its `cell` has no setting, seed and method"
    if result.get("status") not in ("ok", "failed", "skipped"):
        return f"its status is {result.get('status')!r}"
    for key in ("seconds", "cpu_seconds", "network_passes", "extras"):
        numbers = result.get(key) or {}
        if not isinstance(numbers, dict) or not all(_is_number(v) for v in numbers.values()):
            return f"`{key}` is not a table of numbers"
    if not (result.get("peak_memory_mb") is None or _is_number(result["peak_memory_mb"])):
        return "`peak_memory_mb` is no number"
    shared = result.get("shared") or []
    return "" if isinstance(shared, list) and set(map(str, shared)) <= set(SHARED) else "`shared` is no list of runs"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def odd_array(arrays: Mapping[str, np.ndarray]) -> str:
    """Which array is not of its kind: text where numbers belong, too many dimensions, another number of examples."""
    for name, array in arrays.items():
        expected = DIMENSIONS.get(name, 1 if name.startswith(("variant:", "ood:")) else array.ndim)
        if array.ndim != expected or (name != "ids" and array.dtype.kind not in "biuf"):
            return f"`{name}` is {array.dtype} of shape {array.shape}"
    if "ids" in arrays:
        n = arrays["ids"].size
        for name in (k for k in arrays if k in ("scores", "remove", "epoch_scores") or k.startswith("variant:")):
            if arrays[name].shape[-1] != n:
                return f"`{name}` has shape {arrays[name].shape} for {n} `ids`"
    return ""
