"""Computes cells of a configuration in processes that share one GPU, outside Snakemake.

The jobs are those of the workflow (`run_batch`), one cell each, but for variants that watch one and the same training
(`watching_together`). A job is begun only if the shared runs that it reads are done and if there is time for it, as
told by the jobs of its method before.
"""

from __future__ import annotations

import math
import multiprocessing
import statistics
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import connection
from pathlib import Path
from typing import Any, cast

import torch

from sgoif.bench.data.holdout import hold_out
from sgoif.bench.data.noisy_labels import write_setting
from sgoif.bench.execution.plan import Cell, Plan
from sgoif.bench.execution.run_batch import run_batch
from sgoif.bench.execution.run_together import detector_of, run_together
from sgoif.bench.execution.truth_guard import forbid_truth
from sgoif.bench.methods import registry
from sgoif.bench.methods.registry import PLAIN, SHARED, task_kind
from sgoif.bench.methods.sgoif_detector import SGOIFDetector
from sgoif.bench.steps import configure_torch
from sgoif.errors import UserError

UNKNOWN_SECONDS = 45.0  # of a job whose method has not run yet; at most a tenth of all, at least a plain training
TELL_EVERY = 30.0
REPORT_EVERY = 60.0
NOISY = "noisy"
KINDS = (NOISY, "ood")  # of tasks


@dataclass(frozen=True)
class Job:
    """One cell, as a batch of its own, or the cells of several methods that watch one training.

    Attributes:
        dataset: Name of the dataset.
        method: Name of the method, the first one of several.
        number: Number of the batch.
        task: "noisy", "tuning" or "ood".
        together: The other methods.
    """

    dataset: str
    method: str
    number: int
    task: str = NOISY
    together: tuple[str, ...] = ()


def with_one_cell_a_job(config: dict[str, Any], **execution: Any) -> Plan:
    """Return the plan of a resolved configuration with one cell a job, and with other entries of `execution`."""
    changed = {**config, "execution": {**config["execution"], "cells_per_job": 1, **execution}}
    for kind in KINDS:
        changed[kind] = {
            dataset: {key: value for key, value in spec.items() if key != "cells_per_job"}
            for dataset, spec in config[kind].items()
        }
    return Plan(changed)


def reads(method: str, task: str = NOISY) -> Sequence[str]:
    """Return the shared runs that a method reads."""
    name, _ = registry.split_variant(method)
    return () if name in SHARED else registry.declaration(task_kind(task), name).shared_runs


def jobs_in_order(plan: Plan, order: Sequence[dict[str, Any]], have: Collection[Cell] = ()) -> list[Job]:
    """Return the jobs of an order, each once, shared runs before what reads them.

    Args:
        plan: The run's plan, with one cell a job.
        order: Entries with `seeds`, and with `dataset`, `methods` and `settings` or all of them; with `task` ("tuning",
            "ood") unless it is "noisy".
        have: Cells that are not computed again.

    Raises:
        UserError: If an entry names a dataset, method or setting that the run does not have.
    """
    found: dict[Job, None] = {}
    for entry in order:
        task = entry.get("task", NOISY)
        for dataset in [entry["dataset"]] if "dataset" in entry else plan.datasets(task):
            settings = entry.get("settings") or plan.settings(task, dataset)
            for setting in settings:
                plan.noise(dataset, setting)  # raises if there is none of that name
            for method in entry.get("methods") or plan.methods(task, dataset):
                plan.require(task, dataset, method)
                for number in range(plan.n_batches(task, dataset)):
                    batch = plan.batch(task, dataset, method, number)
                    cells = [c for c in batch if c.seed in entry["seeds"] and c.setting in settings]
                    if any(cell not in have for cell in cells):
                        wanted = [*reads(method, task), method]
                        found |= dict.fromkeys(Job(dataset, name, number, task) for name in wanted)
    return list(found)


