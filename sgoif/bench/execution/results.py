"""A cell's result on disk: typed, complete, verified. Written whole or not at all."""

import datetime
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from sgoif.bench.execution.environment import environment
from sgoif.bench.execution.plan import Cell
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
) -> dict[str, Any]:
    """Writes arrays first, then result.json, whose presence makes the result valid."""
    folder = run_dir / cell.folder
    arrays = arrays or {}
    result = {
        "cell": asdict(cell),
        "key": key,
        "status": status,
        "reason": reason,
        "arrays": {k: {"shape": list(v.shape), "dtype": str(v.dtype)} for k, v in arrays.items()},
        "arrays_sha256": None,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **environment(),
        **facts,
    }
    if arrays:
        save_npz(folder / "arrays.npz", **arrays)
        result["arrays_sha256"] = sha256_file(folder / "arrays.npz")
    atomic_write_json(folder / "result.json", result, seal=True)
    return result


def finished(run_dir: Path, cell: Cell, key: str) -> dict[str, Any] | None:
    """The cell's result if it is there, of this key, successful and intact; else None."""
    folder = run_dir / cell.folder
    if not (folder / "result.json").is_file():
        return None
    try:
        result = read_json(folder / "result.json")
    except UserError:
        return None
    if not isinstance(result, dict) or result.get("key") != key or result.get("status") != "ok":
        return None
    return None if problem(folder, result.get("arrays_sha256")) else result


def problem(folder: Path, arrays_sha256: str | None) -> str:
    """What is wrong with the files of a successful cell beside its result.json; empty when nothing is."""
    arrays = folder / "arrays.npz"
    if not arrays.is_file():
        return "arrays.npz is missing"
    if sha256_file(arrays) != arrays_sha256:
        return "arrays.npz is not the file its result.json was written for (sha256 differs)"
    for path in sorted((folder / "checkpoints").glob("*.pt")):
        if not is_intact(path):
            return f"checkpoints/{path.name} is damaged (sha256 differs)"
    return ""


def batch_entry(cell: Cell, result: dict[str, Any]) -> dict[str, Any]:
    """What a batch file says of a cell."""
    keep = ("key", "status", "reason", "arrays_sha256")
    return {"cell": asdict(cell), "path": cell.folder.as_posix(), **{k: result[k] for k in keep}}
