"""How long jobs take together on several GPUs.

Jobs start in order of the longest chain behind them, on the first GPUs that are free, after the shared runs they read.
A job of several processes takes a GPU for each, as far as there are, and needs that fraction of its time: what it loses
to messages between them was never measured.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from sgoif.training.distributed import fitting

JobName = tuple[str, str, str, int]  # task, dataset, method, number


@dataclass
class Job:
    """A batch of cells, which Snakemake starts as one job.

    Attributes:
        name: Task, dataset, method and number.
        seconds: Estimated seconds.
        cells: Number of cells.
        after: Names of the jobs whose results it reads.
        processes: GPUs that it takes where there are as many; it then needs that fraction of its time.
    """

    name: JobName
    seconds: float = 0.0
    cells: int = 0
    after: tuple[JobName, ...] = ()
    processes: int = 1

    def width(self, gpus: int) -> int:
        """Return how many of so many GPUs it takes."""
        return fitting(self.processes, gpus)


def schedule_hours(jobs: Iterable[Job], gpus: int) -> float:
    """Return the length of the schedule on so many GPUs in hours."""
    by_name = {job.name: job for job in jobs}
    takes = {job.name: job.seconds / job.width(gpus) for job in by_name.values()}
    behind = {name: 0.0 for name in by_name}
    for job in by_name.values():
        for name in job.after:
            behind[name] = max(behind[name], takes[job.name])
    free = [0.0] * gpus
    done: dict[JobName, float] = {}
    order = sorted(by_name.values(), key=lambda j: (-(takes[j.name] + behind[j.name]), j.name))
    for job in [j for j in order if not j.after] + [j for j in order if j.after]:
        ready = max((done[name] for name in job.after), default=0.0)
        taken = [heapq.heappop(free) for _ in range(job.width(gpus))]
        done[job.name] = max([ready, *taken]) + takes[job.name]
        for _ in taken:
            heapq.heappush(free, done[job.name])
    return max(done.values(), default=0.0) / 3600
