"""Estimates jobs, hours and storage of a configuration on 1, 8 and 64 GPUs, scaled from measured runs.

Hours are those of a schedule (`schedule`). Storage is computed from the shapes of what is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sgoif.bench.config import load_config
from sgoif.bench.cost_model.measured_costs import (
    MeasuredCosts,
    MeasuredTraining,
    MethodCost,
    NetworkShape,
    load_costs,
    network_shape,
)
from sgoif.bench.cost_model.schedule import Job, schedule_hours
from sgoif.bench.data import catalogue
from sgoif.bench.data.noise.subset import expected_size
from sgoif.bench.execution.plan import Cell, Plan
from sgoif.bench.methods import registry
from sgoif.bench.methods.registry import FOLDS, PLAIN, SHARED, task_kind
from sgoif.training.recipe import Recipe

GPU_COUNTS = (1, 8, 64)
N_FOLDS = 4  # trainings on three quarters each


@dataclass
class DatasetEstimate:
    """The estimate of one dataset of one task.

    Attributes:
        task: "noisy" or "ood".
        dataset: Name of the dataset.
        shape: Network and images.
        images: Number of training images.
        recipe: How networks are trained.
        plain_seconds: Seconds of one plain training.
        basis: The measured training they are scaled from.
        same_network: Whether network and image size were measured.
        network_seconds: Seconds of one plain training whose images are there at once.
        jobs: All jobs.
        bytes: Size of what they write.
        unknown: Methods without a measured cost.
    """

    task: str
    dataset: str
    shape: NetworkShape
    images: int
    recipe: Recipe
    plain_seconds: float
    basis: MeasuredTraining
    same_network: bool
    network_seconds: float
    jobs: list[Job] = field(default_factory=list)
    bytes: float = 0.0
    unknown: set[str] = field(default_factory=set)

    @property
    def decoding(self) -> bool:
        """Whether training is bound by decoding images rather than by the network."""
        return self.plain_seconds > self.network_seconds

    def training(self, ratio: float) -> float:
        """Return the seconds of a training that costs `ratio` plain ones.

        What a method computes besides is of the network. Images are decoded once an epoch, however often the batch is
        passed through a network, as by the two of Co-teaching; a method that trains several times on its own (INCV) is
        estimated too low where decoding is the bound.
        """
        return max(ratio * self.network_seconds, min(ratio, 1.0) * self.plain_seconds)


def estimate(plan: Plan, costs: MeasuredCosts) -> list[DatasetEstimate]:
    """Estimate every dataset of a plan."""
    return [_estimate_dataset(plan, costs, task, d) for task in ("noisy", "ood") for d in plan.datasets(task)]


def _estimate_dataset(plan: Plan, costs: MeasuredCosts, task: str, dataset: str) -> DatasetEstimate:
    found = _training(plan, costs, task, dataset)
    methods = plan.methods(task, dataset)
    reads = {m: _shared_runs(task, m) for m in methods}
    shared = [PLAIN]
    if any(FOLDS in names for names in reads.values()):
        shared.append(FOLDS)
    for method in [*shared, *methods]:
        for number in range(plan.n_batches(task, dataset)):
            cells = plan.batch(task, dataset, method, number)
            if not cells and method in methods:  # restricted to other settings: the workflow starts no job for it
                continue
            after = tuple((task, dataset, name, number) for name in reads.get(method, ()))
            job = Job((task, dataset, method, number), cells=len(cells), after=after)
            job.processes = plan.processes(task, dataset, method)
            for cell in cells:
                job.seconds += _seconds(plan, costs, found, cell) * _scale(plan, found, cell)
                found.bytes += stored_bytes(plan, found, cell)
            found.jobs.append(job)
    return found


def _training(plan: Plan, costs: MeasuredCosts, task: str, dataset: str) -> DatasetEstimate:
    """The estimate with its plain training and without jobs."""
    d = catalogue.get(dataset)
    recipe = Recipe.from_dict(plan.spec(task, dataset)["recipe"])
    shape = network_shape(dataset, recipe)
    images = d.parts["train"]
    seconds, basis, same = costs.training(shape, images, recipe.epochs)
    images_per_second = costs.decoding * plan.config["execution"]["threads"]
    decode = images * recipe.epochs / images_per_second if d.layout and not d.reader else 0.0
    return DatasetEstimate(task, dataset, shape, images, recipe, max(seconds, decode), basis, same, seconds)


def _shared_runs(task: str, method: str) -> list[str]:
    return registry.declaration(task_kind(task), registry.split_variant(method)[0]).shared_runs


def _seconds(plan: Plan, costs: MeasuredCosts, found: DatasetEstimate, cell: Cell) -> float:
    train, recipe = found.plain_seconds, found.recipe
    per_image = train / (found.images * recipe.epochs)
    if cell.method == PLAIN:
        written = recipe.record != "nothing"
        return train + per_image * (written * found.images + _test_images(plan, found, cell)) / 3
    if cell.method == FOLDS:
        return (N_FOLDS - 1) * train
    cost = costs.method(task_kind(cell.task), cell.method)
    if cost is None:
        found.unknown.add(cell.method)
        return 0.0
    again = found.training(cost.again) if cell.task != "ood" and plan.retrains(cell) else 0.0
    again += found.training(1.0) if plan.retrains_same(cell) else 0.0
    return found.training(cost.own) + again + cost.score * per_image * _test_images(plan, found, cell)


def _scale(plan: Plan, found: DatasetEstimate, cell: Cell) -> float:
    """Training of this cell's setting in trainings of the dataset: fewer images or other epochs."""
    if cell.task == "ood":
        return 1.0
    setting = plan.settings(cell.task, cell.dataset)[cell.setting]
    images = expected_size(setting, found.images, found.shape.classes)
    epochs = plan.recipe(cell.task, cell.dataset, cell.setting).get("epochs", found.recipe.epochs)
    return float(images * epochs / (found.images * found.recipe.epochs))


