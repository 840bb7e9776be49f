"""Tells which cells of a run have failed, why, and where their output is."""

from __future__ import annotations

from pathlib import Path

from sgoif.bench.execution.integrity.run_files import batch_files
from sgoif.bench.execution.plan import Plan
from sgoif.bench.execution.records import read_batch


def failures_in_words(plan: Plan, run_dir: Path, again: str) -> list[str]:
    """Return a line for every method and reason, and how to compute the cells again; nothing if none has failed.

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
    return [*lines, f"         {again} computes them again"] if lines else []
