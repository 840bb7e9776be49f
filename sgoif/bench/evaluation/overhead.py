"""Measures what a cell costs: its seconds by timer, memory, and overheads over the plain run beside it.

    marginal     own / plain                the shared runs that the method reads exist anyway
    stand-alone  (own + shared) / plain     they do not

`plain` is the training time alone of the plain run of the same dataset, setting and seed; what that run writes down
for other methods is part of `shared`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sgoif.bench.evaluation.cell_result import CellResult
from sgoif.bench.evaluation.metric_record import Name
from sgoif.bench.execution.records import ResultRecord
from sgoif.bench.methods.registry import PLAIN

SHARED_GPU = "several jobs shared the GPU (execution.jobs_per_gpu), so that their seconds cannot be compared"
NO_PLAIN_RUN = "no plain run to compare with"
ELSEWHERE = "its plain run was measured at another time, so that their seconds cannot be compared"
TOGETHER = "several methods watched one training, so that none has seconds of its own"
# Overhead is what a method costs to give its answer. Retraining on the cleaned labels is a use of a detector's answer,
# and scoring test images has a column of its own (seconds per image); the first network of a process is compiled for
# all that follow. All are recorded, none is in the overhead.
COMPILE = "compile"
NOT_OVERHEAD = ("retrain", "retrain_same", "accuracy", COMPILE)
NOT_OVERHEAD_OOD = ("score", "accuracy", COMPILE)
WALL_CLOCK_OVERHEADS = ("overhead_marginal", "overhead_standalone")


class Cost(NamedTuple):
    """One number about the cost of a cell, or the reason why there is none."""

    metric: str
    value: float | None = None
    status: str = "ok"
    reason: str = ""


@dataclass(frozen=True)
class Overhead:
    """What the overheads of a cell are computed from.

    Attributes:
        own: Result of the cell.
        plain: Result of the plain run of the same dataset, setting and seed.
        shared: Results of the shared runs that the cell read.
        excluded: Timers that do not count as overhead.
    """

    own: ResultRecord
    plain: ResultRecord
    shared: Sequence[ResultRecord]
    excluded: Collection[str]

    @property
    def is_plain(self) -> bool:
        """Whether the cell is the plain run itself."""
        return self.own is self.plain

    @property
    def shared_gpu(self) -> bool:
        """Whether the seconds of one of the runs were measured beside other jobs on its GPU."""
        return any(result.shared_gpu for result in (self.own, self.plain, *self.shared))

    def wall_clock(self) -> Iterator[Cost]:
        """Yield the overheads in wall-clock seconds."""
        if self.shared_gpu or not self.own.seconds:
            for metric in WALL_CLOCK_OVERHEADS:
                yield Cost(metric, status="undefined", reason=SHARED_GPU if self.own.seconds else TOGETHER)
            return
        plain = self.plain.seconds.get("train") or total(self.plain.seconds)
        own = plain if self.is_plain else total(self.own.seconds, self.excluded)
        shared = sum(total(result.seconds, (COMPILE,)) for result in self.shared)
        yield Cost("overhead_marginal", own / plain)
        yield Cost("overhead_standalone", (own + shared) / plain)
        if retraining := self.own.seconds.get("retrain"):
            yield Cost("overhead_cleaned", (own + shared + retraining) / plain)

    def cpu(self) -> Iterator[Cost]:
        """Yield the overhead in CPU seconds, which do not grow when other jobs share the cores, as wall-clock does."""
        plain = self.plain.cpu_seconds.get("train")
        if plain and self.own.cpu_seconds and not self.shared_gpu:
            own = plain if self.is_plain else total(self.own.cpu_seconds, self.excluded)
            shared = sum(total(result.cpu_seconds) for result in self.shared)
            yield Cost("overhead_cpu", (own + shared) / plain)

    def memory(self) -> Iterator[Cost]:
        """Yield the overhead in peak memory."""
        if self.own.peak_memory_mb and self.plain.peak_memory_mb:
            yield Cost("overhead_memory", self.own.peak_memory_mb / self.plain.peak_memory_mb)

    def passes(self) -> Iterator[Cost]:
        """Yield the overhead in images passed through a network, which no machine changes."""
        plain = self.plain.network_passes.get("train")
        if plain:
            own = plain if self.is_plain else total(self.own.network_passes, self.excluded)
            shared = sum(total(result.network_passes) for result in self.shared)
            yield Cost("overhead_passes", (own + shared) / plain)


def costs(
    task: str, cell: CellResult, cells: Mapping[Name, CellResult], arrays: Mapping[str, np.ndarray]
) -> Iterator[Cost]:
    """Yield all costs of a successful cell.

    Args:
        task: "noisy", "tuning" or "ood".
        cell: The cell.
        cells: All cells of the same task and dataset by name, plain and other shared runs included.
        arrays: The cell's arrays.

    Raises:
        UserError: If a shared run that the cell read is not among `cells`.
    """
    excluded = NOT_OVERHEAD_OOD if task == "ood" else NOT_OVERHEAD
    yield from _absolute_costs(cell.result, excluded)
    if task == "ood" and "id_test" in arrays:
        yield Cost("seconds_per_image", _seconds_per_image(cell.result, arrays))
    plain = cells.get((*cell.name[:2], PLAIN))
    if plain is None:
        for metric in WALL_CLOCK_OVERHEADS:
            yield Cost(metric, status="not run", reason=NO_PLAIN_RUN)
    elif plain.result.status != "ok":
        for metric in WALL_CLOCK_OVERHEADS:
            reason = f"{NO_PLAIN_RUN}: {plain.result.reason}"
            yield Cost(metric, status="failed", reason=reason)
    else:
        shared = [_shared_run(cell, run, cells).result for run in cell.result.shared]
        overhead = Overhead(cell.result, plain.result, shared, excluded)
        for part in (overhead.wall_clock, overhead.cpu, overhead.memory, overhead.passes):
            yield from part()


def _absolute_costs(result: ResultRecord, excluded: Collection[str]) -> Iterator[Cost]:
    """Yield seconds, memory and what the method itself reported."""
    for timer, value in result.seconds.items():
        yield Cost(f"seconds_{timer}", value)
    if result.seconds:
        yield Cost("seconds_total", total(result.seconds))
        yield Cost("seconds_own", total(result.seconds, excluded))
        yield Cost("cpu_seconds_total", total(result.cpu_seconds))
    if result.peak_memory_mb is not None:
        yield Cost("peak_memory_mb", result.peak_memory_mb)
    for name, value in result.extras.items():
        yield Cost(f"extra:{name}", value)


def _seconds_per_image(result: ResultRecord, arrays: Mapping[str, np.ndarray]) -> float:
    images = sum(a.size for name, a in arrays.items() if name == "id_test" or name.startswith("ood:"))
    return result.extras.get("seconds_per_image", result.seconds.get("score", 0.0) / images)


def _shared_run(cell: CellResult, run: str, cells: Mapping[Name, CellResult]) -> CellResult:
    """Return the shared run (plain or folds) of the same setting and seed that a cell read."""
    name = (*cell.name[:2], run)
    if name not in cells:
        raise cell.damaged(f"it was computed from the {run} run, which no batch of this run holds")
    return cells[name]


def total(by_timer: Mapping[str, float], excluded: Collection[str] = ()) -> float:
    """Sum the values of all timers but the excluded ones."""
    return float(sum(value for timer, value in by_timer.items() if timer not in excluded))
