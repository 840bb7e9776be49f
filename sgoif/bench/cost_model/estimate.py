"""`make plan`: jobs, hours and storage of a configuration on 1, 8 and 64 GPUs, scaled from what was measured.

Hours are those of a schedule: jobs start in order of the longest chain behind them, on the first GPUs that are free,
after the shared runs they read. Storage is computed from the shapes of what is written.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from sgoif.bench.config import load_config
from sgoif.bench.cost_model.measured_costs import Costs, Measured, Shape, measured, shape_of
from sgoif.bench.data import catalogue
from sgoif.bench.execution.plan import Cell, Plan
from sgoif.bench.methods import registry
from sgoif.bench.methods.registry import FOLDS, PLAIN, SHARED, task_kind
from sgoif.training.recipe import Recipe

GPUS = (1, 8, 64)
N_FOLDS = 4  # trainings on three quarters each


@dataclass
class Job:
    """A batch of cells: what Snakemake starts."""

    name: tuple[str, str, str, int]  # task, dataset, method, number
    seconds: float = 0.0
    cells: int = 0
    after: tuple[tuple, ...] = ()  # names of the jobs it reads


@dataclass
class Block:
    """One dataset of one task, as estimated."""

    task: str
    dataset: str
    shape: Shape
    images: int
    recipe: Recipe
    plain_seconds: float
    basis: Measured
    same_network: bool
    decoding: bool  # bound by decoding rather than by the network
    jobs: list[Job] = field(default_factory=list)
    bytes: float = 0.0
    unknown: set[str] = field(default_factory=set)  # methods without a measured cost


def estimate(plan: Plan, costs: Costs) -> list[Block]:
    return [_block(plan, costs, task, d) for task in ("noisy", "ood") for d in plan.datasets(task)]


def _block(plan: Plan, costs: Costs, task: str, dataset: str) -> Block:
    spec, d = plan.spec(task, dataset), catalogue.get(dataset)
    recipe = Recipe.from_dict(spec["recipe"])
    shape, images = shape_of(dataset, recipe), d.parts["train"]
    seconds, basis, same = costs.training(shape, images, recipe.epochs)
    pace = costs.decoding * plan.config["execution"]["threads"]
    decode = images * recipe.epochs / pace if d.layout and not d.reader else 0.0
    block = Block(task, dataset, shape, images, recipe, max(seconds, decode), basis, same, decode > seconds)
    chosen = plan.methods(task, dataset)
    reads = {m: _reads(task, m) for m in chosen}
    shared = [PLAIN, *([FOLDS] if any(FOLDS in r for r in reads.values()) else [])]
    for method in [*shared, *chosen]:
        for number in range(plan.n_batches(task, dataset)):
            cells = plan.batch(task, dataset, method, number)
            if not cells and method in chosen:  # restricted to other settings: the workflow starts no job for it
                continue
            after = tuple((task, dataset, name, number) for name in reads.get(method, ()))
            job = Job((task, dataset, method, number), cells=len(cells), after=after)
            for cell in cells:
                job.seconds += _seconds(plan, costs, block, cell)
                block.bytes += stored(plan, block, cell)
            block.jobs.append(job)
    return block


def _reads(task: str, method: str) -> list[str]:
    return registry.declaration(task_kind(task), registry.split_variant(method)[0]).shared_runs


def _seconds(plan: Plan, costs: Costs, block: Block, cell: Cell) -> float:
    train, recipe = block.plain_seconds, block.recipe
    per_image = train / (block.images * recipe.epochs)
    if cell.method == PLAIN:
        written = recipe.record != "nothing"
        return train + per_image * (written * block.images + _tested(plan, block, cell)) / 3
    if cell.method == FOLDS:
        return (N_FOLDS - 1) * train
    ratio = costs.ratio(task_kind(cell.task), cell.method)
    if ratio is None:
        block.unknown.add(cell.method)
        return 0.0
    again = ratio.again * train if cell.task != "ood" and plan.retrains(cell) else 0.0
    return ratio.own * train + again + ratio.score * per_image * _tested(plan, block, cell)


def _tested(plan: Plan, block: Block, cell: Cell) -> int:
    spec = plan.spec(cell.task, cell.dataset)
    sets = [*spec.get("near", []), *spec.get("far", [])] if cell.method not in SHARED else []
    return sum(catalogue.get(name).parts["test"] for name in (block.dataset, *sets))


def stored(plan: Plan, block: Block, cell: Cell) -> float:
    """Bytes of the arrays and checkpoints a cell leaves behind; at most, since not every method scores every epoch."""
    n, k, e = block.images, block.shape.classes, block.recipe.epochs
    m = catalogue.get(block.dataset).parts["test"]
    if cell.method == PLAIN:
        written = 2 * n * (k + block.shape.width) if block.recipe.record != "nothing" else 0
        weights = 4 * block.shape.parameters * len(block.recipe.checkpoint_epochs())
        return written + 2 * e * n + 4 * m * k + 8 * (n + e) + weights
    if cell.method == FOLDS:
        return 4 * n * k + 8 * n
    if cell.task == "ood":
        return 8 * _tested(plan, block, cell) + 4 * m * k
    return (8 + 8 + 1 + 4 * e) * n + 4 * m * k


def hours(jobs: Iterable[Job], gpus: int, processes: int = 1) -> float:
    """Length of the schedule. A job takes `processes` GPUs (as many as there are) and that fraction of its time."""
    jobs = {job.name: job for job in jobs}
    width = min(processes, gpus)
    behind = {name: 0.0 for name in jobs}
    for job in jobs.values():
        for name in job.after:
            behind[name] = max(behind[name], job.seconds)
    free, done = [0.0] * gpus, {}
    order = sorted(jobs.values(), key=lambda j: (-(j.seconds + behind[j.name]), j.name))
    for job in [j for j in order if not j.after] + [j for j in order if j.after]:
        ready = max((done[name] for name in job.after), default=0.0)
        taken = [heapq.heappop(free) for _ in range(width)]
        done[job.name] = max([ready, *taken]) + job.seconds / width
        for _ in taken:
            heapq.heappush(free, done[job.name])
    return max(done.values(), default=0.0) / 3600


def room_mb(plan: Plan) -> float:
    """Disk for the datasets; those that share an unpacked folder count once."""
    folders: dict[str, int] = {}
    for d in map(catalogue.get, plan.needed_datasets()):
        place = f"{'tree' if d.layout else 'file'}:{d.folder or d.name}" if d.gated else d.name
        shared = d.layout == "openood"
        folders[place] = folders.get(place, 0) + d.needs_mb if shared else max(folders.get(place, 0), d.needs_mb)
    return float(sum(folders.values()))


def report(path: Path, costs: Costs | None = None) -> str:
    """The plan of a configuration file as text. Optional datasets count whether or not they are here."""
    plan = Plan(load_config(path, skip_missing=False))
    costs = costs or measured()
    blocks = estimate(plan, costs)
    jobs = [job for b in blocks for job in b.jobs]
    processes = plan.config["execution"]["processes"]
    lines = [f"{path}: {len(jobs):,} jobs, {sum(j.cells for j in jobs):,} cells, every dataset counted as present", ""]
    head = ("", "network", "images × epochs", "plain run", "jobs", "GPU hours", "written")
    rows = [head]
    for b in blocks:
        mark = "" if b.same_network else " *"
        rows.append((
            f"{b.task} {b.dataset}", b.shape.model, f"{b.images:,} × {b.recipe.epochs}",
            _duration(b.plain_seconds) + mark + (" d" if b.decoding else ""), f"{len(b.jobs)}",
            f"{sum(j.seconds for j in b.jobs) / 3600:,.1f}", _size(b.bytes),
        ))  # fmt: skip
    widths = [max(len(r[i]) for r in rows) for i in range(len(head))]
    for row in rows:
        lines.append(
            "  ".join(c.ljust(w) if i < 3 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        )
    lines += ["", "  ".join(f"{g} GPU{'s' if g > 1 else ''}: {hours(jobs, g, processes):,.1f} h" for g in GPUS)]
    longest = max(jobs, key=lambda j: j.seconds)
    lines.append(f"The longest job is {'/'.join(map(str, longest.name))} with {longest.seconds / 3600:,.1f} h.")
    lines.append(
        f"Storage: {_size(sum(b.bytes for b in blocks))} of results, {_size(1e6 * room_mb(plan))} of datasets."
    )
    return "\n".join([*lines, "", *_words(blocks, costs)])


def _words(blocks: list[Block], costs: Costs) -> list[str]:
    used = dict.fromkeys(f"{b.basis.source} ({b.basis.hardware})" for b in blocks)
    on = sorted({r.on for b in blocks for j in b.jobs if (r := _ratio_of(costs, j))})
    unknown = sorted({m for b in blocks for m in b.unknown})
    words = ["Training is scaled by images × epochs × FLOPs from:", *(f"  {source}" for source in used)]
    words.append(
        "* another network or image size than measured: an extrapolation. It assumes the same use of the GPU; small"
    )
    words.append("  networks are bound by launches and deep ones by memory, so read it as a lower bound.")
    words.append(f"d bound by decoding, at {costs.decoding:,.0f} images a second and core with the configured threads.")
    words.append(f"Methods: measured cost in plain trainings, on a {' or '.join(on)}; CPU ratios are an extrapolation.")
    if unknown:
        words.append(f"Counted as nothing, since never measured: {', '.join(unknown)}.")
    return words


def _ratio_of(costs: Costs, job: Job):
    task, _, method, _ = job.name
    return costs.ratio(task_kind(task), method)


def _duration(seconds: float) -> str:
    for limit, unit, name in ((90, 1, "s"), (5400, 60, "min"), (float("inf"), 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:,.1f} {name}"
    raise AssertionError


def _size(n: float) -> str:
    for limit, unit, name in ((1e9, 1e6, "MB"), (1e12, 1e9, "GB"), (float("inf"), 1e12, "TB")):
        if n < limit:
            return f"{n / unit:,.1f} {name}"
    raise AssertionError
