"""The file of all records of a published run: several partial runs in one small file.

`results/published/records/<run>.json.gz` is gzipped JSON

    {format, run, parts: [{name, config_hash, note, cells: [...], records: {column: [value, ...]}}]}

A part is what one partial run still counts for: cells that a later part holds too are left out. Records are stored by
column, which makes the file half as large. The same parts give the same bytes. `pack_records` writes it, `merge` reads
it. A part that lacks the plain runs of its cells gets their overhead in network passes from those of the other parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from sgoif.bench.evaluation.metric_record import MetricRecord
from sgoif.bench.evaluation.overhead import (
    ELSEWHERE,
    NO_PLAIN_RUN,
    NOT_OVERHEAD,
    NOT_OVERHEAD_OOD,
    WALL_CLOCK_OVERHEADS,
    Overhead,
)
from sgoif.bench.execution.records import ResultRecord
from sgoif.bench.methods.registry import PLAIN
from sgoif.bench.sharing.partial_run import (
    FORMAT,
    Owner,
    PartialRun,
    cells_problem,
    check_partial_run,
    owner_of,
    records_problem,
)
from sgoif.errors import UserError
from sgoif.utils.packed_json import read_packed_json, write_packed_json

RECORDS_FORMAT = "sgoif.bench records 1"
MADE_BY = "`export-records` or `pack-records`"
PASSES = "overhead_passes"
COLUMNS = tuple(MetricRecord.__annotations__)
NamedPart = tuple[str, PartialRun]  # the name of the file that it was exported to, and its content


def records_of_run(results: Path, run: str) -> Path:
    """Return the file of a published run's records."""
    return results / "published" / "records" / f"{run}.json.gz"


def read_parts(files: Sequence[Path]) -> list[NamedPart]:
    """Read partial runs and files of several, in their order.

    Raises:
        UserError: If a file is missing, damaged or neither of both.
    """
    return [part for path in files for part in _read(Path(path))]


def pack_records(files: Sequence[Path], out: Path, run: str) -> list[NamedPart]:
    """Write several partial runs into one file.

    Args:
        files: Partial runs, or files of this kind; where two hold the same cell, the later one counts.
        out: File to write.
        run: Name of the run that they must be of.

    Returns:
        What it holds.

    Raises:
        UserError: If a file cannot be read, or holds cells of another run.
    """
    parts = read_parts(files)
    for name, part in parts:
        if part["run"] != run:
            raise UserError(
                f"{name} holds records of run {part['run']!r}, not of {run!r}; each run has a file of its own"
            )
    kept = with_passes(counting(parts))
    stored = [
        {
            "name": name,
            "config_hash": part["config_hash"],
            "note": part.get("note", ""),
            "cells": part["cells"],
            "records": {column: [record[column] for record in part["records"]] for column in COLUMNS},  # type: ignore[literal-required]
        }
        for name, part in kept
    ]
    write_packed_json(out, {"format": RECORDS_FORMAT, "run": run, "parts": stored})
    return kept


def counting(parts: Sequence[NamedPart]) -> list[NamedPart]:
    """Leave out of every part the cells and records that a later one holds too, and parts that nothing is left of."""
    last_cell: dict[Owner, int] = {}
    last_record: dict[Owner, int] = {}
    for number, (_, part) in enumerate(parts):
        last_cell |= {owner_of(cell["cell"]): number for cell in part["cells"]}
        last_record |= {owner_of(record): number for record in part["records"]}
    kept: list[NamedPart] = []
    for number, (name, part) in enumerate(parts):
        cells = [cell for cell in part["cells"] if last_cell[owner_of(cell["cell"])] == number]
        records = [record for record in part["records"] if last_record[owner_of(record)] == number]
        if cells or records:
            kept.append((name, {**part, "cells": cells, "records": records}))
    return kept


