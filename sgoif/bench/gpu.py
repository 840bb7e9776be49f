"""A slot on a particular GPU for each job. Slots are file locks, so they free themselves however a job ends."""

import fcntl
import os
import time
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def slot(folder: Path, jobs_per_gpu: int, poll: float = 0.5):
    """Waits for a free slot, then makes only its GPU visible. Yields its number, or None on a machine without GPUs.

    Must be entered before torch touches CUDA (importing it does not).
    """
    gpus = visible_gpus()
    if not gpus:
        yield None
        return
    folder.mkdir(parents=True, exist_ok=True)
    slots = [(gpu, n) for n in range(jobs_per_gpu) for gpu in gpus]  # fill the GPUs evenly
    while True:
        for gpu, n in slots:
            handle = open(folder / f"gpu{gpu}-{n}.lock", "w")
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                handle.close()
                continue
            os.environ["CUDA_VISIBLE_DEVICES"] = gpu
            try:
                yield gpu
            finally:
                handle.close()
            return
        time.sleep(poll)


def visible_gpus() -> list[str]:
    """The GPUs this process may use, asked without initialising CUDA."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return [g.strip() for g in listed.split(",") if g.strip()]
    folder = Path("/proc/driver/nvidia/gpus")
    if folder.is_dir():
        return [str(i) for i in range(len(list(folder.iterdir())))]
    return [str(i) for i in range(len(list(Path("/dev").glob("nvidia[0-9]*"))))]
