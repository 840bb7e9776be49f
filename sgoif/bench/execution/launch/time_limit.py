"""Ends Snakemake in time, so that a run can be computed in stretches; the next one goes on where it was.

Shortly before the time is up no new job is started. When it is up the jobs end; each goes on from its last saved state.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

TIME_IS_UP = 75  # exit status of a run that is not finished: try again
RESERVE = 0.1  # share of the time, the last one, in which no job is started
MAX_RESERVE_SECONDS = 30.0
SECONDS_TO_END = 5.0  # for Snakemake, after an interrupt


@contextlib.contextmanager
def ended_in_time(process: subprocess.Popen[bytes], seconds: float | None) -> Iterator[threading.Event]:
    """End a process that takes too long: first asked to start nothing new, then interrupted, then killed.

    Args:
        process: Snakemake, or any process that does not start jobs after SIGTERM and ends by SIGINT.
        seconds: Its time; None for any.

    Yields:
        An event that is set once the process was asked.
    """
    asked, over = threading.Event(), threading.Event()
    if seconds is None:
        yield asked
        return
    reserve = min(RESERVE * seconds, MAX_RESERVE_SECONDS)

    def watch() -> None:
        if over.wait(seconds - reserve) or process.poll() is not None:
            return
        asked.set()
        process.send_signal(signal.SIGTERM)
        if over.wait(reserve) or process.poll() is not None:
            return
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS_TO_END)
        process.kill()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield asked
    finally:
        over.set()
        watcher.join()


def run_in_order(configs: Sequence[Path], seconds: float, run: Callable[[Path, float], int]) -> int:
    """Run configurations one after another until the time is up.

    Args:
        configs: The configurations, the most important first. One that is finished costs seconds.
        seconds: The time of all together.
        run: Runs a configuration for at most so many seconds and returns an exit status.

    Returns:
        0 if all are finished, `TIME_IS_UP`, or the status of the first one that failed; the others are run all the
        same.
    """
    end, failed, told = time.monotonic() + seconds, 0, ""
    for config in configs:
        left = end - time.monotonic()
        status = run(config, left) if left > 0 else TIME_IS_UP
        if status == TIME_IS_UP:
            print(f"The time is up in {config}; the same command goes on from there{told}.", flush=True)
            return failed or TIME_IS_UP
        if status and not failed:
            failed, told = status, f". {config} had failed: see the error above"
    return failed
