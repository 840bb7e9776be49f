"""Keeps a run's artifacts reachable after its folder was moved or copied: MLflow stores absolute locations of files."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path


def artifact_location(run_dir: Path, experiment: str) -> str:
    """Return where the artifacts of one of a run's experiments are, as MLflow stores it."""
    return (run_dir / "mlflow" / "artifacts" / experiment.replace("/", "-")).resolve().as_uri()


def relocate(store: Path, run_dir: Path) -> int:
    """Point a SQLite store to the artifacts in the run's folder, wherever that is now.

    A database or a server is left alone: others may see the folder in another place.

    Args:
        store: The SQLite file.
        run_dir: Folder of the run; its experiments are named `<run>/...`.

    Returns:
        The number of experiments whose artifacts were elsewhere.
    """
    moved = 0
    with contextlib.closing(sqlite3.connect(store)) as db, db:
        if not db.execute("select 1 from sqlite_master where name = 'experiments'").fetchone():
            return 0
        known = db.execute("select experiment_id, name, artifact_location from experiments").fetchall()
        for experiment_id, name, location in known:
            here = artifact_location(run_dir, name)
            if not name.startswith(f"{run_dir.name}/") or location == here:
                continue
            db.execute("update experiments set artifact_location = ? where experiment_id = ?", (here, experiment_id))
            db.execute(
                "update runs set artifact_uri = ? || '/' || run_uuid || '/artifacts' where experiment_id = ?",
                (here, experiment_id),
            )
            moved += 1
    return moved
