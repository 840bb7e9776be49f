"""Writes and verifies the files of a cell: arrays.npz, result.json, checkpoints. A result is complete or absent."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np

from sgoif.bench.execution.environment import environment
from sgoif.bench.execution.plan import Cell
from sgoif.bench.execution.records import MalformedRecord, ResultRecord
from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_json, is_intact, read_json, save_npz, sha256_file


def write(
    run_dir: Path,
    cell: Cell,
    key: str,
    status: str,
    reason: str = "",
    arrays: dict[str, np.ndarray] | None = None,
    **facts: Any,
) -> ResultRecord:
    """Write the arrays first, then result.json, whose presence makes the result valid.

    Args:
        run_dir: Folder of the run.
        cell: The cell.
        key: Hash of all that the result depends on.
        status: "ok", "failed" or "skipped".
        reason: Why there are no arrays, if there are none.
        arrays: What the method found.
        **facts: Further fields of `ResultRecord`.

    Returns:
        The record that was written.
    """
    folder = run_dir / cell.folder
    arrays = arrays or {}
    if arrays:
        save_npz(folder / "arrays.npz", **arrays)
    result = ResultRecord(
        cell=cell,
        key=key,
        status=status,
        reason=reason,
        arrays={k: {"shape": list(v.shape), "dtype": str(v.dtype)} for k, v in arrays.items()},
        arrays_sha256=sha256_file(folder / "arrays.npz") if arrays else None,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **environment(),
        **facts,
    )
    atomic_write_json(folder / "result.json", result.to_json(), seal=True)
    return result


def finished(run_dir: Path, cell: Cell, key: str) -> ResultRecord | None:
    """Return the cell's result if it exists, has this key, is successful and intact; else None."""
    folder = run_dir / cell.folder
    if not (folder / "result.json").is_file():
        return None
    try:
        result = ResultRecord.from_json(read_json(folder / "result.json"))
    except (UserError, MalformedRecord):
        return None
    if result.key != key or result.status != "ok":
        return None
    return None if files_problem(folder, result.arrays_sha256) else result


def files_problem(folder: Path, arrays_sha256: str | None) -> str:
    """Says what is wrong with the files of a successful cell beside its result.json; empty if nothing is."""
    if wrong := arrays_problem(folder, arrays_sha256):
        return wrong
    for path in sorted((folder / "checkpoints").glob("*.pt")):
        if not is_intact(path):
            return f"checkpoints/{path.name} is damaged (sha256 differs)"
    return ""


def arrays_problem(folder: Path, arrays_sha256: str | None) -> str:
    """Says what is wrong with a cell's arrays.npz as a file; empty if nothing is."""
    arrays = folder / "arrays.npz"
    if not arrays.is_file():
        return "arrays.npz is missing"
    if sha256_file(arrays) != arrays_sha256:
        return "arrays.npz is not the file its result.json was written for (sha256 differs)"
    return ""
