"""Merges partial runs into one run: its metrics, summary, tables, ledger, figures and report.

Nothing is computed again. A cell that no partial run holds is "not run yet", and what has no cell at all is left out
and named (`measured_part`). results/<run>/pieces.json says which cell came from which file:
[{file, config_hash, note, cells: [facts of a cell]}]. The provenance of the run is read from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sgoif.bench.config import load_config, walk
from sgoif.bench.evaluation.evaluate import arrange_records
from sgoif.bench.evaluation.metric_record import MetricRecord, metrics_file
from sgoif.bench.evaluation.summary import summarise
from sgoif.bench.evaluation.tidy_records import write_records
from sgoif.bench.execution.plan import TASKS, Cell, Plan
from sgoif.bench.execution.provenance import PIECES
from sgoif.bench.figures import write_figures
from sgoif.bench.methods.registry import SHARED
from sgoif.bench.paper.comparison import write_ledger
from sgoif.bench.report import write_report
from sgoif.bench.sharing.fewer_ood_sets import covers, fewer_ood_sets
from sgoif.bench.sharing.measured_part import NOT_YET, measured_part
from sgoif.bench.sharing.partial_run import Owner, PartialRun, owner_of
from sgoif.bench.sharing.records_file import read_parts
from sgoif.bench.tables import write_tables
from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_json


@dataclass
class Merged:
    """What several partial runs hold together; where two hold a cell, the later one counts.

    Attributes:
        records: Metric records by cell, and by labels of a setting.
        file_of: Cell -> number of the partial run that it is taken from.
    """

    records: dict[Owner, list[MetricRecord]] = field(default_factory=dict)
    file_of: dict[Owner, int] = field(default_factory=dict)


def merge_records(files: Sequence[Path], config_file: Path, results: Path) -> Path:
    """Write results/<run> from partial runs.

    Args:
        files: Files of `export_records` or `pack_records`; where two hold the same cell, the later one counts.
        config_file: The configuration that the cells were measured with.
        results: Folder of all runs.

    Returns:
        The folder of the run.

    Raises:
        UserError: If a file is not a partial run, a cell does not fit the configuration, or the run has cells of its
            own. Nothing is written then.
    """
    parts = read_parts(files)
    names, partial_runs = [name for name, _ in parts], [one for _, one in parts]
    planned = Plan(_in_order(load_config(config_file, skip_missing=False)))
    run_dir = results / planned.config["run"]
    if (run_dir / "cells").is_dir():
        raise UserError(f"{run_dir} has cells of its own, which would not count any more; merge in another checkout")
    for name, one in parts:
        for cell in one["cells"]:
            _check_cell(planned, cell, name, config_file)
    merged = collect(partial_runs)
    plan = Plan(_in_order(measured_part(planned.config, merged.file_of)))
    check_draws(plan, partial_runs, merged)
    write_metrics(plan, run_dir, merged)
    write_partial_runs(run_dir, names, partial_runs, merged)
    atomic_write_json(run_dir / "config.json", plan.config)
    render(run_dir, plan.config)
    return run_dir


def collect(partial_runs: Sequence[PartialRun]) -> Merged:
    """Take every cell and its records from the last partial run that holds it."""
    merged = Merged()
    for number, one in enumerate(partial_runs):
        for cell in one["cells"]:
            merged.file_of[owner_of(cell["cell"])] = number
        own: dict[Owner, list[MetricRecord]] = {}
        for record in one["records"]:
            own.setdefault(owner_of(record), []).append(record)
        merged.records |= own
    return merged


def check_draws(plan: Plan, partial_runs: Sequence[PartialRun], merged: Merged) -> None:
    """Refuse settings in which some cells saw noise of their own seed and others the one draw that all seeds shared.

    Older partial runs have one draw for all seeds. Methods are compared seed by seed, so they must have seen the same
    labels.

    Raises:
        UserError: If a setting mixes both.
    """
    seen: dict[tuple[str, str, str], tuple[bool, Cell]] = {}
    for number, one in enumerate(partial_runs):
        for found in one["cells"]:
            cell = Cell(**found["cell"])
            if cell.task == "ood" or not plan.draw(cell) or merged.file_of[owner_of(found["cell"])] != number:
                continue
            shares = shares_draw(plan, found)
            other_shares, other = seen.setdefault((cell.task, cell.dataset, cell.setting), (shares, cell))
            if shares != other_shares:
                first, second = (cell, other) if shares else (other, cell)
                raise UserError(
                    f"{first} was measured on noise that all seeds shared, {second} on noise of its own seed; "
                    "they cannot be compared: merge them apart, or measure the first again"
                )


def shares_draw(plan: Plan, found: Mapping[str, Any]) -> bool:
    """Tell whether a cell saw the noise of draw 0, though its seed has a draw of its own: all seeds shared one."""
    cell = Cell(**found["cell"])
    if cell.task == "ood" or not plan.draw(cell):
        return False
    return bool(
        found["config"].get("noise", {}).get("seed", 0) == plan.noise(cell.dataset, cell.setting).get("seed", 0)
    )


def write_metrics(plan: Plan, run_dir: Path, merged: Merged) -> None:
    """Write metrics/<task>/<dataset>.json as `evaluate` would."""
    for task in TASKS:
        for dataset in plan.datasets(task):
            own = {owner[2:]: records for owner, records in merged.records.items() if owner[:2] == (task, dataset)}
            shared = {setting for setting, seed, method in own if seed is None and not method}
            own = {name: found for name, found in own.items() if name[2] or name[1] is None or name[0] not in shared}
            seeds = (None, *plan.seeds(task, dataset))  # without those of a ranking by chance alone
            own = {name: found for name, found in own.items() if name[1] in seeds}
            if task == "ood":
                own = {name: fewer_ood_sets(found, plan.spec(task, dataset)) for name, found in own.items()}
            if own or task != "tuning":
                records = arrange_records(plan, task, dataset, own, NOT_YET)
                atomic_write_json(metrics_file(run_dir, task, dataset), records, seal=True)


def write_partial_runs(run_dir: Path, names: Sequence[str], partial_runs: Sequence[PartialRun], merged: Merged) -> None:
    """Write pieces.json: which cells were taken from which file."""
    listed = []
    for number, (name, one) in enumerate(zip(names, partial_runs, strict=True)):
        cells = [cell for cell in one["cells"] if merged.file_of[owner_of(cell["cell"])] == number]
        if cells:
            facts = [{k: v for k, v in cell.items() if k != "config"} for cell in cells]  # config.json has it
            about = {"file": name, "config_hash": one["config_hash"], "note": one.get("note", "")}
            listed.append({**about, "cells": facts})
    atomic_write_json(run_dir / PIECES, listed, seal=True)


def render(run_dir: Path, config: dict[str, Any]) -> None:
    """Write everything that is made from metrics; curves are not exported, so what needs them is not drawn."""
    summarise(run_dir, config)
    write_records(run_dir, config)
    write_tables(run_dir, config)
    write_ledger(run_dir, config)
    write_figures(run_dir, config)
    write_report(run_dir, config)


def _in_order(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration in the order of config.json, as every step reads it."""
    ordered: dict[str, Any] = json.loads(json.dumps(config, sort_keys=True))
    return ordered


