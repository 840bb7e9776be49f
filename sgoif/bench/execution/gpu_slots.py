"""A slot on a particular GPU for each job. Slots are file locks, so they free themselves however a job ends."""

import fcntl
import os
import socket
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from sgoif.errors import UserError


@contextmanager
def slot(folder: Path, jobs_per_gpu: int, count: int = 1, poll: float = 0.5):
    """Waits for free slots on `count` GPUs, then makes only those visible. Yields their numbers, joined by commas, or
    None on a machine without GPUs.

    Must be entered before torch touches CUDA (importing it does not). All or none are taken, so that two jobs that want
    several do not wait for each other.
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


def _take(folder: Path, gpus: list[str], jobs_per_gpu: int, count: int) -> dict[str, IO]:
    """{GPU: locked file} of `count` GPUs, or nothing."""
    taken: dict[str, IO] = {}
    for gpu, n in [(gpu, n) for n in range(jobs_per_gpu) for gpu in gpus]:  # fill the GPUs evenly
        if gpu in taken:
            continue
        handle = open(folder / f"gpu{gpu}-{n}.lock", "w")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            handle.close()
            continue
        taken[gpu] = handle
        if len(taken) == count:
            return taken
    for handle in taken.values():
        handle.close()
    return {}


def place() -> str:
    """Whose GPUs they are: of this machine, or, where Slurm hands them out, of this job (it may count from 0 again)."""
    job = os.environ.get("SLURM_JOB_ID", "")
    return f"{socket.gethostname()}-{job}" if job else socket.gethostname()


def visible_gpus() -> list[str]:
    """The GPUs this process may use, asked without initialising CUDA."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return [g.strip() for g in listed.split(",") if g.strip()]
    folder = Path("/proc/driver/nvidia/gpus")
    if folder.is_dir():
        return [str(i) for i in range(len(list(folder.iterdir())))]
    return [str(i) for i in range(len(list(Path("/dev").glob("nvidia[0-9]*"))))]
