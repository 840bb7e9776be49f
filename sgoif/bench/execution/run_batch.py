"""The work of one Snakemake job: compute the cells of a batch, one after the other, in one process.

A cell that is finished under the same key is not computed again; a killed one goes on from its last saved epoch; one
that diverges, runs out of time or memory, or raises, is written down as a typed failure and the others go on.
"""

import contextlib
import importlib
import math
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sgoif.backend.collectives import active
from sgoif.bench.execution import results
from sgoif.bench.execution.inputs import Inputs
from sgoif.bench.execution.plan import Cell, Plan, shared_module
from sgoif.bench.execution.records import BatchEntry, ResultRecord
from sgoif.bench.methods import registry
from sgoif.bench.methods.base import NoisyTask, OODTask, train_plainly
from sgoif.bench.methods.plain_training import plain_run
from sgoif.bench.methods.registry import FOLDS, PLAIN, SHARED
from sgoif.errors import UserError
from sgoif.training import distributed
from sgoif.training.compute_counter import COMPUTE
from sgoif.training.learner import Diverged, preload_compiler
from sgoif.training.peak_memory import PeakMemory
from sgoif.training.session import OutOfTime, Session
from sgoif.utils import interrupt
from sgoif.utils.files import atomic_write_json, file_lock


def run_batch(plan: Plan, run_dir: Path, task: str, dataset: str, method: str, number: int, device: str) -> Path:
    """Computes the cells of a batch and writes its batch file."""
    device = pick_device(device)
    inputs = Inputs(plan, run_dir, task, dataset, device)
    code = plan.code(task, method)
    entries = []
    path = run_dir / "batches" / task / dataset / method / f"{number}.json"
    with file_lock(path.with_suffix(".lock")) if distributed.is_main_process() else contextlib.nullcontext():
        for cell in plan.batch(task, dataset, method, number):
            key = inputs.key(cell, code)
            result = results.finished(run_dir, cell, key) or compute(plan, run_dir, cell, key, inputs)
            if distributed.is_main_process():
                entries.append(BatchEntry.of(result).to_json())
    if not distributed.is_main_process():
        return path
    atomic_write_json(path, {"cells": entries}, seal=True)
    path.touch()  # Snakemake compares times, so an unchanged file must look new too
    return path


def compute(plan: Plan, run_dir: Path, cell: Cell, key: str, inputs: Inputs) -> ResultRecord | None:
    """Computes one cell and writes its result, whatever the outcome. (Of several processes the first writes.)"""
    limit = 60 * plan.config["execution"]["time_limit_minutes"]
    work = run_dir / cell.folder / "work"
    save_every = plan.config["execution"]["save_every_seconds"]
    session = Session(work, key, cell.seed, inputs.device, limit, save_every, label=str(cell))
    shared_failure = inputs.shared_failure(cell)
    arrays, facts, status, reason = {}, {}, "ok", ""
    COMPUTE.reset()
    with PeakMemory(inputs.device) as memory:
        try:
            if shared_failure:
                raise SharedRunFailed(shared_failure)
            arrays, facts = _work(cell, session, inputs, plan, run_dir)
        except (KeyboardInterrupt, UserError):
            raise
        except OSError as e:
            raise UserError(f"{cell}: {e}; the cell is not lost, run again once this is mended") from e
        except Exception as e:
            if active() and not isinstance(e, (Diverged, OutOfTime, SharedRunFailed)):
                raise  # the others have not met it and would wait forever: torchrun ends them
            status, reason, arrays = "failed", _reason(e), {}
            traceback.print_exc(file=sys.stderr)
    interrupt.raise_if_pending()  # one that became another error is no failure of the method
    if unreadable := distributed.union_over_processes(inputs.unreadable.paths):
        facts["extras"] = {**facts.get("extras", {}), "unreadable_images": float(len(unreadable))}
    passes = session.timers.total_forward_passes()
    if not distributed.is_main_process():
        return None
    session.timers.reassign("train", "compile", COMPUTE.compile_seconds)
    result = results.write(
        run_dir,
        cell,
        key,
        status,
        reason,
        arrays,
        seconds={k: round(v, 4) for k, v in session.timers.seconds.items()},
        cpu_seconds={k: round(v, 4) for k, v in session.timers.cpu_seconds.items()},
        network_passes=passes,
        shared_gpu=inputs.device.type == "cuda" and plan.config["execution"]["jobs_per_gpu"] > 1,
        peak_memory_mb=memory.mb,
        seed=cell.seed,
        shared=inputs.shared_runs(cell),
        config=plan.cell_config(cell),
        **{"extras": {}, "curves": {}, **facts},
    )
    if status == "ok":
        session.clear()
    return result


class SharedRunFailed(RuntimeError):
    """A run this method reads has failed itself."""


