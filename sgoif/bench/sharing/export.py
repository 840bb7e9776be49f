"""Exports the records of every finished cell of a run into one small file, a partial run.

Use it on a machine that is available for minutes and lets only small files out: scores, checkpoints and the truth stay
there. The cells are evaluated here, outside Snakemake, so this step reads the truth. `merge` makes a run of several
partial runs.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from sgoif.bench.config.values import digest
from sgoif.bench.data.holdout import held_out_file, hold_out
from sgoif.bench.evaluation.cell_result import CellResult, read_cell
from sgoif.bench.evaluation.evaluate import CellEvaluator
from sgoif.bench.evaluation.metric_record import MetricRecord, Name
from sgoif.bench.execution.plan import TASKS, Cell, Plan
from sgoif.bench.execution.records import BatchEntry, read_batch
from sgoif.bench.methods.registry import SHARED
from sgoif.bench.sharing.partial_run import FORMAT, PartialRun, owner_of, write_partial_run
from sgoif.errors import UserError

FEW = 12  # so many cells are evaluated in this process: to start others would take longer
NOT_EXPORTED = ("arrays", "curves")  # keys of a result.json that describe files which are not exported


def export_records(
    plan: Plan, run_dir: Path, out: Path, commit: str = "", note: str = "", published: Collection[Cell] = ()
) -> tuple[PartialRun, list[str]]:
    """Evaluate all finished cells and write their records to one file.

    Args:
        plan: The run's plan.
        run_dir: Folder of the run.
        out: File to write.
        commit: Commit of cells that do not know theirs, because they were computed without git.
        note: How the cells were measured, for readers of the provenance.
        published: Cells whose records are elsewhere and stay as they are. They were computed here once more, because
            others read them.

    Returns:
        The content of the file; and one line for every cell that was left out because it is damaged or was computed by
        other code.

    Raises:
        UserError: If there is no finished cell.
    """
    left_out: list[str] = []
    evaluators = _evaluators(plan, run_dir, left_out)
    _hold_out_missing(plan, run_dir, evaluators)
    cells, records = _collect(evaluators, commit, published, left_out)
    if not cells:
        which = "to export that is not published" if published else "to export"
        raise UserError(f"{run_dir} has no finished cell {which}" + "".join(f"; {line}" for line in left_out[:1]))
    content: PartialRun = {
        "format": FORMAT,
        "run": plan.config["run"],
        "config_hash": digest(plan.config),
        "note": note,
        "cells": cells,
        "records": records,
    }
    write_partial_run(out, content)
    return content, left_out


def finished_cells(plan: Plan, run_dir: Path, task: str, dataset: str, left_out: list[str]) -> Iterator[CellResult]:
    """Yield the planned cells that have a trustworthy result, also those of interrupted batches.

    A cell that a batch file lists is trusted. Any other cell must have the key of the present code, data and
    configuration, as when its batch is resumed.

    Args:
        plan: The run's plan.
        run_dir: Folder of the run.
        task: "noisy", "tuning" or "ood".
        dataset: Name of the dataset.
        left_out: Gets one line for every cell that is not trusted.
    """
    import torch

    from sgoif.bench.execution.inputs import Inputs

    inputs = Inputs(plan, run_dir, task, dataset, torch.device("cpu"))
    for method in [*SHARED, *plan.methods(task, dataset)]:
        for number in range(plan.n_batches(task, dataset)):
            batch = run_dir / "batches" / task / dataset / method / f"{number}.json"
            listed = _listed(batch)
            for planned in plan.batch(task, dataset, method, number):
                entry = listed.get(planned.folder.as_posix())
                if entry is None and not (run_dir / planned.folder / "result.json").is_file():
                    continue  # not computed yet
                try:
                    cell = _read_planned(run_dir, planned, batch)
                    if entry is None or not cell.matches(entry):
                        _check_key(cell, inputs.key(planned, plan.code(task, method)))
                except (UserError, FileNotFoundError) as e:
                    left_out.append(str(e))
                else:
                    yield cell


def _listed(batch: Path) -> dict[str, BatchEntry]:
    """Folder -> entry of a batch file; empty if the file is missing or damaged."""
    try:
        return {entry.path: entry for entry in read_batch(batch)} if batch.is_file() else {}
    except UserError:
        return {}


def _read_planned(run_dir: Path, planned: Cell, batch: Path) -> CellResult:
    cell = read_cell(run_dir / planned.folder, batch)
    if cell.result.cell != planned:
        raise cell.damaged("result.json is that of another cell")
    return cell


def _check_key(cell: CellResult, key: str) -> None:
    if cell.result.key != key:
        why = "no batch file lists it, and its key is not that of the present code, data and configuration"
        raise UserError(f"{cell.directory}: {why}. Run again: it is computed anew")


def _evaluators(plan: Plan, run_dir: Path, left_out: list[str]) -> list[CellEvaluator]:
    root = Path(plan.config["data"]["root"])
    return [
        CellEvaluator(
            run_dir, root, task, dataset, plan.spec(task, dataset),
            finished_cells(plan, run_dir, task, dataset, left_out),
        )
        for task in TASKS
        for dataset in plan.datasets(task)
    ]  # fmt: skip


def _hold_out_missing(plan: Plan, run_dir: Path, evaluators: Sequence[CellEvaluator]) -> None:
    """Set test images aside where no cell has needed it yet; accuracy leaves these images out."""
    for dataset in dict.fromkeys(evaluator.dataset for evaluator in evaluators if evaluator.cells):
        if not held_out_file(run_dir, dataset).exists():
            hold_out(Path(plan.config["data"]["root"]), run_dir, dataset, plan.held_out(dataset))


def _collect(
    evaluators: Sequence[CellEvaluator], commit: str, published: Collection[Cell], left_out: list[str]
) -> tuple[list[dict[str, Any]], list[MetricRecord]]:
    """Cells that are not published yet, and their metric records; labels that none of them has seen are dropped."""
    cells: list[dict[str, Any]] = []
    records: list[MetricRecord] = []
    for evaluator, name, found in _evaluated(evaluators):
        if isinstance(found, str):
            left_out.append(found)
            continue
        records += found
        if name in evaluator.cells:
            result = evaluator.cells[name].result
            if result.cell in published:
                continue
            kept = {k: v for k, v in result.to_json().items() if k not in NOT_EXPORTED}
            cells.append({**kept, "commit": result.commit or commit})
    owners = [owner_of(c["cell"]) for c in cells]
    known = {*owners, *((*owner[:3], seed, "") for owner in owners for seed in (None, owner[3]))}
    return cells, [r for r in records if owner_of(r) in known]


# ------------------------------------------------------------------------------------------- in several processes

_WORKER_EVALUATORS: list[CellEvaluator] = []  # of a worker process: sent once, not with every cell


def _evaluated(evaluators: Sequence[CellEvaluator]) -> Iterator[tuple[CellEvaluator, Name, list[MetricRecord] | str]]:
    """Every name of every evaluator with its records, or with the message of what is wrong with it."""
    todo = [(number, name) for number, evaluator in enumerate(evaluators) for name in evaluator.names()]
    if not todo:
        return
    if len(todo) <= FEW:
        for number, name in todo:
            yield evaluators[number], name, _records(evaluators[number], name)
        return
    workers = min(len(os.sched_getaffinity(0)), len(todo))
    spawn = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    with ProcessPoolExecutor(workers, spawn, _start_worker, (evaluators,)) as pool:
        for (number, name), found in zip(todo, pool.map(_evaluate_one, todo), strict=True):
            yield evaluators[number], name, found


def _start_worker(evaluators: Sequence[CellEvaluator]) -> None:
    _WORKER_EVALUATORS.extend(evaluators)


def _evaluate_one(numbered: tuple[int, Name]) -> list[MetricRecord] | str:
    number, name = numbered
    return _records(_WORKER_EVALUATORS[number], name)


def _records(evaluator: CellEvaluator, name: Name) -> list[MetricRecord] | str:
    try:
        return evaluator.records(name)
    except UserError as e:
        return str(e)
