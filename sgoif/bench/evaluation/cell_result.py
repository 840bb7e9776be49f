"""Reads finished cells from disk: result.json, checked, and arrays.npz, checked against its checksum."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sgoif.bench.execution.records import BatchEntry, MalformedRecord, ResultRecord, read_batch
from sgoif.bench.execution.results import arrays_problem
from sgoif.bench.execution.validate import array_problem, damaged_cell
from sgoif.errors import UserError
from sgoif.utils.files import load_npz, read_json

NOT_EVALUATED = ("margins", "losses", "errors", "features")  # arrays of a plain run: large, and read by methods alone
CellName = tuple[str, int, str]  # setting, seed, method


@dataclass(frozen=True)
class CellResult:
    """One finished cell on disk.

    Attributes:
        directory: The cell's folder.
        result: The content of its result.json.
        batch: The batch file it belongs to.
    """

    directory: Path
    result: ResultRecord
    batch: Path

    @property
    def name(self) -> CellName:
        """Setting, seed and method."""
        cell = self.result.cell
        return cell.setting, cell.seed, cell.method

    def matches(self, entry: BatchEntry) -> bool:
        """Return whether an entry of a batch file describes this result."""
        mine = (self.result.key, self.result.status, self.result.arrays_sha256)
        return mine == (entry.key, entry.status, entry.arrays_sha256)

    def damaged(self, what: str) -> UserError:
        """Build the error for this cell: what is wrong with it, and what to delete."""
        return damaged_cell(self.directory, self.batch, what)

    def arrays(self) -> dict[str, np.ndarray]:
        """Load the arrays that are evaluated.

        Raises:
            UserError: If arrays.npz is missing, is not the file that result.json describes, or holds other arrays than
                a method writes.
        """
        if wrong := arrays_problem(self.directory, self.result.arrays_sha256):
            raise self.damaged(wrong)
        try:
            arrays = load_npz(self.directory / "arrays.npz", without=NOT_EVALUATED)
        except UserError as e:
            raise self.damaged(f"arrays.npz cannot be read ({e})") from None
        if wrong := array_problem(arrays):
            raise self.damaged(f"arrays.npz is not what a method writes: {wrong}")
        return arrays


def read_cell(directory: Path, batch: Path) -> CellResult:
    """Read one cell.

    Args:
        directory: The cell's folder.
        batch: The batch file it belongs to.

    Raises:
        UserError: If result.json is missing, damaged or malformed.
    """
    try:
        return CellResult(directory, ResultRecord.from_json(read_json(directory / "result.json")), batch)
    except FileNotFoundError:
        raise damaged_cell(directory, batch, "result.json is missing") from None
    except UserError:
        raise damaged_cell(directory, batch, "result.json is damaged") from None
    except MalformedRecord as e:
        raise damaged_cell(directory, batch, f"result.json is not a cell's result: {e}") from None


def read_cells(
    run_dir: Path | str, task: str, dataset: str, methods: Collection[str] | None = None
) -> list[CellResult]:
    """Read the cells that the batch files of one task and dataset list.

    Args:
        run_dir: Folder of the run.
        task: "noisy", "tuning" or "ood".
        dataset: Name of the dataset.
        methods: If not None, only cells of these methods are read.

    Returns:
        Each cell once, sorted by name.

    Raises:
        UserError: If a file is damaged, or a result is not the one that its batch file describes.
    """
    cells: dict[CellName, CellResult] = {}
    stale: dict[CellName, CellResult] = {}
    for batch in sorted((Path(run_dir) / "batches" / task / dataset).glob("*/*.json")):
        if methods is not None and batch.parent.name not in methods:
            continue
        for entry in read_batch(batch):
            cell = read_cell(Path(run_dir) / entry.path, batch)
            (cells if cell.matches(entry) else stale)[cell.name] = cell
    for name, cell in stale.items():  # an old batch file beside a newer one that matches is harmless
        if name not in cells:
            raise cell.damaged("result.json is not the one its batch file speaks of (key, status or sha256 differs)")
    return [cells[name] for name in sorted(cells)]
