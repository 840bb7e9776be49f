"""A run made of pieces that were carried home: its metrics, summary, tables, ledger, figures and report.

Nothing is computed again; what no piece holds is "not run". results/<run>/pieces.json says which cell came with which
piece: [{file, config_hash, note, cells: [facts of a cell]}]. `publish` and the report take the run's origin from it.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sgoif.bench import figures
from sgoif.bench.config import load_config, walk
from sgoif.bench.evaluation.evaluate import arrange_records
from sgoif.bench.evaluation.metric_record import is_metric_record, metrics_file
from sgoif.bench.execution.plan import TASKS, Cell, Plan
from sgoif.bench.execution.provenance import PIECES
from sgoif.bench.execution.records import MalformedRecord, ResultRecord
from sgoif.bench.methods.registry import SHARED
from sgoif.bench.sharing.export import FORMAT
from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_json

FACTS = {"commit": str, "created": str, "hardware": dict, "versions": dict, "config": dict}
Owner = tuple[str, str, str, int | None, str]  # task, dataset, setting, seed, method; of labels: seed None, method ""


def adopt(files: Sequence[Path], config_file: Path, results: Path) -> Path:
    """Writes results/<run> from pieces, a later one winning where two hold the same cell; returns its folder."""
    pieces = [read_piece(Path(path)) for path in files]
    owners = {_owner(r) for piece in pieces for r in piece["records"]}
    plan = Plan(_configuration(config_file, {owner[:2] for owner in owners}))
    run_dir = results / plan.config["run"]
    if (run_dir / "cells").is_dir():
        raise UserError(f"{run_dir} has cells of its own, which would not count any more; adopt in another checkout")
    found: dict[Owner, list[dict[str, Any]]] = {}
    holder: dict[Owner, int] = {}
    for number, piece in enumerate(pieces):
        for cell in piece["cells"]:
            _check(plan, cell, files[number], config_file)
            holder[_owner(cell["cell"])] = number
        own: dict[Owner, list[dict[str, Any]]] = {}
        for record in piece["records"]:
            own.setdefault(_owner(record), []).append(record)
        found |= own
    for task in TASKS:
        for dataset in plan.datasets(task):
            mine = {owner[2:]: records for owner, records in found.items() if owner[:2] == (task, dataset)}
            if mine or task != "tuning":
                records = arrange_records(plan, task, dataset, mine)
                atomic_write_json(metrics_file(run_dir, task, dataset), records, seal=True)
    kept = [[c for c in piece["cells"] if holder[_owner(c["cell"])] == n] for n, piece in enumerate(pieces)]
    told = [
        {
            "file": Path(path).name,
            "config_hash": piece["config_hash"],
            "note": piece.get("note", ""),
            "cells": [_without_config(c) for c in cells],
        }
        for path, piece, cells in zip(files, pieces, kept, strict=True)
        if cells
    ]
    atomic_write_json(run_dir / PIECES, told, seal=True)
    atomic_write_json(run_dir / "config.json", plan.config)
    _render(run_dir, plan.config)
    return run_dir


def read_piece(path: Path) -> dict[str, Any]:
    """The piece in a file; refused unless it is one, whole, and every record belongs to one of its cells."""
    try:
        piece = json.loads(gzip.decompress(path.read_bytes()))
    except FileNotFoundError:
        raise UserError(f"no piece {path}; `carry` writes it") from None
    except (OSError, EOFError, zlib.error, ValueError) as e:
        raise UserError(f"{path} is not a readable piece ({e}); carry it again") from None
    if wrong := "it is not what `carry` writes" if not isinstance(piece, dict) else _odd(piece):
        raise UserError(f"{path} is not a piece of a run: {wrong}")
    return piece


def _odd(piece: Mapping[str, Any]) -> str:
    if piece.get("format") != FORMAT:
        return f"its format is {piece.get('format')!r}, not {FORMAT!r}"
    cells, records = piece.get("cells"), piece.get("records")
    if not isinstance(cells, list) or not isinstance(records, list) or not isinstance(piece.get("config_hash"), str):
        return "it has no `cells`, `records` and `config_hash`"
    if not isinstance(piece.get("note", ""), str):
        return "its `note` is not a text"
    for cell in cells:
        try:
            ResultRecord.from_json(cell)
        except MalformedRecord as e:
            return f"a cell is not one: {e}"
        if not all(isinstance(cell.get(k), kind) for k, kind in FACTS.items()):
            return f"{_owner(cell['cell'])} does not say where it was measured: {', '.join(FACTS)}"
    owners = {_owner(cell["cell"]) for cell in cells}
    owners |= {(*owner[:3], None, "") for owner in owners}
    for record in records:
        if not is_metric_record(record):
            return "a record is not one of a metrics file"
        if _owner(record) not in owners:
            return f"it has records of {_owner(record)}, which is not among its cells"
    return ""


def _owner(named: Mapping[str, Any]) -> Owner:
    return named["task"], named["dataset"], named["setting"], named["seed"], named["method"]


def _configuration(path: Path, held: set[tuple[str, str]]) -> dict[str, Any]:
    """The configuration as on a machine that has the datasets which the pieces hold, and else what this one has."""
    config, whole = load_config(path), load_config(path, skip_missing=False)
    for task in ("noisy", "ood"):
        there = config[task]
        config[task] = {d: spec for d, spec in whole[task].items() if d in there or (task, d) in held}
    config["not_run"] = [gap for gap in config["not_run"] if (gap["task"], gap["dataset"]) not in held]
    return json.loads(json.dumps(config, sort_keys=True))  # in the order of config.json, which every step reads


def _check(plan: Plan, found: Mapping[str, Any], piece: Path, config_file: Path) -> None:
    """Refuses a cell that the configuration does not know, or knows with other parameters than it was measured with."""
    cell = Cell(**found["cell"])
    known = {"task": TASKS, "dataset": plan.datasets(cell.task) if cell.task in TASKS else ()}
    if cell.dataset in known["dataset"]:
        about = (cell.task, cell.dataset)
        known["setting"], known["seed"] = plan.settings(*about), plan.seeds(*about)
        known["method"] = [*SHARED, *plan.methods(*about)]
    for what, names in known.items():
        name = getattr(cell, what)
        if name not in names:
            there = ", ".join(map(str, names))
            raise UserError(f"{piece}: {cell}: {config_file} has no {what} {name!r}; there are: {there}")
    for key, there, here in _differences(found["config"], plan.cell_config(cell)):
        raise UserError(
            f"{piece}: {cell} was measured with {key} = {there}, but {config_file} says {here}; "
            "adopt it under the configuration it was measured with"
        )


def _differences(measured: Mapping[str, Any], asked: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """(key, measured, asked) where a cell's configurations differ.

    A key of the recipe that one of them lacks was not known at that commit: no difference that can be told here.
    """
    there, here = dict(walk(measured)), dict(walk(asked))
    for key in sorted(there.keys() | here.keys()):
        both = key in there and key in here
        if (both or not key.startswith("recipe.")) and there.get(key) != here.get(key):
            yield key, there.get(key, "nothing"), here.get(key, "nothing")


def _without_config(cell: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in cell.items() if k != "config"}  # it is that of config.json


def _render(run_dir: Path, config: dict[str, Any]) -> None:
    """Everything that is made of metrics; figures that draw curves are left out, since nobody carried those."""
    from sgoif.bench.evaluation.summary import summarise
    from sgoif.bench.paper.comparison import write_ledger
    from sgoif.bench.report import write_report
    from sgoif.bench.tables import write_tables

    summarise(run_dir, config)
    write_tables(run_dir, config)
    write_ledger(run_dir, config)
    for kind in dict.fromkeys(one.kind for one in figures.planned(config) if not one.from_curves):
        figures.write_figures(run_dir, config, kind)
    write_report(run_dir, config)
