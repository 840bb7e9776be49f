"""Computes cells of a configuration for a given number of seconds, in several processes that share one GPU.

For a machine that is there for minutes and has no Snakemake. The jobs are those of the workflow (`run_batch`), one cell
each, in the order of a file. What is finished on this machine, or stands in published records, is not computed again.
At the end all that is finished is written to `--out` (`export-records`); `pack-records` adds it to what is published.
A job is begun only if there is time for it, as told by the jobs of its method before.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection
from pathlib import Path
from typing import Any, cast

import torch
import yaml

from benchmarks.common import ROOT
from sgoif.bench.config import load_config
from sgoif.bench.data.holdout import held_out_file, hold_out
from sgoif.bench.data.noisy_labels import setting_files, write_setting
from sgoif.bench.execution.plan import Cell, Plan
from sgoif.bench.execution.run_batch import run_batch
from sgoif.bench.execution.truth_guard import forbid_truth
from sgoif.bench.methods import registry
from sgoif.bench.methods.registry import SHARED
from sgoif.bench.run_folder import folder_of, write_config
from sgoif.bench.sharing.export import export_records
from sgoif.bench.sharing.records_file import read_parts
from sgoif.bench.steps import configure_torch
from sgoif.errors import UserError

TASK = "noisy"
UNKNOWN_SECONDS = 45.0  # of a job whose method has not run yet; at most a tenth of all
TELL_EVERY = 30.0


@dataclass(frozen=True)
class Job:
    """One cell, as a batch of its own."""

    dataset: str
    method: str
    number: int


def open_plan(path: Path, workers: int, device: str | None) -> Plan:
    """Return the plan of a configuration with one cell a job and `workers` jobs on a GPU."""
    config = load_config(path)
    config["execution"] |= {"cells_per_job": 1, "jobs_per_gpu": workers, "threads": 1}
    config["execution"]["device"] = device or config["execution"]["device"]
    for spec in config[TASK].values():
        spec.pop("cells_per_job", None)
    return Plan(config)


def reads(method: str) -> Sequence[str]:
    """Return the shared runs that a method reads."""
    name, _ = registry.split_variant(method)
    return () if name in SHARED else registry.declaration(TASK, name).shared_runs


def jobs_in_order(plan: Plan, order: Sequence[dict[str, Any]], have: Collection[Cell]) -> list[Job]:
    """Return the jobs of an order, each once, shared runs before what reads them.

    Args:
        plan: The run's plan, with one cell a job.
        order: Entries with `seeds`, and with `dataset` and `methods` or all of them.
        have: Cells that are not computed again.

    Raises:
        UserError: If an entry names a dataset or method that the run does not have.
    """
    found: dict[Job, None] = {}
    for entry in order:
        for dataset in [entry["dataset"]] if "dataset" in entry else plan.datasets(TASK):
            for method in entry.get("methods") or plan.methods(TASK, dataset):
                plan.require(TASK, dataset, method)
                for number in range(plan.n_batches(TASK, dataset)):
                    cells = [c for c in plan.batch(TASK, dataset, method, number) if c.seed in entry["seeds"]]
                    if any(cell not in have for cell in cells):
                        wanted = [*reads(method), method]
                        found |= dict.fromkeys(Job(dataset, name, number) for name in wanted)
    return list(found)


def published_cells(files: Sequence[Path]) -> set[Cell]:
    """Return the cells that files of records hold; a file that is not there holds none."""
    parts = read_parts([file for file in files if file.is_file()])
    return {Cell(**cell["cell"]) for _, part in parts for cell in part["cells"] if cell["status"] == "ok"}


def batch_file(run_dir: Path, job: Job) -> Path:
    """Return the file that tells that a job is done."""
    return run_dir / "batches" / TASK / job.dataset / job.method / f"{job.number}.json"


def write_labels(plan: Plan, run_dir: Path, jobs: Sequence[Job]) -> None:
    """Write the noisy labels that the jobs read, and set test images aside."""
    root = Path(plan.config["data"]["root"])
    needed = {
        (c.dataset, c.setting, plan.draw(c)) for j in jobs for c in plan.batch(TASK, j.dataset, "plain", j.number)
    }
    for dataset, setting, draw in sorted(needed):
        if not setting_files(run_dir, dataset, setting, draw).labels.is_file():
            write_setting(root, run_dir, dataset, setting, plan.noise(dataset, setting, draw), draw)
    for dataset in {job.dataset for job in jobs}:
        if not held_out_file(run_dir, dataset).is_file():
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
            run_batch(plan, log.parent, TASK, job.dataset, job.method, job.number, config["execution"]["device"])
        except Exception as e:
            traceback.print_exc()
            failure = f"{type(e).__name__}: {e}"
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # for the other processes
        pipe.send((time.monotonic() - began, failure))


@dataclass
class Stretch:
    """Processes and what they have to do.

    Attributes:
        plan: The run's plan.
        run_dir: Folder of the run.
        waiting: Jobs that are not begun, in order.
        until: `time.monotonic()` at which nothing runs any more.
        seconds: Seconds of finished jobs by method.
        failed: Jobs that raised, with the reason.
    """

    plan: Plan
    run_dir: Path
    waiting: list[Job]
    until: float
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    failed: dict[Job, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._undone = set(self.waiting)
        self._unknown = min(UNKNOWN_SECONDS, 0.1 * (self.until - time.monotonic()))
        self._busy: dict[connection.Connection, Job | None] = {}  # None: is starting
        self._idle: list[connection.Connection] = []
        self._processes: list[multiprocessing.process.BaseProcess] = []
        self._told = 0.0

    def run(self, workers: int) -> None:
        """Compute jobs until none is left that fits into the time."""
        for _ in range(min(workers, len(self.waiting))):
            self._start_process()
        try:
            while self._busy and time.monotonic() < self.until:
                for pipe in connection.wait(list(self._busy), timeout=1.0):
                    self._answered(cast("connection.Connection", pipe))
                for pipe, job in zip(list(self._idle), list(self._ready()), strict=False):
                    self._idle.remove(pipe)
                    self.waiting.remove(job)
                    pipe.send(job)
                    self._busy[pipe] = job
                self._tell()
        finally:
            for process in self._processes:
                process.kill()

    def _start_process(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        ours, theirs = spawn.Pipe()
        log = self.run_dir / f"stretch-{len(self._processes)}.log"
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
                raise UserError(f"a process ended before its first job; see {self.run_dir}/stretch-*.log") from None
            self.failed[job] = "its process died"
            self._start_process()
            return
        if job is not None:
            seconds, failure = answer
            self.seconds[job.method].append(seconds)
            self._undone.discard(job)
            if failure:
                self.failed[job] = failure
        self._idle.append(pipe)

    def _ready(self) -> Iterator[Job]:
        """Yield waiting jobs whose shared runs are done and that fit into the time."""
        left = self.until - time.monotonic()
        for job in self.waiting:
            known = self.seconds.get(job.method)
            if (1.2 * statistics.fmean(known) if known else self._unknown) < left and not any(
                Job(job.dataset, run, job.number) in self._undone for run in reads(job.method)
            ):
                yield job

    def _tell(self) -> None:
        if time.monotonic() - self._told > TELL_EVERY:
            self._told = time.monotonic()
            running = sum(job is not None for job in self._busy.values())
            done = sum(map(len, self.seconds.values()))
            print(
                f"{self.until - self._told:.0f} s left: {done} done, {running} running, {len(self.waiting)} waiting",
                flush=True,
            )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "measurement.yaml")
    parser.add_argument("--order", type=Path, default=ROOT / "benchmarks" / "order.yaml")
    parser.add_argument("--datasets", nargs="*", help="only these, because the others are not here")
    parser.add_argument("--published", type=Path, nargs="*", help="files of records whose cells are not computed again")
    parser.add_argument("--seconds", type=float, required=True, help="for the jobs; writing the records comes after")
    parser.add_argument("--workers", type=int, default=8, help="processes that share the GPU")
    parser.add_argument("--device", help="instead of the configuration's")
    parser.add_argument("--commit", default="", help="commit of the code, where git does not tell it")
    parser.add_argument("--note", default="", help="how it was measured, beside the number of processes")
    parser.add_argument("--out", type=Path, required=True, help="file of records (.json.gz)")
    options = parser.parse_args(arguments)
    until = time.monotonic() + options.seconds
    plan = open_plan(options.config, options.workers, options.device)
    run_dir = folder_of(plan.config)
    published = options.published or [ROOT / "results/published/records" / f"{plan.config['run']}.json.gz"]
    jobs = jobs_in_order(plan, yaml.safe_load(options.order.read_text()), published_cells(published))
    jobs = [job for job in jobs if not batch_file(run_dir, job).is_file()]
    jobs = [job for job in jobs if options.datasets is None or job.dataset in options.datasets]
    write_config(run_dir, plan.config)
    write_labels(plan, run_dir, jobs)
    print(f"{len(jobs)} jobs; {until - time.monotonic():.0f} s left", flush=True)
    stretch = Stretch(plan, run_dir, jobs, until)
    stretch.run(options.workers)
    for job, failure in stretch.failed.items():
        print(f"failed: {job.dataset} {job.method} {job.number}: {failure}")
    for method, seconds in stretch.seconds.items():
        print(f"{method}: {len(seconds)} cells of {statistics.fmean(seconds):.1f} s")
    shared = f"{options.workers} processes shared the GPU. " if options.workers > 1 else ""
    note = (shared + options.note).strip()
    _, left_out = export_records(plan, run_dir, options.out, options.commit, note)
    print(*left_out, f"{len(stretch.waiting)} jobs are left", sep="\n", flush=True)


if __name__ == "__main__":
    try:
        main()
    except UserError as e:
        raise SystemExit(f"error: {e}") from e
