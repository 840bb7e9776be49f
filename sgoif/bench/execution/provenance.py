"""Collects where the numbers of a finished run come from: commit, versions, hardware and dates of its cells.

The report and the published copy of a run show this. It is apart from `environment`, which every job depends on, so
that an edit here does not make a job run again.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sgoif.bench.config.values import digest
from sgoif.bench.execution.environment import commit
from sgoif.utils.files import read_json

PIECES = "pieces.json"  # in the folder of a run merged from partial runs: the facts of its cells, by partial run


def provenance(run_dir: Path, config: dict[str, Any]) -> dict[str, Any]:
    """Return what the cells of a run were computed with, each value once.

    Args:
        run_dir: Folder of the run.
        config: Its resolved configuration.

    Returns:
        The run's name, the hash of its configuration, today's date and commit, and of its cells the number, commits,
        hardware, versions and dates; the sha256 of label files that users brought (`label_files`). For a run merged
        from partial runs also the same of each of them (`pieces`).
    """
    cells = [read_json(path) for path in sorted(run_dir.glob("cells/*/*/*/*/*/result.json"))]
    partial_runs = read_json(run_dir / PIECES) if not cells and (run_dir / PIECES).is_file() else []
    cells += [cell for partial_run in partial_runs for cell in partial_run["cells"]]
    found = {
        "run": config["run"],
        "config_hash": digest(config),
        "published": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "published_by_commit": commit(),
        **_origin(cells),
    }
    if label_files := _label_files(config):
        found["label_files"] = label_files
    if partial_runs:
        found["pieces"] = [_partial_run(one) for one in partial_runs]
    return found


def _label_files(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the sha256 of every file of labels that a user brought, by its path."""
    settings = [one for spec in config.get("noisy", {}).values() for one in spec.get("settings", {}).values()]
    return {one["path"]: one["sha256"] for one in settings if one["kind"] == "file"}


def _partial_run(recorded: Mapping[str, Any]) -> dict[str, Any]:
    measured = sorted({f"{c['cell']['task']}/{c['cell']['dataset']}" for c in recorded["cells"]})
    description = {key: recorded[key] for key in ("file", "config_hash", "note")}
    return {**description, "of": measured, **_origin(recorded["cells"])}


def _origin(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Count the cells and list what they were computed with, each value once."""
    found: dict[str, set[str]] = {"commit": set(), "hardware": set(), "versions": set(), "date": set()}
    for result in cells:
        found["commit"].add(result["commit"])
        found["date"].add(result["created"][:10])
        for key in ("hardware", "versions"):
            found[key].add(", ".join(f"{k} {v}" for k, v in sorted(result[key].items())))
    return {"cells": len(cells), **{key: sorted(values) for key, values in found.items()}}