def _test_images(plan: Plan, found: DatasetEstimate, cell: Cell) -> int:
    """Number of test images that a cell passes through the network, with those of OOD sets."""
    spec = plan.spec(cell.task, cell.dataset)
    sets = [*spec.get("near", []), *spec.get("far", [])] if cell.method not in SHARED else []
    return sum(catalogue.get(name).parts["test"] for name in (found.dataset, *sets))


def stored_bytes(plan: Plan, found: DatasetEstimate, cell: Cell) -> float:
    """Return the size of the arrays and checkpoints of a cell; at most, since not every method scores every epoch."""
    n, classes, epochs = found.images, found.shape.classes, found.recipe.epochs
    n_test = catalogue.get(found.dataset).parts["test"]
    if cell.method == PLAIN:
        size = 4 if cell.task == "ood" else 2  # float32 for OOD detection, else float16
        recorded = size * n * (classes + found.shape.width) if found.recipe.record != "nothing" else 0
        weights = 4 * found.shape.parameters * len(found.recipe.checkpoint_epochs())
        return recorded + 2 * epochs * n + 4 * n_test * classes + 8 * (n + epochs) + weights
    if cell.method == FOLDS:
        return 4 * n * classes + 8 * n
    if cell.task == "ood":
        return 8 * _test_images(plan, found, cell) + 4 * n_test * classes
    return (8 + 8 + 1 + 4 * epochs) * n + 4 * n_test * classes


def dataset_megabytes(plan: Plan) -> float:
    """Return the disk space for the datasets in MB; those that share an unpacked folder count once."""
    folders: dict[str, int] = {}
    for d in map(catalogue.get, plan.needed_datasets()):
        place = f"{'tree' if d.layout else 'file'}:{d.folder or d.name}" if d.gated else d.name
        known = folders.get(place, 0)
        folders[place] = known + d.needs_mb if d.layout == "openood" else max(known, d.needs_mb)
    return float(sum(folders.values()))


