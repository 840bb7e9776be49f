"""Copies what a run measured to results/published/<run>, with its provenance: to be read without running anything.

Outside the paths the DAG writes, so that a fresh clone reruns nothing because of it. No scores, checkpoints or data.
"""

import datetime
import json
import shutil
from pathlib import Path
from typing import Any

from sgoif.bench.config.resolve import digest
from sgoif.bench.execution.results import commit
from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_json, atomic_write_text, read_json

LARGEST_REPORT = 2_000_000  # bytes; a larger one stays with its run
PIECES = "pieces.json"  # of a run that was adopted: the facts of its cells, by the piece they came with


def publish(run_dir: Path, target: Path, config: dict[str, Any]) -> Path:
    """Tables, figures and summary of a finished run, beside what they were measured with."""
    summary = run_dir / "summary.json"
    if not summary.is_file():
        raise UserError(f"{summary} is missing: run `make tables` first")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    atomic_write_text(target / "summary.json", compact(read_json(summary)))
    files = [*sorted((run_dir / "tables").glob("*.md")), *sorted((run_dir / "figures").glob("[!.]*"))]
    files += sorted(run_dir.glob("ledger.*"))
    files += [p for p in [run_dir / "report.html"] if p.is_file() and p.stat().st_size < LARGEST_REPORT]
    for path in files:
        shutil.copyfile(path, target / path.name)
    atomic_write_json(target / "provenance.json", provenance(run_dir, config))
    return target


def compact(records: list[dict[str, Any]]) -> str:
    """A summary with one record a line and five significant digits; single seeds, empty and unknown values left out."""

    def short(value: Any) -> Any:
        return float(f"{value:.5g}") if isinstance(value, float) else value

    unsaid = ("", None, [])
    kept = [{k: short(v) for k, v in r.items() if k not in ("values", "seeds") and v not in unsaid} for r in records]
    return "[\n" + ",\n".join(json.dumps(r, sort_keys=True, ensure_ascii=False) for r in kept) + "\n]\n"


def provenance(run_dir: Path, config: dict[str, Any]) -> dict[str, Any]:
    """Commit, configuration, versions, hardware and date of the cells, each value once; of a run that was adopted, also
    of each of its `pieces`."""
    cells = [read_json(path) for path in sorted(run_dir.glob("cells/*/*/*/*/*/result.json"))]
    adopted = read_json(run_dir / PIECES) if not cells and (run_dir / PIECES).is_file() else []
    cells += [cell for piece in adopted for cell in piece["cells"]]
    whole = {
        "run": config["run"],
        "config_hash": digest(config),
        "published": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "published_by_commit": commit(),
        **_origin(cells),
    }
    return whole | ({"pieces": [_piece(piece) for piece in adopted]} if adopted else {})


def _piece(piece: dict[str, Any]) -> dict[str, Any]:
    of = sorted({f"{c['cell']['task']}/{c['cell']['dataset']}" for c in piece["cells"]})
    said = {key: piece[key] for key in ("file", "config_hash", "note")}
    return {**said, "of": of, **_origin(piece["cells"])}


def _origin(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """How many cells, and what they were measured with, each value once."""
    found: dict[str, set[str]] = {"commit": set(), "hardware": set(), "versions": set(), "date": set()}
    for result in cells:
        found["commit"].add(result["commit"])
        found["date"].add(result["created"][:10])
        for key in ("hardware", "versions"):
            found[key].add(", ".join(f"{k} {v}" for k, v in sorted(result[key].items())))
    return {"cells": len(cells), **{key: sorted(values) for key, values in found.items()}}