def watching_together(plan: Plan, jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs with those whose methods may watch one training as one, in the place of the first of them.

    Args:
        plan: The run's plan, with one cell a job.
        jobs: One method each.
    """
    found: dict[Job, list[str]] = {}  # with the other methods of each
    watching: dict[tuple[str, str, int], list[tuple[Job, SGOIFDetector]]] = defaultdict(list)
    for job in jobs:
        batch = plan.batch(job.task, job.dataset, job.method, job.number)
        detector = detector_of(plan, batch[0]) if len(batch) == 1 else None
        if detector is None:
            found[job] = []
            continue
        beside = watching[job.task, job.dataset, job.number]
        first = next((other for other, one in beside if one.watches_alike(detector)), None)
        if first is None:
            found[job] = []
            beside.append((job, detector))
        else:
            found[first].append(job.method)
    return [replace(job, together=tuple(methods)) for job, methods in found.items()]


def write_labels(plan: Plan, run_dir: Path, jobs: Sequence[Job]) -> None:
    """Write the noisy labels that the jobs read, and set test images aside; unchanged files are left alone."""
    root = Path(plan.config["data"]["root"])
    needed = {
        (c.dataset, c.setting, plan.draw(c)) for j in jobs for c in plan.batch(j.task, j.dataset, PLAIN, j.number)
    }
    for dataset, setting, draw in sorted(needed):
        write_setting(root, run_dir, dataset, setting, plan.noise(dataset, setting, draw), draw)
    for dataset in {job.dataset for job in jobs}:
        hold_out(root, run_dir, dataset, plan.held_out(dataset))


def _work(pipe: connection.Connection, config: dict[str, Any], log: Path) -> None:
    """Compute the jobs that come through a pipe, and answer each with its seconds and what went wrong."""
    sys.stdout = sys.stderr = log.open("a", buffering=1)
    configure_torch(1)
    forbid_truth()
    plan = Plan(config)
    pipe.send(None)
    while True:
        job = pipe.recv()
        began, failure = time.monotonic(), ""
        try:
            _compute(plan, log.parent, job)
        except Exception as e:
            traceback.print_exc()
            failure = f"{type(e).__name__}: {e}"
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # for the other processes
        pipe.send((time.monotonic() - began, failure))


def _compute(plan: Plan, run_dir: Path, job: Job) -> None:
    methods, device = (job.method, *job.together), plan.config["execution"]["device"]
    if job.together:
        cells = [plan.batch(job.task, job.dataset, method, job.number)[0] for method in methods]
        run_together(plan, run_dir, cells, device)
    for method in methods:
        run_batch(plan, run_dir, job.task, job.dataset, method, job.number, device)


@dataclass
class Processes:
    """Processes and what they have to do.

    Attributes:
        command: Name of the command that they work for; their logs are called after it.
        plan: The run's plan.
        run_dir: Folder of the run.
        waiting: Jobs that are not begun, in order.
        until: `time.monotonic()` at which nothing runs any more.
        report: Called about every minute.
        seconds: Seconds of finished jobs by method.
        failed: Jobs that raised, with the reason.
        undone: Jobs that are not finished, the waiting ones among them.
    """

    command: str
    plan: Plan
    run_dir: Path
    waiting: list[Job]
    until: float
    report: Callable[[], object] = lambda: None
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    failed: dict[Job, str] = field(default_factory=dict)
    undone: set[Job] = field(init=False)

    def __post_init__(self) -> None:
        self.undone = set(self.waiting)
        self._unknown = min(UNKNOWN_SECONDS, 0.1 * (self.until - time.monotonic()))
        self._busy: dict[connection.Connection, Job | None] = {}  # None: is starting
        self._idle: list[connection.Connection] = []
        self._processes: list[multiprocessing.process.BaseProcess] = []
        self._told = 0.0
        self._reported = time.monotonic()

    @property
    def logs(self) -> str:
        """Which files hold what the processes printed."""
        return f"{self.run_dir}/{self.command}-*.log"

    def run(self, workers: int) -> None:
        """Compute jobs until none is left that fits into the time."""
        for _ in range(min(workers, len(self.waiting))):
            self._start_process()
        try:
            while self._busy and time.monotonic() < self.until:
                for pipe in connection.wait(list(self._busy), timeout=1.0):
                    self._answered(cast("connection.Connection", pipe))
                for pipe, job in zip(list(self._idle), self._ready(), strict=False):
                    self._idle.remove(pipe)
                    self.waiting.remove(job)
                    pipe.send(job)
                    self._busy[pipe] = job
                self._tell()
        finally:
            for process in self._processes:
                process.kill()
            for process in self._processes:
                process.join(timeout=10)

    def _start_process(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        ours, theirs = spawn.Pipe()
        log = self.run_dir / f"{self.command}-{len(self._processes)}.log"
        process = spawn.Process(target=_work, args=(theirs, self.plan.config, log))
        process.start()
        theirs.close()
        self._processes.append(process)
        self._busy[ours] = None

    def _answered(self, pipe: connection.Connection) -> None:
        """Note what a process did; one that died is replaced."""
        job = self._busy.pop(pipe)
        try:
            answer = pipe.recv()
        except (EOFError, ConnectionError):
            if job is None:
                raise UserError(f"a process ended before its first job; see {self.logs}") from None
            self.failed[job] = "its process died"
            self._start_process()
            return
        if job is not None:
            seconds, failure = answer
            self.seconds[job.method].append(seconds)
            self.undone.discard(job)
            if failure:
                self.failed[job] = failure
        self._idle.append(pipe)

    def _ready(self) -> list[Job]:
        """Return waiting jobs whose shared runs are done and that fit into the time.

        Those that read come first: a shared run is on this machine alone, so that all that reads it is lost with it.
        """
        left = self.until - time.monotonic()

        def is_ready(job: Job) -> bool:
            undone = any(replace(job, method=run) in self.undone for run in reads(job.method, job.task))
            return self._expected(job) < left and not undone

        return sorted(filter(is_ready, self.waiting), key=lambda job: not reads(job.method, job.task))

    def _expected(self, job: Job) -> float:
        """Return how many seconds a job may take."""
        known = self.seconds.get(job.method)
        if known:
            return 1.2 * statistics.fmean(known)
        plain = self.seconds.get(PLAIN)
        alone = not reads(job.method, job.task)  # trains a network of its own
        return max(self._unknown, 1.2 * statistics.fmean(plain)) if plain and alone else self._unknown

    def _tell(self) -> None:
        if time.monotonic() - self._told > TELL_EVERY:
            self._told = time.monotonic()
            running = sum(job is not None for job in self._busy.values())
            done = sum(map(len, self.seconds.values()))
            left = f"{self.until - self._told:.0f} s left: " if math.isfinite(self.until) else ""
            print(f"{left}{done} done, {running} running, {len(self.waiting)} waiting", flush=True)
        if time.monotonic() - self._reported > REPORT_EVERY:
            self.report()
            self._reported = time.monotonic()
