"""Forgets the failures of a run, so that the next `make tables` computes these cells again (`make retry`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sgoif.bench.execution.integrity.damage import delete
from sgoif.bench.execution.integrity.run_files import batch_files
from sgoif.bench.execution.plan import Cell, Plan
from sgoif.bench.execution.records import BatchEntry, read_batch
from sgoif.bench.methods.registry import SHARED
from sgoif.errors import UserError
from sgoif.utils.suggest import suggest

Listed = list[tuple[Path, BatchEntry]]  # batch files with the failed cells that they list


@dataclass(frozen=True)
class Choice:
    """Which cells are meant; an empty text means all.

    Attributes:
        method: Name of the method, with its variant, or of a shared run.
        setting: Name of the noise setting.
        seed: The seed.
        dataset: Name of the dataset.
    """

    method: str = ""
    setting: str = ""
    seed: str = ""
    dataset: str = ""

    def includes(self, cell: Cell) -> bool:
        """Return whether a cell is meant."""
        return all(wanted in ("", str(getattr(cell, name))) for name, wanted in vars(self).items())


@dataclass(frozen=True)
class Forgotten:
    """What `forget_failures` did.

    Attributes:
        chosen: The failed cells that were meant, and the failed shared runs that they read.
        besides: Other failed cells of the same batches, which the same jobs compute again.
    """

    chosen: list[BatchEntry]
    besides: list[BatchEntry]


def forget_failures(plan: Plan, run_dir: Path, choice: Choice) -> Forgotten:
    """Delete the results of failed cells and the batch files that list them.

    A cell that was interrupted keeps its saved epochs and goes on from there.

    Args:
        plan: The cells of the run.
        run_dir: Folder of the run.
        choice: Which of the failed cells.

    Returns:
        The cells that are computed again.

    Raises:
        UserError: If the run has no such method, setting, seed or dataset, or a batch file is damaged.
    """
    batches = batch_files(plan, run_dir)
    _check_names(choice, [cell for cells in batches.values() for cell in cells])
    failed = [(b, entry) for b in batches if b.is_file() for entry in read_batch(b) if entry.status == "failed"]
    chosen = _with_shared_runs([(b, entry) for b, entry in failed if choice.includes(entry.cell)], failed)
    files = {batch for batch, _ in chosen}
    besides = [(batch, entry) for batch, entry in failed if batch in files and (batch, entry) not in chosen]
    for _, entry in (*chosen, *besides):
        delete(run_dir / entry.path / "result.json")
    for batch in sorted(files):
        delete(batch)
    return Forgotten([entry for _, entry in chosen], [entry for _, entry in besides])


def _with_shared_runs(chosen: Listed, failed: Listed) -> Listed:
    """Add the failed shared runs of the chosen cells, without which they would fail again."""
    places = {_place(entry.cell) for _, entry in chosen}
    shared = [(b, e) for b, e in failed if e.cell.method in SHARED and _place(e.cell) in places]
    return chosen + [one for one in shared if one not in chosen]


def _place(cell: Cell) -> tuple[str, str, str, int]:
    return cell.task, cell.dataset, cell.setting, cell.seed


def _check_names(choice: Choice, cells: Sequence[Cell]) -> None:
    for name, wanted in vars(choice).items():
        known = {str(getattr(cell, name)) for cell in cells}
        if wanted and wanted not in known:
            raise UserError(f"{name.upper()}: this run has no {name} {wanted!r}; {suggest(wanted, sorted(known))}")
