"""What a damaged or missing file of a run is called, and how it is cured: by deleting what depends on it."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path

from sgoif.bench.execution.records import BatchEntry, MalformedRecord, ResultRecord
from sgoif.bench.execution.results import files_problem
from sgoif.errors import UserError
from sgoif.utils.files import read_json

MADE_WITH = {"records.parquet": "records.csv"}  # a file that Snakemake does not look for: the one it is made with


@dataclass(frozen=True)
class Damage:
    """A file that cannot be used.

    Attributes:
        path: The file.
        what: What is wrong with it.
        delete: What to delete, so that `make tables` makes it again; nothing for a missing file that it looks for.
    """

    path: Path
    what: str
    delete: tuple[Path, ...] = ()

    def __str__(self) -> str:
        cure = f"delete {' and '.join(map(str, self.delete))}; " if self.delete else ""
        return f"{self.path} {self.what}; {cure}`make tables` makes it again"


def seal_of(path: Path) -> Path:
    """Return the file beside `path` that holds its sha256, if it has one."""
    return path.with_name(f".{path.name}.sha256")


def cure_of(path: Path) -> tuple[Path, ...]:
    """Return what to delete so that a damaged file is made again: the file, and one that Snakemake looks for."""
    name = MADE_WITH.get(path.name)
    return (path,) if name is None else (path, path.with_name(name))


def delete(path: Path) -> None:
    """Delete a file and its seal, if they are there.

    Raises:
        UserError: If the folder cannot be written.
    """
    try:
        path.unlink(missing_ok=True)
        seal_of(path).unlink(missing_ok=True)
    except OSError as e:
        raise UserError(f"{path} is damaged and cannot be deleted ({e.strerror}); make its folder writable") from None


def cell_damage(run_dir: Path, batch: Path, entry: BatchEntry, thorough: bool) -> Damage | None:
    """Says what is wrong with a cell that a batch file lists.

    Args:
        run_dir: Folder of the run.
        batch: The batch file.
        entry: What it says about the cell.
        thorough: Whether to read all of its files; else those alone that were changed after they were written.
    """
    path = run_dir / entry.path / "result.json"
    cure = (path, batch)
    if not path.is_file():
        return Damage(path, "is missing", (batch,))
    try:
        result = ResultRecord.from_json(read_json(path))
    except (UserError, MalformedRecord):
        return Damage(path, "is damaged", cure)
    if BatchEntry.of(result) != entry:
        return Damage(path, f"is not the result that {batch} lists", cure)
    if result.status != "ok":
        return None
    wrong = _missing_checkpoint(path.parent)
    if not wrong and (thorough or _looks_changed(path)):
        wrong = files_problem(path.parent, result.arrays_sha256)
    return Damage(path.parent, f"is damaged: {wrong}", cure) if wrong else None


def _missing_checkpoint(folder: Path) -> str:
    """Says which checkpoint of a cell is gone, though its seal is there."""
    for seal in sorted((folder / "checkpoints").glob(".*.sha256")):
        name = seal.name.removeprefix(".").removesuffix(".sha256")
        if not seal.with_name(name).is_file():
            return f"checkpoints/{name} is missing"
    return ""


def _looks_changed(result_file: Path) -> bool:
    """Whether a file beside a result.json is missing, cut off, or newer than what was written after it."""
    arrays = result_file.with_name("arrays.npz")
    if not arrays.is_file() or _newer(arrays, result_file) or not zipfile.is_zipfile(arrays):
        return True
    checkpoints = result_file.with_name("checkpoints").glob("*.pt")
    return any(seal_of(path).is_file() and _newer(path, seal_of(path)) for path in checkpoints)


def _newer(path: Path, than: Path) -> bool:
    return path.stat().st_mtime_ns > than.stat().st_mtime_ns


def is_json(path: Path) -> bool:
    """Return whether a file holds JSON."""
    try:
        json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False
    return True