def _reason(error: Exception) -> str:
    if isinstance(error, (Diverged, OutOfTime, SharedRunFailed)):
        return f"{type(error).__name__}: {error}"
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return "OutOfMemory: the GPU's memory did not suffice"
    if isinstance(error, MemoryError):
        return "OutOfMemory: the machine's memory did not suffice"
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _work(cell: Cell, session: Session, inputs: Inputs, plan: Plan, run_dir: Path):
    task = inputs.ood_task(cell, session) if cell.task == "ood" else inputs.noisy_task(cell, session)
    if cell.method in SHARED:
        preload_compiler(task.recipe, inputs.device)
        return _shared_run(cell, task, inputs, run_dir)
    name, _ = registry.split_variant(cell.method)
    method = registry.load(registry.task_kind(cell.task), name)(**plan.params(cell.method))
    if not method.reads_plain:  # it trains a network of its own
        preload_compiler(task.recipe, inputs.device)
    if cell.task == "ood":
        return _measure_ood(method, task, inputs)
    return _detect(method, task, inputs, retrain=plan.retrains(cell))


def _shared_run(cell: Cell, task, inputs: Inputs, run_dir: Path):
    if cell.method == PLAIN:
        arrays, curves = plain_run(task, inputs.test, run_dir / cell.folder)
        return {**arrays, "ids": inputs.train_ids}, {"curves": curves}
    folds = importlib.import_module(shared_module(FOLDS))  # by name: only the folds themselves depend on its code
    return {**folds.fold_probabilities(task), "ids": inputs.train_ids}, {}


def _detect(method, task: NoisyTask, inputs: Inputs, retrain: bool):
    session = task.session
    with session.timer("score"):  # what a method does not book itself is scoring
        found = method.detect(task)
    scores = np.asarray(found.scores, dtype=np.float64)
    _check_scores(scores, len(task.train), method.name)
    arrays = {"scores": scores, "ids": inputs.train_ids}
    arrays |= {f"variant:{k}": np.asarray(v, dtype=np.float64) for k, v in found.variants.items()}
    arrays |= {f"trace:{k}": np.asarray(v) for k, v in found.traces.items()}
    for name in ("epoch_scores", "test_logits"):
        if getattr(found, name) is not None:
            arrays[name] = np.asarray(getattr(found, name), dtype=np.float32)
    if found.remove is not None:
        arrays["remove"] = distributed.broadcast_array(np.asarray(found.remove, dtype=bool))
        if found.test_logits is None and retrain:
            arrays["test_logits"] = _retrain(task, arrays["remove"])
    return arrays, {"extras": _numbers(found.extras), "curves": found.curves}


def _retrain(task: NoisyTask, remove: np.ndarray) -> np.ndarray:
    """Test logits of a network trained, for the same number of steps, without the removed examples."""
    kept = np.flatnonzero(~remove)
    if len(kept) < task.n_classes:
        raise ValueError(f"the removal rule leaves {len(kept)} of {len(remove)} examples")
    learner = train_plainly(task, kept, phase="retrain", timer="retrain")
    with task.session.timer("retrain"):
        return task.predict(learner.net, task.test)[0].cpu().numpy()


def _measure_ood(method, task: OODTask, inputs: Inputs):
    session = task.session
    with session.timer("fit"):
        method.fit(task)
    arrays, images = {}, 0
    for name, test in {"id_test": inputs.test, **inputs.ood_sets()}.items():
        with session.timer("score"):
            scores = method.score(test).double().cpu().numpy()
        _check_scores(scores, len(test), f"{method.name} on {name}")
        arrays[name] = scores
        images += len(test)
    with session.timer("accuracy"):
        arrays["id_logits"] = method.logits(inputs.test).float().cpu().numpy()
    extras = {"seconds_per_image": session.timers.seconds["score"] / images, **method.extras()}
    return arrays, {"extras": _numbers(extras)}


def _check_scores(scores: np.ndarray, n: int, what: str) -> None:
    if scores.shape != (n,):
        raise ValueError(f"{what}: scores of shape {scores.shape} for {n} examples")
    if not np.isfinite(scores).all():
        raise ValueError(f"{what}: {int((~np.isfinite(scores)).sum())} of {n} scores are not finite")


def _numbers(extras: dict[str, Any]) -> dict[str, float]:
    """Extras as floats. One that is not finite is not a number worth a column, and JSON has no way to write it."""
    return {k: float(v) for k, v in extras.items() if math.isfinite(v)}


def pick_device(wanted: str) -> torch.device:
    if wanted == "cuda" and not torch.cuda.is_available():
        raise UserError("execution.device: cuda was asked for, but torch sees no GPU here (see `make doctor`)")
    return torch.device("cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu")
