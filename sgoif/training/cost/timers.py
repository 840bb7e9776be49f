"""Wall-clock seconds, CPU seconds and forward passes of a computation, by named timer."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from sgoif.training import distributed
from sgoif.training.cost.compute_counter import COMPUTE
from sgoif.utils.files import load_npz, save_npz


class Timers:
    """Measures stretches of work under names; time inside a nested timer is not counted in its outer one.

    Attributes:
        seconds: Wall-clock seconds by timer.
        cpu_seconds: CPU seconds of this process by timer.
        forward_passes: Images passed through networks by timer (see `ComputeCounter`).
    """

    def __init__(self, device: torch.device) -> None:
        """Start without any timer.

        Args:
            device: Its pending work is waited for before the clock is read.
        """
        self.device = device
        self.seconds: dict[str, float] = {}
        self.cpu_seconds: dict[str, float] = {}
        self.forward_passes: dict[str, int] = {}
        self._running: list[str] = []
        self._last_seconds = 0.0
        self._last_cpu_seconds = 0.0
        self._last_forward_passes = 0

    @contextlib.contextmanager
    def timer(self, name: str) -> Iterator[None]:
        """Measure the work inside under `name`."""
        self._flush()
        self._running.append(name)
        try:
            yield
        finally:
            self._flush()
            self._running.pop()

    def _flush(self) -> None:
        """Add what came since the last flush to the innermost running timer."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        seconds, cpu_seconds, forward_passes = time.perf_counter(), time.process_time(), COMPUTE.forward_passes
        if self._running:
            name = self._running[-1]
            self.seconds[name] = self.seconds.get(name, 0) + seconds - self._last_seconds
            self.cpu_seconds[name] = self.cpu_seconds.get(name, 0) + cpu_seconds - self._last_cpu_seconds
            more = forward_passes - self._last_forward_passes
            self.forward_passes[name] = self.forward_passes.get(name, 0) + more
        self._last_seconds = seconds
        self._last_cpu_seconds = cpu_seconds
        self._last_forward_passes = forward_passes

    def total_seconds(self) -> float:
        """Return the wall-clock seconds of all timers together."""
        return sum(self.seconds.values())

    def current_forward_passes(self) -> dict[str, int]:
        """Return a copy of this process's forward passes by timer, up to now."""
        self._flush()
        return dict(self.forward_passes)

    def total_forward_passes(self) -> dict[str, int]:
        """Return the forward passes by timer, summed over all processes."""
        counts = self.current_forward_passes()
        return {name: int(distributed.sum_over_processes(counts[name])) for name in sorted(counts)}

    def restore_forward_passes(self, counts: dict[str, int]) -> None:
        """Continue counting forward passes from saved counts."""
        self._flush()
        self.forward_passes = counts

    def reassign(self, name: str, other: str, seconds: float) -> None:
        """Move wall-clock seconds from one timer to another.

        Args:
            name: The timer they are taken from.
            other: The timer they are added to.
            seconds: How many; at most as many as `name` has are moved.
        """
        seconds = min(seconds, self.seconds.get(name, 0.0))
        if seconds:
            self.seconds[name] -= seconds
            self.seconds[other] = self.seconds.get(other, 0.0) + seconds

    def save(self, path: Path) -> None:
        """Write wall-clock and CPU seconds to an npz file."""
        self._flush()
        names = sorted(self.seconds)
        save_npz(
            path,
            names=np.array(names, dtype="U32"),
            seconds=np.array([self.seconds[n] for n in names]),
            cpu_seconds=np.array([self.cpu_seconds[n] for n in names]),
        )

    def load(self, path: Path) -> None:
        """Read wall-clock and CPU seconds from a file of `save`.

        Raises:
            UserError, KeyError or ValueError: If the file is damaged; the timers then stay as they were.
        """
        saved = load_npz(path)
        names = saved["names"].tolist()
        seconds = dict(zip(names, saved["seconds"].tolist(), strict=True))
        cpu_seconds = dict(zip(names, saved["cpu_seconds"].tolist(), strict=True))
        self.seconds, self.cpu_seconds = seconds, cpu_seconds
