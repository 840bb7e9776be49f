"""Tells whether the summary of a run is of its present configuration and cells.

Snakemake compares them before it starts. What reads a run outside it, the report and what is published, asks here: a
run whose configuration was changed, and which was then interrupted, still holds the summary of the other configuration.
"""

from __future__ import annotations

from pathlib import Path

from sgoif.bench.config import digest
from sgoif.bench.execution.integrity.run_files import batch_files, is_merged
from sgoif.bench.execution.plan import Plan
from sgoif.bench.execution.records import read_batch
from sgoif.errors import UserError
from sgoif.utils.files import read_json


def refuse_outdated(plan: Plan, run_dir: Path) -> None:
    """Refuse to go on with a run whose summary is not of the cells that its configuration has now.

    Args:
        plan: The cells of the run.
        run_dir: Folder of the run; one that was merged from partial runs has no cells to compare.

    Raises:
        UserError: If a batch is missing or newer than the summary, or has cells of another configuration.
    """
    summary = run_dir / "summary.json"
    if is_merged(run_dir) or not summary.is_file():
        return
    for batch in batch_files(plan, run_dir):
        if not batch.is_file():
            why = f"{batch} is missing"
        elif batch.stat().st_mtime_ns > summary.stat().st_mtime_ns:
            why = f"{batch} is newer than {summary}"
        elif changed := _changed_cell(plan, run_dir, batch):
            why = f"{changed} was computed with another configuration"
        else:
            continue
        raise UserError(f"{why}: the run was changed or interrupted; `make tables` with its configuration finishes it")


def _changed_cell(plan: Plan, run_dir: Path, batch: Path) -> str:
    """Return the first cell of a batch that was computed with another configuration; empty if none was."""
    for entry in read_batch(batch):
        result = run_dir / entry.path / "result.json"
        if result.is_file() and digest(read_json(result).get("config")) != digest(plan.cell_config(entry.cell)):
            return str(entry.cell)
    return ""