def with_passes(parts: Sequence[NamedPart]) -> list[NamedPart]:
    """Add the overhead in network passes, which no machine changes, of cells whose plain run is in another part.

    Their seconds are said to be incomparable there, not to lack a plain run.
    """
    results = {owner_of(cell["cell"]): cell for _, part in parts for cell in part["cells"] if cell["status"] == "ok"}
    found: list[NamedPart] = []
    for name, part in parts:
        have = {owner_of(record) for record in part["records"] if record["metric"] == PASSES}
        lacking = [cell for cell in part["cells"] if cell["status"] == "ok" and owner_of(cell["cell"]) not in have]
        records = [_beside_plain_run(record, results) for record in part["records"]]
        records += [r for cell in lacking for r in _passes(cell, results)]
        found.append((name, {**part, "records": records}))
    return found


def _beside_plain_run(record: MetricRecord, results: Mapping[Owner, Any]) -> MetricRecord:
    """Return a record that lacks a plain run with the reason that it has one elsewhere, if it has."""
    there = owner_of({**record, "method": PLAIN}) in results
    if record["metric"] not in WALL_CLOCK_OVERHEADS or record["reason"] != NO_PLAIN_RUN or not there:
        return record
    return {**record, "status": "undefined", "reason": ELSEWHERE}


def _passes(cell: Any, results: Mapping[Owner, Any]) -> list[MetricRecord]:
    """Return the overhead in network passes of a cell; nothing if a run that it is compared with is missing."""
    needed = [results.get(owner_of({**cell["cell"], "method": run})) for run in (PLAIN, *cell["shared"])]
    if None in needed:
        return []
    own, plain, *shared = (ResultRecord.from_json(c) for c in (cell, *needed))
    excluded = NOT_OVERHEAD_OOD if own.cell.task == "ood" else NOT_OVERHEAD
    rest = {"variant": "", "epoch": None, "status": "ok", "reason": ""}
    return [
        MetricRecord(**cell["cell"], **rest, metric=cost.metric, value=cost.value)  # type: ignore[typeddict-item]
        for cost in Overhead(own, plain, shared, excluded).passes()
    ]


def _read(path: Path) -> list[NamedPart]:
    content = read_packed_json(path, MADE_BY)
    if not isinstance(content, dict) or content.get("format") != RECORDS_FORMAT:
        return [(path.name, check_partial_run(path, content))]
    parts = content.get("parts")
    if not isinstance(parts, list) or not isinstance(content.get("run"), str):
        raise UserError(f"{path} is no file of records: it has no `run` and `parts`")
    found = [_part(path, number, part, content["run"]) for number, part in enumerate(parts)]
    cells = [cell for _, part in found for cell in part["cells"]]
    records = [record for _, part in found for record in part["records"]]
    if problem := cells_problem(cells) or records_problem(records, cells):
        raise UserError(f"{path} is no file of records: {problem}")
    return found


def _part(path: Path, number: int, part: Any, run: str) -> NamedPart:
    texts = ("name", "config_hash", "note")
    if not isinstance(part, dict) or not all(isinstance(part.get(key), str) for key in texts):
        raise UserError(f"{path} is no file of records: part {number} has no {', '.join(texts)}")
    columns, cells = part.get("records"), part.get("cells")
    if not isinstance(cells, list) or not _is_table(columns):
        raise UserError(f"{path} is no file of records: part {part['name']} has no `cells` and columns of `records`")
    rows = zip(*(columns[column] for column in COLUMNS), strict=True)
    records: list[MetricRecord] = [dict(zip(COLUMNS, row, strict=True)) for row in rows]  # type: ignore[misc]
    read: PartialRun = {
        "format": FORMAT,
        "run": run,
        "config_hash": part["config_hash"],
        "note": part["note"],
        "cells": cells,
        "records": records,
    }
    return part["name"], read


def _is_table(columns: Any) -> TypeGuard[Mapping[str, list[Any]]]:
    """Tell whether a value has all columns of metric records, as lists of one length."""
    if not isinstance(columns, Mapping) or set(columns) != set(COLUMNS):
        return False
    return all(isinstance(c, list) for c in columns.values()) and len({len(c) for c in columns.values()}) == 1
