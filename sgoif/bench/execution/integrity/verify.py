"""Compares every file of a run with the checksum it was written with (`make verify`).

Prepared data have their sha256 in meta.json, the arrays of a cell in its result.json and batch file, JSON files,
checkpoints, tables and figures in a seal beside them. Labels, truths and images set aside depend on the data and the
configuration alone: they are made once more and compared. MLflow's database is checked by SQLite, and for the number of
its runs.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from sgoif.bench.data.holdout import held_out_file, hold_out
from sgoif.bench.data.noisy_labels import required_datasets, setting_files, write_setting
from sgoif.bench.data.prepare import find_damage
from sgoif.bench.execution.integrity.damage import MADE_WITH, Damage, cell_damage, cure_of, delete, is_json, seal_of
from sgoif.bench.execution.integrity.quick_check import MLFLOW_FILES, database_problem
from sgoif.bench.execution.integrity.run_files import batch_files, data_files, is_merged, noise_draws, result_files
from sgoif.bench.execution.plan import Plan
from sgoif.bench.execution.records import read_batch
from sgoif.errors import UserError
from sgoif.utils.files import is_intact, load_npz, read_json


@dataclass
class Findings:
    """What `verify_run` found.

    Attributes:
        checked: Number of files that were compared or read.
        unsealed: Those among them without a checksum, which were only read.
        damages: What is damaged or missing.
    """

    checked: int = 0
    unsealed: list[Path] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)


def verify_run(plan: Plan, run_dir: Path, figures: Sequence[str] = (), store: Path | None = None) -> Findings:
    """Check every file of a run.

    Args:
        plan: The cells of the run.
        run_dir: Folder of the run.
        figures: Names of the files in its folder of figures.
        store: MLflow's SQLite file; None if the store is a server.

    Returns:
        What was checked, and what is damaged or missing.
    """
    found = Findings()
    if not is_merged(run_dir):
        damaged = _check_data(plan, found)
        _check_labels(plan, run_dir, damaged, found)
        _check_cells(plan, run_dir, found)
    optional = [path for name in MADE_WITH if seal_of(path := run_dir / name).is_file()]
    for path in [*result_files(plan, run_dir, figures), *optional]:
        _check_file(path, found)
    if store is not None:
        _check_store(run_dir, store, found)
    return found


def repair(found: Findings) -> list[Path]:
    """Delete what is damaged and can be made again.

    Returns:
        The files that were deleted.

    Raises:
        UserError: If a folder cannot be written.
    """
    files = dict.fromkeys(path for damage in found.damages for path in damage.delete if path.exists())
    for path in files:
        delete(path)
    return list(files)


def _check_data(plan: Plan, found: Findings) -> set[str]:
    """Check the prepared datasets and return the names of those that cannot be used."""
    damaged = set()
    for meta in data_files(plan):
        found.checked += 1
        if not meta.is_file():
            found.damages.append(Damage(meta, "is missing"))
            damaged.add(meta.parent.name)
        elif wrong := find_damage(meta.parent):
            found.damages.append(Damage(meta.parent, f"is damaged ({wrong})", (meta,)))
            damaged.add(meta.parent.name)
        else:
            found.checked += len(read_json(meta)["arrays"])
    return damaged


def _check_labels(plan: Plan, run_dir: Path, damaged: set[str], found: Findings) -> None:
    """Compare labels, truths and images set aside with what the data and the configuration give now."""
    root = plan.config["data"]["root"]
    draws = [draw for draw in noise_draws(plan) if not {*required_datasets(draw[0], plan.noise(*draw))} & damaged]
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch)
        for dataset, setting, draw in draws:
            noise = plan.noise(dataset, setting, draw)
            write_setting(root, fresh, dataset, setting, noise, draw)
            both = (setting_files(folder, dataset, setting, draw) for folder in (run_dir, fresh))
            for path, expected in zip(*both, strict=True):
                _compare(path, expected, found)
        for dataset in dict.fromkeys(dataset for dataset, _, _ in draws):
            expected = hold_out(Path(root), fresh, dataset, plan.held_out(dataset))
            _compare(held_out_file(run_dir, dataset), expected, found)


def _compare(path: Path, expected: Path, found: Findings) -> None:
    found.checked += 1
    if not path.is_file():
        found.damages.append(Damage(path, "is missing"))
    elif path.read_bytes() != expected.read_bytes():
        found.damages.append(Damage(path, "is not what the data and the configuration give", (path,)))


def _check_cells(plan: Plan, run_dir: Path, found: Findings) -> None:
    """Check the batch files, those of tuning too if there are any, and the cells that they list."""
    planned = batch_files(plan, run_dir)
    for batch in sorted({*planned, *run_dir.glob("batches/tuning/*/*/*.json")}):
        if not _check_file(batch, found):
            continue
        try:
            entries = read_batch(batch)
        except UserError:
            found.damages.append(Damage(batch, "is damaged", (batch,)))
            continue
        if batch in planned and [entry.cell for entry in entries] != planned[batch]:
            found.damages.append(Damage(batch, "lists other cells than the configuration", (batch,)))
        for entry in entries:
            found.checked += 1 + (entry.status == "ok")
            if damage := cell_damage(run_dir, batch, entry, thorough=True):
                found.damages.append(damage)


def _check_file(path: Path, found: Findings) -> bool:
    """Check a file against its seal, or by reading it where it has none; return whether it can be used."""
    found.checked += 1
    if not path.is_file():
        found.damages.append(Damage(path, "is missing", cure_of(path)[1:]))
        return False
    sealed = seal_of(path).is_file()
    if not sealed:
        found.unsealed.append(path)
    if is_intact(path) if sealed else _is_readable(path):
        return True
    found.damages.append(Damage(path, "is damaged", cure_of(path)))
    return False


def _is_readable(path: Path) -> bool:
    if path.suffix == ".json":
        return is_json(path)
    if path.suffix == ".npz":
        try:
            load_npz(path)
        except UserError:
            return False
    return path.suffix == ".npz" or path.stat().st_size > 0


def _check_store(run_dir: Path, store: Path, found: Findings) -> None:
    """Check MLflow's database and that it holds the runs that were imported."""
    imported = run_dir / "mlflow" / "imported.json"
    own = [path for name in MLFLOW_FILES if (path := run_dir / "mlflow" / name).is_file()]
    cure = tuple(own if store.parent == run_dir / "mlflow" else [store, imported])
    if not _check_file(imported, found):
        return
    found.unsealed = [path for path in found.unsealed if path != imported]  # it is compared with the database
    found.checked += 1
    if not store.is_file():
        found.damages.append(Damage(store, "is missing", cure))
    elif wrong := database_problem(store, "integrity_check") or _missing_runs(store, imported):
        found.damages.append(Damage(store, f"is damaged ({wrong})", cure))


def _missing_runs(store: Path, imported: Path) -> str:
    """Says how many of the imported runs the database has lost; empty if none."""
    expected = read_json(imported)
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(str(store))}?mode=ro", uri=True)) as database:
            counts = dict(database.execute(_ACTIVE_RUNS).fetchall())
        there = sum(counts.get(name, 0) for name in expected["experiments"])
        return f"{there} of {expected['runs']} runs" if there < expected["runs"] else ""
    except (sqlite3.DatabaseError, KeyError, TypeError) as e:
        return " ".join(str(e).split())[:200]


_ACTIVE_RUNS = (
    "SELECT experiments.name, COUNT(*) FROM experiments JOIN runs USING (experiment_id)"
    " WHERE runs.lifecycle_stage = 'active' GROUP BY experiments.name"
)
