"""Takes cells that are finished elsewhere in the same run: a selection from the whole run and from other selections.

A cell's key is a hash of everything that it depends on, so a cell with the same key is the same measurement, wherever
it was computed. Its files are linked (copied where the file system has no links); nothing is written elsewhere.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from sgoif.bench.execution.plan import Cell
from sgoif.bench.execution.records import ResultRecord
from sgoif.bench.execution.results import finished
from sgoif.bench.run_folder import SELECTIONS

RESULT = "result.json"  # its presence makes a cell valid, so it comes last
WORK = "work"  # saved state of a cell that was interrupted


def take_finished(run_dir: Path, cell: Cell, key: str) -> ResultRecord | None:
    """Take a cell from where it is finished under the same key.

    Args:
        run_dir: Folder of the run or selection that needs the cell.
        cell: The cell.
        key: Hash of all that it depends on.

    Returns:
        Its result, whose files now lie in `run_dir` too; None if it is finished nowhere.
    """
    for other in _relatives(run_dir):
        if finished(other, cell, key) is not None:
            _link_cell(other / cell.folder, run_dir / cell.folder)
            return finished(run_dir, cell, key)
    return None


def _relatives(run_dir: Path) -> Iterator[Path]:
    """Yield the folders of the whole run and of all its selections, but not `run_dir` itself."""
    whole = run_dir.parent.parent if run_dir.parent.name == SELECTIONS else run_dir
    for folder in (whole, *sorted((whole / SELECTIONS).glob("*"))):
        if folder != run_dir:
            yield folder


def _link_cell(source: Path, target: Path) -> None:
    (target / RESULT).unlink(missing_ok=True)
    files = [path for path in source.rglob("*") if path.is_file() and WORK not in path.relative_to(source).parts]
    for path in sorted(files, key=lambda path: path.name == RESULT):
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        try:
            os.link(path, place)
        except OSError:  # no links here, or too many of them
            shutil.copy2(path, place)
