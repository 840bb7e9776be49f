"""Computes cells of a configuration for a given number of seconds, in several processes that share one GPU.

For a machine that is there for minutes and has no Snakemake. The jobs are those of the workflow (`run_batch`), one cell
each, in the order of a file; variants of SG-OIF that differ in `InfluenceConfig` alone watch one training together
(`run_together`). What is finished on this machine, stands in published records, or was written on a machine before
(`--kept`) is not computed again, but for what others read (a plain training); its published records stay.
Every few minutes and at the end all that is finished is written to `--out` (`export-records`), so that a machine which
is taken away costs minutes; `pack-records` adds it to what is published. A job is begun only if there is time for it,
as told by the jobs of its method before. The time for the last writing is taken from the jobs, as told by the writing
before.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import multiprocessing
import statistics
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.common import ROOT, run_command
from benchmarks.processes import Job, Processes, jobs_in_order, watching_together, with_one_cell_a_job, write_labels
from sgoif.bench.config import load_config
from sgoif.bench.execution.plan import Cell, Plan
from sgoif.bench.run_folder import folder_of, write_config
from sgoif.bench.sharing.export import export_records
from sgoif.bench.sharing.records_file import read_parts
from sgoif.errors import UserError

WRITE_EVERY = 150.0  # seconds between two times that records are written
NOT_BEFORE_END = 75.0  # so many seconds before the end none is begun: what is written then would be waited for
LAST_WRITING = 40.0  # seconds that are kept for the last writing, unless the one before took longer
GROWTH = 1.5  # the last writing has more cells than the one before, which it is compared with


def open_plan(path: Path, workers: int, device: str | None) -> Plan:
    """Return the plan of a configuration with one cell a job and `workers` jobs on a GPU."""
    config = load_config(path)
    on = device or config["execution"]["device"]
    return with_one_cell_a_job(config, jobs_per_gpu=workers, threads=1, device=on)


def published_cells(files: Sequence[Path], again: Collection[str] = (), kept: Sequence[Path] = ()) -> set[Cell]:
    """Return the cells that files of records hold, but those of methods that are computed again.

    A file that is not there holds none.

    Args:
        files: What is published.
        again: Methods whose published cells do not count.
        kept: What a machine has written that is gone; these cells count, whatever their method.
    """
    return {cell for cell in _cells_of(files) if cell.method not in again} | _cells_of(kept)


def _cells_of(files: Sequence[Path]) -> set[Cell]:
    parts = read_parts([file for file in files if file.is_file()])
    return {Cell(**cell["cell"]) for _, part in parts for cell in part["cells"] if cell["status"] == "ok"}


def batch_file(run_dir: Path, job: Job) -> Path:
    """Return the file that tells that a job is done."""
    return run_dir / "batches" / job.task / job.dataset / job.method / f"{job.number}.json"


class RecordsWriter:
    """Writes the records of what is finished in a process of its own, so that jobs are begun meanwhile.

    Args:
        plan: The run's plan.
        run_dir: Folder of the run.
        out: File of records.
        commit: Commit of cells that do not know theirs.
        note: How the cells were measured.
        published: Cells that are not written, because others wrote them before.
        until: `time.monotonic()` at which all is over, the last writing too.
    """

    def __init__(
        self, plan: Plan, run_dir: Path, out: Path, commit: str, note: str, published: set[Cell], until: float
    ) -> None:
        self._spawn = multiprocessing.get_context("spawn")
        self._took = self._spawn.Value("d", 0.0)  # seconds of the writing before
        self._arguments = (plan, run_dir, out, commit, note, published, self._took)
        self._until = until
        self._process: multiprocessing.process.BaseProcess | None = None
        self._began = -math.inf

    @property
    def last_seconds(self) -> float:
        """Seconds to keep for the last writing."""
        return max(LAST_WRITING, GROWTH * self._took.value)

    def begin(self) -> None:
        """Begin to write, unless that was done lately or the end is near: every cell is evaluated again."""
        now = time.monotonic()
        left = self._until - now - self.last_seconds
        due = now - self._began > WRITE_EVERY and left > max(NOT_BEFORE_END, GROWTH * self._took.value)
        if due and not (self._process and self._process.is_alive()):
            self._began = now
            self._process = self._spawn.Process(target=_write_records, args=self._arguments)
            self._process.start()

    def wait(self) -> None:
        """Wait until nothing is being written."""
        if self._process is not None:
            self._process.join()


def _write_records(
    plan: Plan, run_dir: Path, out: Path, commit: str, note: str, published: set[Cell], took: Any
) -> None:
    began = time.monotonic()
    with contextlib.suppress(UserError):  # nothing is finished yet
        export_records(plan, run_dir, out, commit, note, published)
    took.value = time.monotonic() - began


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "measurement.yaml")
    parser.add_argument("--order", type=Path, default=ROOT / "benchmarks" / "order.yaml")
    parser.add_argument("--datasets", nargs="*", help="only these, because the others are not here")
    parser.add_argument("--published", type=Path, nargs="*", help="files of records whose cells are not computed again")
    parser.add_argument("--again", nargs="*", default=[], help="methods whose published cells are computed again")
    parser.add_argument("--kept", type=Path, nargs="*", default=[], help="what this wrote on a machine that is gone")
    parser.add_argument("--seconds", type=float, required=True, help="for all of it, the last writing too")
    parser.add_argument("--workers", type=int, default=8, help="processes that share the GPU")
    parser.add_argument("--device", help="instead of the configuration's")
    parser.add_argument("--commit", default="", help="commit of the code, where git does not tell it")
    parser.add_argument("--note", default="", help="how it was measured, beside the number of processes")
    parser.add_argument("--out", type=Path, required=True, help="file of records (.json.gz)")
    options = parser.parse_args(arguments)
    until = time.monotonic() + options.seconds
    plan = open_plan(options.config, options.workers, options.device)
    run_dir = folder_of(plan.config)
    files = options.published or [ROOT / "results/published/records" / f"{plan.config['run']}.json.gz"]
    published = published_cells(files, options.again, options.kept)
    jobs = jobs_in_order(plan, yaml.safe_load(options.order.read_text()), published)
    jobs = [job for job in jobs if not batch_file(run_dir, job).is_file()]
    jobs = [job for job in jobs if options.datasets is None or job.dataset in options.datasets]
    jobs = watching_together(plan, jobs)
    write_config(run_dir, plan.config)
    write_labels(plan, run_dir, jobs)
    print(f"{len(jobs)} jobs; {until - time.monotonic():.0f} s left", flush=True)
    place = "machine" if plan.config["execution"]["device"] == "cpu" else "GPU"
    shared = f"{options.workers} processes shared the {place}. " if options.workers > 1 else ""
    note = (shared + options.note).strip()
    records = RecordsWriter(plan, run_dir, options.out, options.commit, note, published, until)
    stretch = Processes("stretch", plan, run_dir, jobs, until - records.last_seconds)

    def report() -> None:
        records.begin()
        stretch.until = until - records.last_seconds

    stretch.report = report
    stretch.run(options.workers)
    records.wait()
    for job, failure in stretch.failed.items():
        print(f"failed: {job.dataset} {job.method} {job.number}: {failure}")
    for method, seconds in stretch.seconds.items():
        print(f"{method}: {len(seconds)} cells of {statistics.fmean(seconds):.1f} s")
    _, left_out = export_records(plan, run_dir, options.out, options.commit, note, published)
    print(*left_out, f"{len(stretch.waiting)} jobs are left", sep="\n", flush=True)


if __name__ == "__main__":
    run_command(main)
