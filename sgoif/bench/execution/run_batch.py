"""Computes the cells of a batch, one after the other in one process: the work of one Snakemake job.

A cell that is finished under the same key is not computed again, and one that was interrupted resumes from its last
saved epoch. A cell that diverges, runs out of time or memory, or raises, is recorded as failed with the reason, and the
others are computed.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import re
import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sgoif.backend.collectives import active
from sgoif.bench.execution import results
from sgoif.bench.execution.inputs import Inputs
from sgoif.bench.execution.plan import Cell, Plan, shared_module
from sgoif.bench.execution.records import BatchEntry, ResultRecord
from sgoif.bench.execution.shared_cells import take_finished
from sgoif.bench.methods import registry
from sgoif.bench.methods.base import Detection
from sgoif.bench.methods.plain_training import plain_run, train_plainly
from sgoif.bench.methods.registry import FOLDS, PLAIN, SHARED
from sgoif.bench.methods.tasks import NoisyTask, OODTask
from sgoif.errors import UserError
from sgoif.training import distributed
from sgoif.training.cost.compute_counter import COMPUTE
from sgoif.training.cost.peak_memory import PeakMemory
from sgoif.training.learner import Diverged, preload_compiler
from sgoif.training.session import OutOfTime, Session
from sgoif.utils import interrupt
from sgoif.utils.device import pick_device
from sgoif.utils.files import atomic_write_json, file_lock

VARIANT_NAME = re.compile("[a-z0-9_]+")


@dataclass(frozen=True)
class Outcome:
    """What computing a cell gave.

    Attributes:
        arrays: The arrays of arrays.npz by name.
        extras: Numbers that the method reported.
        curves: Values by epoch that the method reported.
        failure: Why there are no arrays; empty if the cell was computed.
    """

    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    extras: dict[str, float] = field(default_factory=dict)
    curves: dict[str, Any] = field(default_factory=dict)
    failure: str = ""


def run_batch(plan: Plan, run_dir: Path, task: str, dataset: str, method: str, number: int, device: str) -> Path:
    """Compute the cells of a batch and write its batch file.

    Args:
        plan: The cells of the run.
        run_dir: Folder of the run.
        task: "noisy", "tuning" or "ood".
        dataset: Name of the dataset.
        method: Name of the method or shared run.
        number: Number of the batch, from 0.
        device: "auto", "cpu" or "cuda".

    Returns:
        The path of the batch file.

    Raises:
        UserError: If something outside the method is wrong, such as a damaged input or a full disk.
    """
    on = pick_device(device, "execution.device", "see `make doctor`")
    inputs = Inputs(plan, run_dir, task, dataset, on)
    code = plan.code(task, method)
    entries = []
    path = run_dir / "batches" / task / dataset / method / f"{number}.json"
    with file_lock(path.with_suffix(".lock")) if distributed.is_main_process() else contextlib.nullcontext():
        for cell in plan.batch(task, dataset, method, number):
            key = inputs.key(cell, code)
            result = results.finished(run_dir, cell, key)
            if result is None and not active():  # several processes would have to agree on what they find
                result = take_finished(run_dir, cell, key)
            if result is None:
                result = compute(plan, run_dir, cell, key, inputs)
            if result is not None:
                entries.append(BatchEntry.of(result).to_json())
    if not distributed.is_main_process():
        return path
    atomic_write_json(path, {"cells": entries}, seal=True)
    path.touch()  # Snakemake compares times, so an unchanged file must look new too
    return path


def compute(plan: Plan, run_dir: Path, cell: Cell, key: str, inputs: Inputs) -> ResultRecord | None:
    """Compute one cell and write its result, whatever the outcome.

    Returns:
        The result; None in all but the main one of several processes, which writes it.

    Raises:
        UserError: If something outside the method is wrong.
    """
    execution = plan.config["execution"]
    limit = 60 * execution["time_limit_minutes"]
    work = run_dir / cell.folder / "work"
    session = Session(work, key, cell.seed, inputs.device, limit, execution["save_every_seconds"], label=str(cell))
    shared_failure = inputs.shared_failure(cell)
    COMPUTE.reset()
    with PeakMemory(inputs.device) as memory:
        outcome = _attempt(plan, run_dir, cell, inputs, session, shared_failure)
    interrupt.raise_if_pending()  # an interrupt that became another error is no failure of the method
    extras = outcome.extras
    if unreadable := distributed.union_over_processes(inputs.unreadable.paths):
        extras = {**extras, "unreadable_images": float(len(unreadable))}
    passes = session.timers.total_forward_passes()
    if not distributed.is_main_process():
        return None
    session.timers.reassign("train", "compile", COMPUTE.compile_seconds)
    result = results.write(
        run_dir,
        cell,
        key,
        "failed" if outcome.failure else "ok",
        outcome.failure,
        outcome.arrays,
        seconds={k: round(v, 4) for k, v in session.timers.seconds.items()},
        cpu_seconds={k: round(v, 4) for k, v in session.timers.cpu_seconds.items()},
        network_passes=passes,
        shared_gpu=inputs.device.type == "cuda" and execution["jobs_per_gpu"] > 1,
        peak_memory_mb=memory.mb,
        seed=cell.seed,
        shared=inputs.shared_runs(cell),
        config=plan.cell_config(cell),
        extras=extras,
        curves=outcome.curves,
    )
    if result.status == "ok":
        session.clear()
    return result


def _attempt(plan: Plan, run_dir: Path, cell: Cell, inputs: Inputs, session: Session, shared_failure: str) -> Outcome:
    """Compute a cell; an error of the method becomes an outcome with its reason."""
    try:
        if shared_failure:
            raise SharedRunFailed(shared_failure)
        with contextlib.chdir("."):  # a method may leave this folder
            return _compute_outcome(cell, session, inputs, plan, run_dir)
    except (KeyboardInterrupt, UserError):
        raise
    except SystemExit as e:
        if active():
            raise
        return Outcome(failure=f"SystemExit: it ended the process ({e.code})")
    except OSError as e:
        raise UserError(f"{cell}: {e}; the cell is not lost, run again once this is mended") from e
    except Exception as e:
        if active() and not isinstance(e, (Diverged, OutOfTime, SharedRunFailed)):
            raise  # the other processes have not met it and would wait forever: torchrun ends them
        traceback.print_exc(file=sys.stderr)
        return Outcome(failure=_failure_reason(e))


class SharedRunFailed(RuntimeError):
    """A shared run that the method reads has failed."""


def _failure_reason(error: Exception) -> str:
    if isinstance(error, (Diverged, OutOfTime, SharedRunFailed)):
        return f"{type(error).__name__}: {error}"
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return "OutOfMemory: the GPU's memory did not suffice"
    if isinstance(error, MemoryError):
        return "OutOfMemory: the machine's memory did not suffice"
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _compute_outcome(cell: Cell, session: Session, inputs: Inputs, plan: Plan, run_dir: Path) -> Outcome:
    if cell.task == "ood":
        return _compute_ood(cell, inputs.ood_task(cell, session), inputs, plan, run_dir)
    return _compute_noisy(cell, inputs.noisy_task(cell, session), inputs, plan, run_dir)


def _compute_noisy(cell: Cell, task: NoisyTask, inputs: Inputs, plan: Plan, run_dir: Path) -> Outcome:
    if cell.method in SHARED:
        return _shared_run(cell, task, inputs, run_dir)
    ids = inputs.train_ids(cell)
    same = inputs.common_count(cell)
    return _detect(_method(cell, task, inputs, plan), task, ids, retrain=plan.retrains(cell), same=same)


def _compute_ood(cell: Cell, task: OODTask, inputs: Inputs, plan: Plan, run_dir: Path) -> Outcome:
    if cell.method in SHARED:
        return _shared_run(cell, task, inputs, run_dir)
    return _score_ood(_method(cell, task, inputs, plan), task, inputs)


def _method(cell: Cell, task: NoisyTask | OODTask, inputs: Inputs, plan: Plan) -> Any:
    """Return the method of a cell with its hyper-parameters."""
    name, _ = registry.split_variant(cell.method)
    method = registry.load(registry.task_kind(cell.task), name)(**plan.params(cell.method))
    if not method.reads_plain:  # it trains a network of its own
        preload_compiler(task.recipe, inputs.device)
    return method


def _shared_run(cell: Cell, task: Any, inputs: Inputs, run_dir: Path) -> Outcome:
    """Compute a run that methods read instead of training again."""
    preload_compiler(task.recipe, inputs.device)
    if cell.method == PLAIN:
        arrays, curves = plain_run(task, inputs.test, run_dir / cell.folder)
        return Outcome({**arrays, "ids": inputs.train_ids(cell)}, curves=curves)
    folds = importlib.import_module(shared_module(FOLDS))  # by name: only the folds themselves depend on its code
    return Outcome({**folds.fold_probabilities(task), "ids": inputs.train_ids(cell)})


def _detect(method: Any, task: NoisyTask, ids: np.ndarray, retrain: bool, same: int | None = None) -> Outcome:
    """Run a detector of wrong labels, and with `retrain` trains again without the examples it removes.

    With `same` the network is also trained without the `same` most suspicious examples by the method's score.
    """
    with task.session.timer("score"):  # time that a method does not attribute itself is scoring
        found = method.detect(task)
    outcome = outcome_of(found, task, method.name, ids)
    arrays = outcome.arrays
    if retrain and found.remove is not None and found.test_logits is None:
        arrays["test_logits"] = _retrain(task, arrays["remove"], found.class_weights)
    if same is not None:
        arrays["remove_same"] = distributed.broadcast_array(_most_suspicious(arrays["scores"], same))
        arrays["test_logits_same"] = _retrain(task, arrays["remove_same"], name="retrain_same")
    return outcome


def outcome_of(found: Detection, task: NoisyTask, name: str, ids: np.ndarray) -> Outcome:
    """Check what a detector found and return it as a cell's outcome, without training again.

    Args:
        found: What it found.
        task: What it was given.
        name: Name of the method, for messages.
        ids: Identities of the training images, shape [n].

    Raises:
        ValueError: If something has a wrong shape or a score is not finite.
    """
    scores = np.asarray(found.scores, dtype=np.float64)
    _check_scores(scores, len(task.train), name)
    _check_other_fields(found, task, name)
    arrays = {"scores": scores, "ids": ids}
    arrays |= {f"variant:{k}": np.asarray(v, dtype=np.float64) for k, v in found.variants.items()}
    arrays |= {f"trace:{k}": np.asarray(v) for k, v in found.traces.items()}
    for field_name in ("epoch_scores", "test_logits"):
        if getattr(found, field_name) is not None:
            arrays[field_name] = np.asarray(getattr(found, field_name), dtype=np.float32)
    if found.remove is not None:
        arrays["remove"] = distributed.broadcast_array(np.asarray(found.remove, dtype=bool))
    curves = {k: np.asarray(v, dtype=np.float64).tolist() for k, v in found.curves.items()}
    return Outcome(arrays, _finite_numbers(found.extras), curves)


def _most_suspicious(scores: np.ndarray, count: int) -> np.ndarray:
    """Return the `count` examples of the highest scores, bool, shape [n]; of equal scores the first."""
    remove = np.zeros(len(scores), dtype=bool)
    remove[np.argsort(-scores, kind="stable")[:count]] = True
    return remove


def _retrain(
    task: NoisyTask, remove: np.ndarray, class_weights: np.ndarray | None = None, name: str = "retrain"
) -> np.ndarray:
    """Return test logits, shape [m, C], of a network trained without the removed examples for as many steps.

    Args:
        task: Data and recipe.
        remove: The examples that are left out, bool, shape [n].
        class_weights: Weights of the classes in the loss, shape [C]; None for equal ones.
        name: Name of the timer and of the resumable state.
    """
    kept = np.flatnonzero(~remove)
    if len(kept) < task.n_classes:
        raise ValueError(f"the removal rule leaves {len(kept)} of {len(remove)} examples")
    weights = None if class_weights is None else torch.as_tensor(class_weights, dtype=torch.float32)
    learner = train_plainly(task, kept, phase=name, timer=name, class_weights=weights)
    with task.session.timer(name):
        return task.predict(learner.net, task.test)[0].cpu().numpy()


def _score_ood(method: Any, task: OODTask, inputs: Inputs) -> Outcome:
    """Fits an OOD detector and scores the ID test set and every OOD set."""
    session = task.session
    with session.timer("fit"):
        if method.search:
            from sgoif.bench.methods.ood.search import fit_searched  # loads scikit-learn, which takes seconds

            method = fit_searched(method, task)
        else:
            method.fit(task)
    arrays: dict[str, np.ndarray] = {}
    n_images = 0
    for name, test in {"id_test": inputs.test, **inputs.ood_sets()}.items():
        with session.timer("score"):
            found = {k: v.double().cpu().numpy() for k, v in method.scores(test).items()}
        if method.score_name not in found or (method.candidates and set(found) - set(method.candidates)):
            raise ValueError(f"{method.name}: scores {sorted(found)} for candidates {sorted(method.candidates)}")
        for candidate, scores in found.items():
            _check_scores(scores, len(test), f"{method.name} on {name}")
            arrays[name if candidate == method.score_name else f"variant:{candidate}:{name}"] = scores
        n_images += len(test)
    with session.timer("accuracy"):
        arrays["id_logits"] = method.logits(inputs.test).float().cpu().numpy()
    extras = {"seconds_per_image": session.timers.seconds["score"] / n_images, **method.extras()}
    if method.search:
        extras |= {f"searched_{name}": float(getattr(method.params, name)) for name in method.sweep}
    return Outcome(arrays, _finite_numbers(extras))


def _check_scores(scores: np.ndarray, n: int, what: str) -> None:
    if scores.shape != (n,):
        raise ValueError(f"{what}: scores of shape {scores.shape} for {n} examples")
    if not np.isfinite(scores).all():
        raise ValueError(f"{what}: {int((~np.isfinite(scores)).sum())} of {n} scores are not finite")


def _check_other_fields(found: Detection, task: NoisyTask, name: str) -> None:
    """Check what a method gives beside its scores, so that something wrong fails its own cell alone."""
    n = len(task.train)
    if misnamed := [key for key in found.variants if not VARIANT_NAME.fullmatch(key)]:
        raise ValueError(f"{name}: a variant is called {misnamed[0]!r}; letters a to z, digits and _ are allowed")
    if found.remove is not None and np.asarray(found.remove).dtype != bool:
        raise ValueError(f"{name}: remove is of {np.asarray(found.remove).dtype}, where bool is expected")
    for key, trace in found.traces.items():
        if np.asarray(trace).dtype.kind not in "biuf":
            raise ValueError(f"{name}: traces[{key!r}] has something that is no number")
    shapes: dict[str, tuple[Any, tuple[int, ...]]] = {
        f"variants[{key!r}]": (value, (n,)) for key, value in found.variants.items()
    }
    shapes |= {"remove": (found.remove, (n,)), "test_logits": (found.test_logits, (len(task.test), task.n_classes))}
    if found.epoch_scores is not None:
        shapes["epoch_scores"] = (found.epoch_scores, (len(found.epoch_scores), n))
    for what, (value, expected) in shapes.items():
        if value is not None and np.shape(value) != expected:
            raise ValueError(f"{name}: {what} of shape {np.shape(value)}, where {expected} is expected")
    for what, curve in found.curves.items():
        if not np.isfinite(np.asarray(curve, dtype=np.float64)).all():
            raise ValueError(f"{name}: curves[{what!r}] has numbers that are not finite")


def _finite_numbers(extras: dict[str, Any]) -> dict[str, float]:
    """Return the extras that are finite, as floats; JSON cannot hold the others."""
    return {k: float(v) for k, v in extras.items() if math.isfinite(v)}
