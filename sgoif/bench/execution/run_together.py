"""Computes cells whose methods watch one and the same training in one training.

Variants of SG-OIF that differ in `InfluenceConfig` alone do not change the training, nor do trusted anchors. Each cell
gets the same result as alone, under its own key, so that `run_batch` finds it finished.
"""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from sgoif.bench.execution import results
from sgoif.bench.execution.inputs import Inputs
from sgoif.bench.execution.plan import Cell, Plan
from sgoif.bench.execution.run_batch import Outcome, outcome_of
from sgoif.bench.methods import registry
from sgoif.bench.methods.sgoif_detector import SGOIFDetector, detect_together
from sgoif.training.cost.compute_counter import COMPUTE
from sgoif.training.learner import preload_compiler
from sgoif.training.session import Session
from sgoif.utils.device import pick_device
from sgoif.utils.interrupt import raise_if_pending


def detector_of(plan: Plan, cell: Cell) -> SGOIFDetector | None:
    """Return the detector of a cell that may share its training with others; None if it may not.

    A cell that is trained again without what it removes has a training of its own, and so does one that reads others.
    """
    name, _ = registry.split_variant(cell.method)
    kind = registry.task_kind(cell.task)
    if kind != "noisy" or name in registry.SHARED or plan.retrains(cell) or plan.retrains_same(cell):
        return None
    method = registry.load(kind, name)
    if registry.declaration(kind, name).shared_runs or not issubclass(method, SGOIFDetector):
        return None
    detector: SGOIFDetector = method(**plan.params(cell.method))
    return detector if detector.watches_alike(detector) else None


def run_together(plan: Plan, run_dir: Path, cells: Sequence[Cell], device: str) -> None:
    """Compute the cells that are not finished, in one training, and write their results.

    Each has the network passes that it would have alone, but neither seconds nor memory, which are those of all
    together. If the training itself fails nothing is written: each cell is then left to be computed alone.

    Args:
        plan: The cells of the run.
        run_dir: Folder of the run.
        cells: Cells of one dataset, setting and seed whose detectors watch alike.
        device: "auto", "cpu" or "cuda".
    """
    on = pick_device(device, "execution.device", "see `make doctor`")
    inputs = Inputs(plan, run_dir, cells[0].task, cells[0].dataset, on)
    keys = {cell: inputs.key(cell, plan.code(cell.task, cell.method)) for cell in cells}
    left = {cell: key for cell, key in keys.items() if results.finished(run_dir, cell, key) is None}
    if len(left) < 2:
        return
    first = next(iter(left))
    session = Session(None, left[first], first.seed, on, label=f"{first} and {len(left) - 1} others")
    detectors = {cell: detector for cell in left if (detector := detector_of(plan, cell)) is not None}
    task = inputs.noisy_task(next((c for c, d in detectors.items() if d.uses_trusted), first), session)
    preload_compiler(task.recipe, on)
    COMPUTE.reset()
    try:
        with session.timer("score"):
            found = detect_together(list(detectors.values()), task)
    except Exception:
        raise_if_pending()  # an interrupt that became another error
        traceback.print_exc(file=sys.stderr)
        return
    shared = Counter(session.timers.total_forward_passes())
    for one in found:
        shared.subtract(one.own_passes)
    for cell, one in zip(detectors, found, strict=True):
        try:
            outcome = outcome_of(one.detection, task, cell.method, inputs.train_ids(cell))
        except ValueError as e:
            outcome = Outcome(failure=f"ValueError: {e}")
        results.write(
            run_dir,
            cell,
            left[cell],
            "failed" if outcome.failure else "ok",
            outcome.failure,
            outcome.arrays,
            network_passes={timer: count + one.own_passes[timer] for timer, count in shared.items()},
            shared_gpu=on.type == "cuda" and plan.config["execution"]["jobs_per_gpu"] > 1,
            seed=cell.seed,
            config=plan.cell_config(cell),
            extras=outcome.extras,
            curves=outcome.curves,
        )
