"""Finds the damage of a run that can be seen without reading everything; `make tables` does so before it starts.

Small sealed files are compared with their seals. Arrays are compared with their checksums only where their size or time
says that somebody changed them; `verify` reads them all.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np

from sgoif.bench.data.prepare import find_damage
from sgoif.bench.execution.integrity.damage import Damage, cell_damage, cure_of, is_json
from sgoif.bench.execution.integrity.run_files import batch_files, data_files, label_files
from sgoif.bench.execution.plan import Plan
from sgoif.bench.execution.records import read_batch
from sgoif.errors import UserError
from sgoif.utils.files import is_intact, read_json

SEALED_OUTPUTS = (".", "batches/*/*/*", "metrics/*", "curves/*", "tables", "figures")  # folders, below a run's
MLFLOW_FILES = ("mlflow.db", "mlflow.db-wal", "mlflow.db-shm", "mlflow.db-journal", "imported.json")


def quick_check(plan: Plan, run_dir: Path) -> list[Damage]:
    """Return the damage of a run that shows in seals, sizes and times; files that are missing are not damaged."""
    found = [*_sealed(run_dir), *_data(plan), *_labels(plan, run_dir)]
    seen = {damage.path for damage in found}
    for batch in batch_files(plan, run_dir):
        if batch.is_file() and batch not in seen:
            found += _cells(run_dir, batch)
    return [*found, *_store(plan, run_dir)]


def _sealed(run_dir: Path) -> Iterator[Damage]:
    for folder in SEALED_OUTPUTS:
        for seal in sorted(run_dir.glob(f"{folder}/.*.sha256")):
            path = seal.with_name(seal.name.removeprefix(".").removesuffix(".sha256"))
            if path.is_file() and not is_intact(path):
                yield Damage(path, "is damaged", cure_of(path))


def _data(plan: Plan) -> Iterator[Damage]:
    for meta in data_files(plan):
        if meta.is_file() and _data_changed(meta) and (wrong := find_damage(meta.parent)):
            yield Damage(meta.parent, f"is damaged ({wrong})", (meta,))


def _data_changed(meta: Path) -> bool:
    """Whether a prepared array is missing, cut off, or newer than meta.json, which is written last."""
    written = meta.stat().st_mtime_ns
    labels = meta.with_name("labels.npz")
    try:
        for key in read_json(meta)["arrays"]:
            path = labels if labels.is_file() else meta.with_name(f"{key}.npy")
            if path.stat().st_mtime_ns > written or (path == labels and not zipfile.is_zipfile(path)):
                return True
            if path != labels:
                np.load(path, mmap_mode="r", allow_pickle=False)  # refuses a file that is shorter than its header says
    except (UserError, OSError, EOFError, KeyError, TypeError, ValueError):
        return True
    return False


def _labels(plan: Plan, run_dir: Path) -> Iterator[Damage]:
    for path in label_files(plan, run_dir):
        if path.is_file() and not _is_whole_zip(path):
            yield Damage(path, "is damaged", (path,))


def _is_whole_zip(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except Exception:  # a damaged zip fails in a dozen ways
        return False


def _cells(run_dir: Path, batch: Path) -> Iterator[Damage]:
    try:
        entries = read_batch(batch)
    except UserError:
        yield Damage(batch, "is damaged", (batch,))
        return
    for entry in entries:
        if damage := cell_damage(run_dir, batch, entry, thorough=False):
            yield damage


def _store(plan: Plan, run_dir: Path) -> Iterator[Damage]:
    """The run's own MLflow store; one that is shared with others is not this run's to delete."""
    if os.environ.get("SGOIF_TRACKING") or plan.config["tracking"]["uri"]:
        return
    folder = run_dir / "mlflow"
    cure = tuple(path for name in MLFLOW_FILES if (path := folder / name).is_file())
    if (folder / "imported.json").is_file() and not is_json(folder / "imported.json"):
        yield Damage(folder / "imported.json", "is damaged", (folder / "imported.json",))
    if not (folder / "mlflow.db").is_file():
        if cure:
            yield Damage(folder / "mlflow.db", "is missing", cure)
    elif wrong := database_problem(folder / "mlflow.db", "quick_check"):
        yield Damage(folder / "mlflow.db", f"is damaged ({wrong})", cure)


def database_problem(path: Path, pragma: str) -> str:
    """Says what SQLite finds wrong with a database; empty if nothing.

    Args:
        path: The file.
        pragma: "quick_check" or "integrity_check".
    """
    if path.stat().st_size < _database_bytes(path):
        return "it is shorter than its header says"
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as database:
            (answer,) = database.execute(f"PRAGMA {pragma}(1)").fetchone()
    except sqlite3.DatabaseError as e:
        answer = str(e)
    return "" if answer == "ok" else " ".join(str(answer).split())[:200]


def _database_bytes(path: Path) -> int:
    """The length of a SQLite file by its header: size of a page, 1 for 65536, times the number of pages."""
    with open(path, "rb") as file:
        header = file.read(32)
    page = int.from_bytes(header[16:18], "big")
    return (page if page != 1 else 65536) * int.from_bytes(header[28:32], "big")