def _check_cell(plan: Plan, found: Mapping[str, Any], name: str, config_file: Path) -> None:
    """Refuse a cell that the configuration does not have, or has with other parameters than it was measured with."""
    cell = Cell(**found["cell"])
    known: dict[str, Sequence[Any]] = {"task": TASKS, "dataset": plan.datasets(cell.task) if cell.task in TASKS else ()}
    if cell.dataset in known["dataset"]:
        known["setting"] = list(plan.settings(cell.task, cell.dataset))
        known["seed"] = plan.seeds(cell.task, cell.dataset)
        known["method"] = [*SHARED, *plan.methods(cell.task, cell.dataset)]
    for what, names in known.items():
        value = getattr(cell, what)
        if value not in names:
            there = ", ".join(map(str, names))
            raise UserError(f"{name}: {cell}: {config_file} has no {what} {value!r}; there are: {there}")
    planned = plan.cell_config(cell)
    if shares_draw(plan, found):
        planned["noise"] = plan.noise(cell.dataset, cell.setting)
    for key, there, here in _differences(found["config"], planned):
        raise UserError(
            f"{name}: {cell} was measured with {key} = {there}, but {config_file} says {here}; "
            "merge it under the configuration it was measured with"
        )


def _differences(measured: Mapping[str, Any], planned: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """(key, measured, planned) where a cell's configurations differ.

    A key of the recipe that only one of them has did not exist at the other commit and is not compared. A cell that was
    not retrained fits a plan that retrains it, also with the same number for all: what it found is the same, and it
    has no accuracy.
    """
    there = dict(walk(measured))
    here = dict(walk(planned))
    for key in sorted(there.keys() | here.keys()):
        if (key == "retrain" and there.get(key) is False) or (key == "retrain_same" and key not in there):
            continue
        in_both = key in there and key in here
        if key in ("near", "far") and covers(there.get(key), here.get(key)):  # the means follow (`fewer_ood_sets`)
            continue
        if (in_both or not key.startswith("recipe.")) and there.get(key) != here.get(key):
            yield key, there.get(key, "nothing"), here.get(key, "nothing")