def plan_report(path: Path, costs: MeasuredCosts | None = None, select: Mapping[str, Any] | None = None) -> str:
    """Describe the cost of a configuration file as text.

    Args:
        path: The configuration; optional datasets count whether or not they are here.
        costs: Measured costs; those of the published runs by default.
        select: What the run is reduced to; cells that the whole run has already are counted too.
    """
    plan = Plan(load_config(path, skip_missing=False, select=select))
    costs = costs or load_costs()
    estimates = estimate(plan, costs)
    jobs = [job for e in estimates for job in e.jobs]
    longest = max(jobs, key=lambda j: j.seconds)
    hours = [f"{n} GPU{'s' if n > 1 else ''}: {schedule_hours(jobs, n):,.1f} h" for n in GPU_COUNTS]
    results = _size(sum(e.bytes for e in estimates))
    lines = [
        f"{path}: {len(jobs):,} jobs, {sum(j.cells for j in jobs):,} cells, every dataset counted as present",
        "",
        *_table(estimates),
        "",
        "  ".join(hours),
        _longest(longest),
        f"Storage: {results} of results, {_size(1e6 * dataset_megabytes(plan))} of datasets.",
        "",
        *_notes(estimates, costs),
    ]
    return "\n".join(lines)


def _longest(job: Job) -> str:
    """A sentence about the job that takes longest on one GPU."""
    shared = f", shared by up to {job.processes} GPUs" if job.processes > 1 else ""
    return f"The longest job is {'/'.join(map(str, job.name))} with {job.seconds / 3600:,.1f} h of a GPU{shared}."


def _table(estimates: Sequence[DatasetEstimate]) -> list[str]:
    header = ("", "network", "images × epochs", "plain run", "jobs", "GPU hours", "written")
    rows = [header, *(_row(e) for e in estimates)]
    widths = [max(len(r[i]) for r in rows) for i in range(len(header))]
    return [
        "  ".join(c.ljust(w) if i < 3 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]


def _row(e: DatasetEstimate) -> tuple[str, ...]:
    return (
        f"{e.task} {e.dataset}",
        e.shape.model,
        f"{e.images:,} × {e.recipe.epochs}",
        _duration(e.plain_seconds) + ("" if e.same_network else " *") + (" d" if e.decoding else ""),
        f"{len(e.jobs)}",
        f"{sum(j.seconds for j in e.jobs) / 3600:,.1f}",
        _size(e.bytes),
    )


def _notes(estimates: Sequence[DatasetEstimate], costs: MeasuredCosts) -> list[str]:
    used = dict.fromkeys(f"{e.basis.source} ({e.basis.hardware})" for e in estimates)
    found = [_cost_of(costs, job) for e in estimates for job in e.jobs]
    on = sorted({cost.on for cost in found if cost})
    unknown = sorted({m for e in estimates for m in e.unknown})
    notes = [
        "Training is scaled by images × epochs × FLOPs from:",
        *(f"  {source}" for source in used),
        "* another network or image size than measured: an extrapolation. It assumes the same use of the GPU; small",
        "  networks are bound by launches and deep ones by memory, so read it as a lower bound.",
        f"d bound by decoding, at {costs.decoding:,.0f} images a second and core with the configured threads.",
        f"Methods: measured cost in plain trainings, on a {' or '.join(on)}; CPU ratios are an extrapolation.",
    ]
    if unknown:
        notes.append(f"Counted as nothing, since never measured: {', '.join(unknown)}.")
    return notes


def _cost_of(costs: MeasuredCosts, job: Job) -> MethodCost | None:
    task, _, method, _ = job.name
    return costs.method(task_kind(task), method)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:,.1f} s"
    if seconds < 5400:
        return f"{seconds / 60:,.1f} min"
    return f"{seconds / 3600:,.1f} h"


def _size(n_bytes: float) -> str:
    if n_bytes < 1e9:
        return f"{n_bytes / 1e6:,.1f} MB"
    if n_bytes < 1e12:
        return f"{n_bytes / 1e9:,.1f} GB"
    return f"{n_bytes / 1e12:,.1f} TB"
