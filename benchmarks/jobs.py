"""Runs cells of a configuration outside Snakemake: one process after the other, or several that share a GPU.

The jobs are those of the workflow (`run_batch`), one cell each. What is finished is not computed again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from sgoif.bench.data.holdout import hold_out
from sgoif.bench.data.noisy_labels import write_setting
from sgoif.bench.data.prepare import prepare
from sgoif.bench.execution.plan import Plan
from sgoif.bench.execution.run_batch import run_batch
from sgoif.bench.methods import registry

PAUSE = 60.0  # seconds between two calls of `after`


@dataclass(frozen=True)
class Jobs:
    """The cells of one task and dataset, and where they are computed.

    Attributes:
        config: The resolved configuration, with one cell a job.
        task: "noisy" or "tuning".
        dataset: Name of the dataset.
        folder: Folder of the run.
        workers: Processes at a time; 1 computes in this one.
        until: Time (`time.time()`) after which no further cell is begun.
    """

    config: dict[str, Any]
    task: str
    dataset: str
    folder: Path
    workers: int = 1
    until: float = float("inf")

    def write_inputs(self) -> None:
        """Prepare the dataset and write its labels."""
        plan, data = Plan(self.config), Path(self.config["data"]["root"])
        prepare(self.dataset, data, self.config["data"]["mirror"], self.config["data"]["download"])
        for setting in plan.settings(self.task, self.dataset):
            for draw in plan.draws(self.task, self.dataset, setting):
                noise = plan.noise(self.dataset, setting, draw)
                write_setting(data, self.folder, self.dataset, setting, noise, draw)
        hold_out(data, self.folder, self.dataset, plan.held_out(self.dataset))

    def run(self, methods: Iterable[str], after: Callable[[], Any] = lambda: None) -> int:
        """Compute every cell of methods and of the shared runs that they read, these first.

        Args:
            methods: The methods, in the order in which they are begun.
            after: Called about every minute while methods are computed, and at the end.

        Returns:
            How many jobs were not begun, because the time was over.
        """
        methods = list(methods)
        declared = [registry.declaration("noisy", registry.split_variant(m)[0]) for m in methods]
        shared = list(dict.fromkeys(("plain", *(run for method in declared for run in method.shared_runs))))
        return self._all(shared) + self._all(methods, after)

    def _all(self, methods: list[str], after: Callable[[], Any] = lambda: None) -> int:
        numbers = range(Plan(self.config).n_batches(self.task, self.dataset))
        jobs = [(self, method, number) for method in methods for number in numbers]
        missed, last = 0, time.time()
        for began in self._begin(jobs):
            missed += not began
            if time.time() - last > PAUSE:
                after()
                last = time.time()
        after()
        return missed

    def _begin(self, jobs: list[tuple[Jobs, str, int]]) -> Iterator[bool]:
        if self.workers == 1:
            yield from (_job(*job) for job in jobs)
            return
        with ProcessPoolExecutor(self.workers, get_context("spawn")) as pool:
            for done in as_completed([pool.submit(_job, *job) for job in jobs]):
                yield done.result()


def _job(jobs: Jobs, method: str, number: int) -> bool:
    """Compute one job; False if the time was over before."""
    if time.time() > jobs.until:
        return False
    torch.set_num_threads(1)
    began = time.time()
    run_batch(
        Plan(jobs.config), jobs.folder, jobs.task, jobs.dataset, method, number, jobs.config["execution"]["device"]
    )
    print(f"{method} {number}: {time.time() - began:.1f} s", flush=True)
    return True
