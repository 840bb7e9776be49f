"""Copies the output of a run to results/published/<run>, with its provenance, so that it can be read without a run.

The folder lies outside the paths that the DAG writes, so a fresh clone reruns nothing because of it. Scores,
checkpoints and data are not copied. It is kept small, since every version of it stays in git: summary and ledger are
compressed (`summary.json.gz`, `ledger.json.gz`), and the page shows the figures that lie beside it. A run that measures
no number of the paper has no ledger there.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sgoif.bench import figures
from sgoif.bench.evaluation.summary_record import PUBLISHED_SUMMARY
from sgoif.bench.execution.provenance import provenance
from sgoif.bench.report import report_page
from sgoif.bench.report.ledger import compares
from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_bytes, atomic_write_json, atomic_write_text, read_json
from sgoif.utils.packed_json import pack_text, write_packed_json

LEDGER = "ledger.json.gz"


def publish(run_dir: Path, target: Path, config: dict[str, Any]) -> Path:
    """Copy tables, figures, ledger, report and summary of a finished run, and write its provenance.

    Args:
        run_dir: Folder of the run.
        target: Folder to write; what it held before is deleted.
        config: The run's resolved configuration.

    Returns:
        `target`.

    Raises:
        UserError: If the run has no summary yet.
    """
    summary = run_dir / "summary.json"
    if not summary.is_file():
        raise UserError(f"{summary} is missing: run `make tables` first")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    atomic_write_bytes(target / PUBLISHED_SUMMARY, pack_text(compact(read_json(summary))))
    for path in _shown_files(run_dir, config):
        shutil.copyfile(path, target / path.name)
    ledger = run_dir / "ledger.json"
    if ledger.is_file() and compares(read_json(ledger)):
        write_packed_json(target / LEDGER, read_json(ledger))
        shutil.copyfile(run_dir / "ledger.md", target / "ledger.md")
    if (run_dir / "report.html").is_file():
        atomic_write_text(target / "report.html", report_page(run_dir, config, linked=True))
    atomic_write_json(target / "provenance.json", provenance(run_dir, config))
    return target


def _shown_files(run_dir: Path, config: Mapping[str, Any]) -> list[Path]:
    """Return the tables and figures of a configuration that show something; an earlier one may have left others."""
    tables = [*config["tables"], *(["fidelity"] if config.get("fidelity") else [])]
    files = [run_dir / "tables" / f"{table}.md" for table in tables]
    files += [run_dir / "figures" / f"{one.name}.png" for one in figures.drawn(run_dir, config)]
    return [path for path in files if path.is_file() and path.stat().st_size]


def compact(records: Sequence[Mapping[str, Any]]) -> str:
    """Shorten a summary: one record per line, five significant digits, without single seeds and empty values."""
    kept = [
        {k: _rounded(v) for k, v in r.items() if k not in ("values", "seeds") and v not in ("", None, [])}
        for r in records
    ]
    return "[\n" + ",\n".join(json.dumps(r, sort_keys=True, ensure_ascii=False) for r in kept) + "\n]\n"


def _rounded(value: Any) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float) else value
