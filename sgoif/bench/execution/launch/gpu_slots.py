"""Gives each job a slot on a particular GPU. Slots are file locks, so they are free again however a job ends."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from sgoif.errors import UserError
from sgoif.utils.files import try_lock


@contextmanager
def slot(folder: Path, jobs_per_gpu: int, count: int = 1, poll: float = 0.5) -> Iterator[str | None]:
    """Wait for free slots on `count` GPUs, then make only those GPUs visible.

    Must be entered before torch initialises CUDA (importing torch does not). All slots or none are taken, so that two
    jobs that need several do not wait for each other.

    Args:
        folder: Where the lock files are.
        jobs_per_gpu: Slots of each GPU.
        count: How many GPUs the job needs.
        poll: Seconds between two attempts.

    Yields:
        The numbers of the GPUs, joined by commas, or None on a machine without GPUs.

    Raises:
        UserError: If there are fewer GPUs than the job needs, or the file system has no locks.
    """
    gpus = visible_gpus()
    if not gpus:
        yield None
        return
    if count > len(gpus):
        raise UserError(f"execution.processes: {count} processes need a GPU each, and {len(gpus)} can be used here")
    folder.mkdir(parents=True, exist_ok=True)
    while not (taken := _take(folder, gpus, jobs_per_gpu, count)):
        time.sleep(poll)
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(taken)
    try:
        yield os.environ["CUDA_VISIBLE_DEVICES"]
    finally:
        for handle in taken.values():
            handle.close()


def _take(folder: Path, gpus: Sequence[str], jobs_per_gpu: int, count: int) -> dict[str, IO[str]]:
    """Locks one slot on each of `count` GPUs and returns the lock files by GPU, or nothing if too few are free."""
    taken: dict[str, IO[str]] = {}
    for gpu, n in [(gpu, n) for n in range(jobs_per_gpu) for gpu in gpus]:  # fill the GPUs evenly
        if gpu in taken:
            continue
        handle = open(folder / f"gpu{gpu}-{n}.lock", "w")
        state = try_lock(handle)
        if state != "held":
            handle.close()
            if state == "unsupported":
                raise UserError(
                    f"{folder}: this file system has no locks, by which jobs share the GPUs; "
                    "put a link to a folder on a local disk in its place and run again"
                )
            continue
        taken[gpu] = handle
        if len(taken) == count:
            return taken
    for taken_handle in taken.values():
        taken_handle.close()
    return {}


def place() -> str:
    """Return the name of the pool of GPUs: this machine or, under Slurm, this job, whose GPUs may count from 0."""
    job = os.environ.get("SLURM_JOB_ID", "")
    return f"{socket.gethostname()}-{job}" if job else socket.gethostname()


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, without initialising CUDA."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return [g.strip() for g in listed.split(",") if g.strip()]
    folder = Path("/proc/driver/nvidia/gpus")
    if folder.is_dir():
        return [str(i) for i in range(len(list(folder.iterdir())))]
    return [str(i) for i in range(len(list(Path("/dev").glob("nvidia[0-9]*"))))]
