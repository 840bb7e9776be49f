"""Copies what a run measured to results/published/<run>, with its provenance: to be read without running anything.

Outside the paths the DAG writes, so that a fresh clone reruns nothing because of it. No scores, checkpoints or data.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from sgoif.bench.execution.provenance import provenance
from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_json, atomic_write_text, read_json

LARGEST_REPORT = 2_000_000  # bytes; a larger one stays with its run


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
