"""Tells which cells of a run have failed, and which numbers of the others, why, and where their output is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from sgoif.bench.evaluation.metric_record import read_metrics
from sgoif.bench.execution.integrity.run_files import batch_files
from sgoif.bench.execution.plan import Plan
from sgoif.bench.execution.records import read_batch


def failures_in_words(plan: Plan, run_dir: Path, again: str) -> list[str]:
    """Returns a line for every method and reason, and how to compute the cells again; nothing if all is well.

    Args:
        plan: The cells of the run.
        run_dir: Folder of the run.
        again: The command that computes failed cells again.
    """
    found: dict[tuple[str, str], list[Path]] = {}
    for batch in batch_files(plan, run_dir):
        for entry in read_batch(batch) if batch.is_file() else []:
            if entry.status == "failed":
                found.setdefault((entry.cell.method, entry.reason), []).append(batch)
    lines = []
    for (method, reason), batches in found.items():
        task, dataset, _, number = batches[0].relative_to(run_dir / "batches").with_suffix("").parts
        log = run_dir / "logs" / task / dataset / f"{method}-{number}.log"
        lines.append(f"Failed   {len(batches)} cell{'s' * (len(batches) > 1)} of {method}: {reason} (see {log})")
    if lines:
        lines.append(f"         {again} computes them again")
    return lines + _failed_numbers(run_dir)


def _failed_numbers(run_dir: Path) -> list[str]:
    """Returns a line for every method and reason with numbers that could not be computed from what a cell holds."""
    records = (r for path in sorted(run_dir.glob("metrics/*/*.json")) for r in read_metrics(path))
    found = Counter((r["method"], r["reason"]) for r in records if r["status"] == "failed" and r["metric"] != "status")
    return [
        f"Failed   {count} number{'s' * (count > 1)} of {method}: {reason}" for (method, reason), count in found.items()
    ]
