"""Keeps one computation resumable, timed, visible and within its time limit.

A method takes its epochs and its named intermediate results from its session:

    for epoch in session.epochs(recipe.epochs, learner):      # resumes after the last saved epoch
        for batch in batches.epoch(epoch): ...
    fold = session.cached("fold-2", lambda: {"probabilities": ...})   # computed once, read back after a kill

Torch's global generator is re-seeded from (seed, phase, epoch) at each epoch. Nothing random crosses an epoch boundary,
so a resumed run gives the same bits as an uninterrupted one. Counts of forward passes are part of what is saved: a
resumed run counts as many as an uninterrupted one. Seconds are all that were spent, before and after a kill.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from sgoif.backend.collectives import active, size
from sgoif.errors import UserError
from sgoif.training import distributed
from sgoif.training.cost.timers import Timers
from sgoif.training.seeds import mix_seed
from sgoif.utils.files import atomic_write_bytes, is_intact, load_npz, save_npz

FORWARD_PASSES_PREFIX = "passes:"  # before the name of a timer, in the files of `cached`


class Stateful(Protocol):
    """An object whose state is saved between epochs. Its `check_finite()`, if it has one, is called after each."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any], /) -> Any: ...


class OutOfTime(RuntimeError):
    """The computation exceeded its time limit; the cell ends as a typed failure."""


def save_torch(path: Path, value: object) -> None:
    """Write a sealed file with `torch.save`.

    The bytes go through memory: torch's own writer reports a full disk as a RuntimeError without the file's name.
    """
    buffer = io.BytesIO()
    torch.save(value, buffer)
    atomic_write_bytes(path, buffer.getvalue(), seal=True)


