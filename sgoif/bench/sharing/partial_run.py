"""The file of a partial run: records of finished cells and where they were measured.

A gzipped JSON file

    {format, run, config_hash, note, cells: [result.json without arrays and curves], records: [as in metrics/*.json]}

`export` writes it, `records_file` packs several of them into one file, `merge` reads both. Scores, checkpoints and the
truth are not in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from sgoif.bench.evaluation.metric_record import MetricRecord, is_metric_record
from sgoif.bench.execution.records import MalformedRecord, ResultRecord
from sgoif.errors import UserError
from sgoif.utils.packed_json import write_packed_json

FORMAT = "sgoif.bench piece 1"
FACTS = {"commit": str, "created": str, "hardware": dict, "versions": dict, "config": dict}
# task, dataset, setting, seed and method of a cell; of labels: method "", and seed None if all seeds have the same
Owner = tuple[str, str, str, int | None, str]


class PartialRun(TypedDict):
    """Content of a partial run's file.

    Attributes:
        format: `FORMAT`.
        run: Name of the run.
        config_hash: Hash of its resolved configuration.
        note: How it was measured, for readers of the provenance; may be missing in old files.
        cells: What result.json says of each cell, without `arrays` and `curves`.
        records: Metric records of these cells, and of the labels of their settings.
    """

    format: str
    run: str
    config_hash: str
    note: NotRequired[str]
    cells: list[dict[str, Any]]
    records: list[MetricRecord]


def owner_of(named: Mapping[str, Any]) -> Owner:
    """Return which cell, or which labels, a record or a cell's name belongs to."""
    return named["task"], named["dataset"], named["setting"], named["seed"], named["method"]


def write_partial_run(path: Path, content: PartialRun) -> None:
    """Write the file of a partial run; the same content gives the same bytes."""
    write_packed_json(path, content)


def check_partial_run(path: Path, content: Any) -> PartialRun:
    """Validate the content of a file that should be a partial run.

    Raises:
        UserError: If it is not a partial run all of whose records belong to one of its cells.
    """
    if problem := _problem(content):
        raise UserError(f"{path} is not a partial run: {problem}")
    partial_run: PartialRun = content
    return partial_run


def _problem(content: Any) -> str:
    """What is wrong with the content of a file; empty when nothing is."""
    if not isinstance(content, dict):
        return "it is not what `export-records` writes"
    if content.get("format") != FORMAT:
        return f"its format is {content.get('format')!r}, not {FORMAT!r}"
    lists = isinstance(content.get("cells"), list) and isinstance(content.get("records"), list)
    if not lists or not isinstance(content.get("config_hash"), str):
        return "it has no `cells`, `records` and `config_hash`"
    if not isinstance(content.get("note", ""), str):
        return "its `note` is not a text"
    return cells_problem(content["cells"]) or records_problem(content["records"], content["cells"])


def cells_problem(cells: list[Any]) -> str:
    """Return what is wrong with the cells of a file; empty when nothing is."""
    for cell in cells:
        try:
            ResultRecord.from_json(cell)
        except MalformedRecord as e:
            return f"a cell is not one: {e}"
        if not all(isinstance(cell.get(k), kind) for k, kind in FACTS.items()):
            return f"{owner_of(cell['cell'])} does not say where it was measured: {', '.join(FACTS)}"
    counts = Counter(owner_of(cell["cell"]) for cell in cells)
    twice = [owner for owner, count in counts.items() if count > 1]
    return f"it has the cell {twice[0]} more than once" if twice else ""


def records_problem(records: list[Any], cells: list[Any]) -> str:
    """Return what is wrong with the records of a file, given its cells; empty when nothing is."""
    owners: set[Owner] = {owner_of(cell["cell"]) for cell in cells}
    owners |= {(*owner[:3], seed, "") for owner in owners for seed in (None, owner[3])}
    for record in records:
        if not is_metric_record(record):
            return "a record is not one of a metrics file, whose values are finite numbers"
        if owner_of(record) not in owners:
            return f"it has records of {owner_of(record)}, which is not among its cells"
    return ""
