"""Ends the jobs of a run soon after the process that started the run is gone, however that came about.

Snakemake is killed by the kernel when its parent dies. A job is a grandchild of Snakemake behind a shell, so it looks
for the run's process itself, in a thread, once a second. Where there is no /proc nothing is watched.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from sgoif.bench.execution.launch.gpu_slots import place

RUN_PROCESS = "SGOIF_RUN_PROCESS"  # environment variable of all processes of a run
POLL_SECONDS = 1.0
GRACE_SECONDS = 2.0  # for a job that has received the same interrupt as the run and is about to end by itself
_PR_SET_PDEATHSIG = 1


def run_process() -> dict[str, str]:
    """Return the environment variable that names this process as that of the run, for the processes it starts."""
    started = _start_time(os.getpid())
    return {RUN_PROCESS: f"{os.getpid()} {started} {_process_table()}"} if started else {}


def end_with_run() -> threading.Thread | None:
    """Kills this process some seconds after that of its run is gone.

    Returns:
        The thread that watches; None if no run started this process, or one on another machine or in another Slurm job.
    """
    pid, started, table = [*os.environ.get(RUN_PROCESS, "").split(" ", 2), "", "", ""][:3]
    if not pid.isdigit() or int(pid) == os.getpid() or table != _process_table():
        return None
    watch = threading.Thread(target=_watch, args=(int(pid), started), name="end with the run", daemon=True)
    watch.start()
    return watch


def killed_with_parent() -> Callable[[], None] | None:
    """Return what a new process calls before its program starts, so that the kernel kills it when its parent dies.

    None where the kernel cannot do that.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is None:
        return None
    parent = os.getpid()

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the kernel was asked
            os.kill(os.getpid(), signal.SIGKILL)

    return ask


def _watch(pid: int, started: str) -> None:
    while _start_time(pid) == started:
        time.sleep(POLL_SECONDS)
    time.sleep(GRACE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def _start_time(pid: int) -> str:
    """The time a process was started, in ticks since boot; empty if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _process_table() -> str:
    """The machine, Slurm job and container in which a process number means something."""
    try:
        return f"{place()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return place()