class Session:
    """The state of one computation: its folder, seed, device, timers and time limit.

    Attributes:
        timers: Seconds and forward passes by name.
    """

    def __init__(
        self,
        directory: Path | None,
        key: str,
        seed: int,
        device: torch.device | str = "cpu",
        time_limit: float | None = None,
        save_every: float = 30.0,
        label: str = "",
    ) -> None:
        """Open the session's folder, and empty it if it belongs to another key.

        Args:
            directory: Folder for intermediate files, or None to keep everything in memory (tests, notebooks).
            key: Identifies the computation; files of another key are deleted.
            seed: Seed of the run.
            device: Device that is waited for before a clock is read, and onto which saved states are loaded.
            time_limit: Seconds after which `epochs` raises `OutOfTime`; None for no limit.
            save_every: Minimum number of seconds between two saved states.
            label: Text before every line of progress.
        """
        self.directory = None if directory is None else Path(directory)
        self.key = key
        self.seed = seed
        self.device = torch.device(device)
        self.time_limit = time_limit
        self.save_every = save_every
        self.label = label
        self.timers = Timers(self.device)
        if self.directory is not None:
            if distributed.is_main_process():
                self._open(self.directory)
            distributed.barrier()

    def _open(self, directory: Path) -> None:
        """Continue in the folder if it is of this key and whole, else start with an empty one."""
        key_file = directory / "key"
        if key_file.is_file() and key_file.read_text() == self.key:
            times = directory / "times.npz"
            if not times.is_file():
                return
            try:
                self.timers.load(times)
                return
            except (UserError, KeyError, ValueError):  # without its times a half-done cell would look too cheap
                warnings.warn(f"{times} is damaged; the cell starts over", stacklevel=2)
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        key_file.write_text(self.key)

    def timer(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Measure the work inside a `with` block under `name`; see `Timers.timer`."""
        return self.timers.timer(name)

    def check_time(self) -> None:
        """Raise `OutOfTime` if any process has exceeded the time limit."""
        spent = self.timers.total_seconds()
        if self.time_limit and distributed.any_process(spent > self.time_limit):
            raise OutOfTime(f"stopped after {spent:.0f} s (time limit {self.time_limit:.0f} s)")

    # --- epochs and phases ------------------------------------------------------------------------------------------

    def epochs(self, n: int, *stateful: Stateful, phase: str = "train", timer: str = "train") -> Iterator[int]:
        """Yield the epochs that are still to do.

        Args:
            n: Number of epochs of this phase.
            *stateful: Objects that are saved between epochs and restored when the phase resumes.
            phase: Name of the phase: of its file and of its random numbers.
            timer: Name under which the body of the loop is measured.

        Yields:
            The epoch, counted from 0.

        Raises:
            OutOfTime: If the time limit is exceeded.
            Diverged: If a learner's loss is not finite.
        """
        start = self._restore(phase, stateful)
        saved_at = time.perf_counter()
        for epoch in range(start, n):
            torch.manual_seed(mix_seed(self.seed, phase, epoch))
            with self.timer(timer):
                yield epoch
                for thing in stateful:
                    if hasattr(thing, "check_finite"):
                        thing.check_finite()
            self.check_time()
            done = epoch + 1
            self.progress(f"{phase}: epoch {done}/{n}", done=done == n, share=done / n)
            if done < n and distributed.any_process(time.perf_counter() - saved_at > self.save_every):
                self._save(phase, done, stateful)
                saved_at = time.perf_counter()

    def _save(self, phase: str, epoch: int, stateful: Sequence[Stateful]) -> None:
        if self.directory is None:
            return
        state = {
            "epoch": epoch,
            "passes": self.timers.current_forward_passes(),
            "states": [thing.state_dict() for thing in stateful],
        }
        save_torch(self._state_file(self.directory, phase), state)
        if distributed.is_main_process():
            self.timers.save(self.directory / "times.npz")

    def _restore(self, phase: str, stateful: Sequence[Stateful]) -> int:
        """Load the saved state of a phase and return its next epoch; 0 if there is none in all processes alike."""
        saved = None if self.directory is None else self._load_state(self._state_file(self.directory, phase))
        epoch: int = saved["epoch"] if saved else 0
        if not distributed.all_equal(epoch) or saved is None:  # killed while saving: start over
            return 0
        for thing, state in zip(stateful, saved["states"], strict=True):
            thing.load_state_dict(state)
        self.timers.restore_forward_passes(saved["passes"])
        self.progress(f"{phase}: resumed after epoch {epoch}", done=True)
        return epoch

    def _state_file(self, directory: Path, phase: str) -> Path:
        """The file of a phase's state. Each of several processes has its own."""
        suffix = f"-{distributed.rank()}of{size()}" if active() else ""
        return directory / f"{phase}{suffix}.pt"

    def _load_state(self, path: Path) -> dict[str, Any] | None:
        """The saved state, or None; a damaged file is deleted."""
        if not path.is_file():
            return None
        try:
            if not is_intact(path):
                raise UserError("sha256 differs")
            state: dict[str, Any] = torch.load(path, map_location=self.device, weights_only=True)
            return state
        except Exception as e:
            warnings.warn(f"{path} is damaged ({type(e).__name__}); this phase starts over", stacklevel=4)
            path.unlink()
            return None

    # --- intermediate results ---------------------------------------------------------------------------------------

    def cached(self, name: str, compute: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Return the arrays of `compute()`, and keep them on disk so that a killed job does not compute them twice.

        Args:
            name: Name of the file, without its ending.
            compute: Called unless every process could read the file.

        Returns:
            The arrays by name.
        """
        path = None if self.directory is None else self.directory / f"{name}.npz"
        kept = _read_cached(path)
        missing = distributed.any_process(kept is None)
        if kept is not None and not missing:
            counts = _pop_forward_passes(kept)
            self.timers.restore_forward_passes(counts if distributed.is_main_process() else dict.fromkeys(counts, 0))
            return kept
        arrays = compute()
        counts = self.timers.total_forward_passes()
        if self.directory is not None and path is not None and distributed.is_main_process():
            save_npz(path, **arrays, **{FORWARD_PASSES_PREFIX + k: np.array(count) for k, count in counts.items()})
            self.timers.save(self.directory / "times.npz")
        return arrays

    def clear(self) -> None:
        """Delete the intermediate files, once the cell's result is written."""
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)

    # --- progress ---------------------------------------------------------------------------------------------------

    def progress(self, text: str, done: bool = False, share: float | None = None) -> None:
        """Print progress to stderr: a bar rewritten in place on a terminal, one line per phase in a log.

        Args:
            text: What is going on.
            done: Whether this is the last message of its phase.
            share: Finished share of the phase in [0, 1], drawn as a bar.
        """
        if not distributed.is_main_process():
            return
        if sys.stderr.isatty():
            bar = "" if share is None else f"[{'#' * round(20 * share):20s}] "
            print(f"\r\033[K{self.label} {bar}{text}", end="\n" if done else "", file=sys.stderr, flush=True)
        elif done:
            print(f"{self.label} {text}", file=sys.stderr, flush=True)


def _read_cached(path: Path | None) -> dict[str, np.ndarray] | None:
    """The arrays of a file of `Session.cached`, or None if it is missing or damaged."""
    if path is None or not path.is_file():
        return None
    try:
        return load_npz(path)
    except UserError:
        warnings.warn(f"{path} is damaged; computing it again", stacklevel=3)
        return None


def _pop_forward_passes(arrays: dict[str, np.ndarray]) -> dict[str, int]:
    """Take the counts of forward passes by timer out of the arrays of a cached file."""
    names = [name for name in arrays if name.startswith(FORWARD_PASSES_PREFIX)]
    return {name.removeprefix(FORWARD_PASSES_PREFIX): int(arrays.pop(name)) for name in names}
