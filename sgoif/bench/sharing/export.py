"""A piece of a run that fits in one small file: the records of every finished cell and where they come from.

For a machine that is lent for minutes and lets only small files go: scores, checkpoints and the truth stay there.
`adopt` makes a run of several pieces. A piece is a gzipped JSON file
    {format, run, config_hash, note, cells: [result.json without arrays and curves], records: [as in metrics/*.json]}
"""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from sgoif.bench.config.values import digest
from sgoif.bench.data.holdout import held_out_file, hold_out
from sgoif.bench.evaluation.cell_result import CellResult, read_cell
from sgoif.bench.evaluation.evaluate import CellEvaluator
from sgoif.bench.execution.plan import TASKS, Plan
from sgoif.bench.execution.records import read_batch
from sgoif.bench.methods.registry import SHARED
from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_bytes

FORMAT = "sgoif.bench piece 1"
LEFT_BEHIND = ("arrays", "curves")  # of a result.json: they describe or draw what is not carried


def carry(plan: Plan, run_dir: Path, out: Path, commit: str = "", note: str = "") -> tuple[dict[str, Any], list[str]]:
    """Writes the piece; returns it, and what was left out because it is damaged or of other code, one line each.

    `commit` is said of cells that do not know theirs: a machine that got the project without git cannot tell. `note`:
    what a reader of the provenance should know about how the piece was measured.
    """
    left_out: list[str] = []
    root = Path(plan.config["data"]["root"])
    judges = [
        CellEvaluator(
            run_dir, root, task, dataset, plan.spec(task, dataset), finished(plan, run_dir, task, dataset, left_out)
        )
        for task in TASKS
        for dataset in plan.datasets(task)
    ]
    for dataset in dict.fromkeys(judge.dataset for judge in judges if judge.cells):
        if not held_out_file(run_dir, dataset).exists():  # no cell has needed it; accuracy leaves these images out
            hold_out(root, run_dir, dataset, plan.held_out(dataset))
    facts, records = [], []
    for judge, name, found in _judged(judges):
        if isinstance(found, str):
            left_out.append(found)
            continue
        records += found
        if name in judge.cells:
            result = judge.cells[name].result
            kept = {k: v for k, v in result.to_json().items() if k not in LEFT_BEHIND}
            facts.append({**kept, "commit": result.commit or commit})
    told = {(f["cell"]["task"], f["cell"]["dataset"], f["cell"]["setting"]) for f in facts}
    records = [r for r in records if (r["task"], r["dataset"], r["setting"]) in told]  # labels of nothing are not told
    if not facts:
        raise UserError(f"{run_dir} has no finished cell to carry" + "".join(f"; {line}" for line in left_out[:1]))
    piece = {
        "format": FORMAT,
        "run": plan.config["run"],
        "config_hash": digest(plan.config),
        "note": note,
        "cells": facts,
        "records": records,
    }
    text = json.dumps(piece, sort_keys=True, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    atomic_write_bytes(out, gzip.compress(text.encode(), mtime=0))
    return piece, left_out


def finished(plan: Plan, run_dir: Path, task: str, dataset: str, left_out: list[str]) -> Iterator[CellResult]:
    """The plan's cells that have a trustworthy result, those of batches that were cut off too.

    A batch file vouches for the cells it lists. A cell that none speaks of has to have the key that this code, data
    and configuration give, as when its batch goes on. What is not to be trusted is told in `left_out`.
    """
    import torch

    from sgoif.bench.execution.inputs import Inputs

    inputs = Inputs(plan, run_dir, task, dataset, torch.device("cpu"))
    for method in [*SHARED, *plan.methods(task, dataset)]:
        for number in range(plan.n_batches(task, dataset)):
            batch = run_dir / "batches" / task / dataset / method / f"{number}.json"
            try:
                listed = {entry.path: entry for entry in read_batch(batch)} if batch.is_file() else {}
            except UserError:  # a damaged batch file vouches for nothing
                listed = {}
            for planned in plan.batch(task, dataset, method, number):
                entry = listed.get(planned.folder.as_posix())
                if entry is None and not (run_dir / planned.folder / "result.json").is_file():
                    continue  # not computed yet
                try:
                    cell = read_cell(run_dir / planned.folder, batch)
                    if cell.result.cell != planned:
                        raise cell.damaged("result.json is that of another cell")
                    if entry is None or not cell.matches(entry):
                        _check_key(cell, inputs.key(planned, plan.code(task, method)))
                except (UserError, FileNotFoundError) as e:
                    left_out.append(str(e))
                else:
                    yield cell


def _check_key(cell: CellResult, key: str) -> None:
    if cell.result.key != key:
        why = "no batch file speaks of it, and its key is not that of the present code, data and configuration"
        raise UserError(f"{cell.directory}: {why}. Run again: it is computed anew")


# ------------------------------------------------------------------------------------------- in several processes

_JUDGES: list[CellEvaluator] = []  # of a worker: handed over once, not with every cell


def _judged(judges: list[CellEvaluator]) -> Iterator[tuple[CellEvaluator, tuple, list[dict] | str]]:
    """Every name of every judge with its records, or with what is wrong with it."""
    todo = [(number, name) for number, judge in enumerate(judges) for name in judge.names()]
    if not todo:
        return
    spawn = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    with ProcessPoolExecutor(min(len(os.sched_getaffinity(0)), len(todo)), spawn, _start, (judges,)) as pool:
        for (number, name), found in zip(todo, pool.map(_judge, todo), strict=True):
            yield judges[number], name, found


def _start(judges: list[CellEvaluator]) -> None:
    _JUDGES.extend(judges)


def _judge(one: tuple[int, tuple]) -> list[dict[str, Any]] | str:
    number, name = one
    try:
        return _JUDGES[number].records(name)
    except UserError as e:
        return str(e)
