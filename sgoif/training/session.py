"""What keeps a cell's computation resumable, timed, visible and inside its budget.

A method asks its session for epochs and for named intermediate results:

    for epoch in session.epochs(recipe.epochs, learner):      # resumes after the last saved epoch
        for batch in batches.epoch(epoch): ...
    fold = session.cached("fold-2", lambda: {"probabilities": ...})   # computed once, read back after a kill

Torch's global generator is re-seeded from (seed, phase, epoch) at each epoch, so that nothing random crosses an epoch
boundary and a resumed run gives the same bits as an uninterrupted one. Passes of images through networks belong to what
is saved: a resumed run has done, by its own count, as much as an uninterrupted one. Seconds are all that were spent.
"""

import contextlib
import io
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from sgoif.backend.collectives import active, size
from sgoif.errors import UserError
from sgoif.training import distributed
from sgoif.training.compute_counter import WORK
from sgoif.training.images import mix_seed
from sgoif.utils.files import atomic_write_bytes, is_intact, load_npz, save_npz

PASSES = "passes:"  # before the name of an account, in what `cached` keeps


def save_torch(path: Path, value: object) -> None:
    """torch.save, sealed. Through memory: torch's own writer tells of a full disk as a RuntimeError without a name."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    atomic_write_bytes(path, buffer.getvalue(), seal=True)


class OutOfTime(RuntimeError):
    """The cell overran its time limit; it ends as a typed failure."""


class Session:
    """State of one cell's computation. `directory=None` keeps everything in memory (tests, notebooks)."""

    def __init__(
        self,
        directory: Path | None,
        key: str,
        seed: int,
        device: torch.device | str = "cpu",
        time_limit: float | None = None,
        save_every: float = 30.0,
        label: str = "",
    ):
        self.directory = None if directory is None else Path(directory)
        self.key, self.seed, self.device = key, seed, torch.device(device)
        self.time_limit, self.save_every, self.label = time_limit, save_every, label
        self.seconds: dict[str, float] = {}
        self.cpu_seconds: dict[str, float] = {}
        self.passes: dict[str, int] = {}
        self._running: list[str] = []
        self._at = (0.0, 0.0, 0)
        self._claim()

    def _claim(self) -> None:
        """Intermediate files of another key are of no use: start with an empty folder."""
        if self.directory is None:
            return
        if distributed.first():
            self._take_over()
        distributed.wait()

    def _take_over(self) -> None:
        stamp = self.directory / "key"
        if stamp.is_file() and stamp.read_text() == self.key:
            if not (times := self.directory / "times.npz").is_file():
                return
            try:
                saved = load_npz(times)
                self.seconds = dict(zip(saved["names"].tolist(), saved["seconds"].tolist(), strict=True))
                self.cpu_seconds = dict(zip(saved["names"].tolist(), saved["cpu_seconds"].tolist(), strict=True))
                return
            except (UserError, KeyError, ValueError):  # without its times a half-done cell would look too cheap
                warnings.warn(f"{times} is damaged; the cell starts over", stacklevel=2)
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        stamp.write_text(self.key)

    # --- time -------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Adds wall and CPU seconds and passes to the account `name`; a nested account is not counted in its outer
        one."""
        self._settle()
        self._running.append(name)
        try:
            yield
        finally:
            self._settle()
            self._running.pop()

    def _settle(self) -> None:
        """Books what came since the last settlement on the innermost account."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        now = time.perf_counter(), time.process_time(), WORK.passes
        if self._running:
            name, accounts = self._running[-1], (self.seconds, self.cpu_seconds, self.passes)
            for account, value, before in zip(accounts, now, self._at, strict=True):
                account[name] = account.get(name, 0) + value - before
        self._at = now

    def total_passes(self) -> dict[str, int]:
        """By account, of all processes together."""
        self._settle()
        return {name: int(distributed.total(self.passes[name])) for name in sorted(self.passes)}

    def move(self, name: str, other: str, seconds: float) -> None:
        """Books `seconds` of wall-clock, or as many as there are, on another account."""
        seconds = min(seconds, self.seconds.get(name, 0.0))
        if seconds:
            self.seconds[name] -= seconds
            self.seconds[other] = self.seconds.get(other, 0.0) + seconds

    def check_time(self) -> None:
        if self.time_limit and distributed.any_of(sum(self.seconds.values()) > self.time_limit):
            raise OutOfTime(f"stopped after {sum(self.seconds.values()):.0f} s (time limit {self.time_limit:.0f} s)")

    # --- epochs and phases ------------------------------------------------------------------------------------------

    def epochs(self, n: int, *stateful, phase: str = "train", account: str = "train") -> Iterator[int]:
        """Yields the epochs still to do. `stateful` objects (state_dict / load_state_dict) are saved between epochs."""
        start = self._restore(phase, stateful)
        saved_at = time.perf_counter()
        for epoch in range(start, n):
            torch.manual_seed(mix_seed(self.seed, phase, epoch))
            with self.timed(account):
                yield epoch
                for thing in stateful:
                    if hasattr(thing, "check_finite"):
                        thing.check_finite()
            self.check_time()
            self.say(f"{phase}: epoch {epoch + 1}/{n}", done=epoch + 1 == n, share=(epoch + 1) / n)
            if epoch + 1 < n and distributed.any_of(time.perf_counter() - saved_at > self.save_every):
                self._save(phase, epoch + 1, stateful)
                saved_at = time.perf_counter()

    def cached(self, name: str, compute: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """The arrays `compute()` gives, kept on disk so that a killed job does not compute them twice."""
        path = None if self.directory is None else self.directory / f"{name}.npz"
        kept = None
        if path is not None and path.is_file():
            try:
                kept = load_npz(path)
            except UserError:
                warnings.warn(f"{path} is damaged; computing it again", stacklevel=2)
        if not distributed.any_of(kept is None):
            passes = {k.removeprefix(PASSES): int(kept.pop(k)) for k in list(kept) if k.startswith(PASSES)}
            self._go_on(passes if distributed.first() else dict.fromkeys(passes, 0))
            return kept
        arrays = compute()
        passes = self.total_passes()
        if path is not None and distributed.first():
            save_npz(path, **arrays, **{PASSES + name: np.array(count) for name, count in passes.items()})
            self._save_times()
        return arrays

    def _go_on(self, passes: dict[str, int]) -> None:
        """Counts from where something was saved."""
        self._settle()
        self.passes = passes

    def _save(self, phase: str, epoch: int, stateful) -> None:
        if self.directory is None:
            return
        self._settle()
        states = [s.state_dict() for s in stateful]
        save_torch(self._state(phase), {"epoch": epoch, "passes": dict(self.passes), "states": states})
        if distributed.first():
            self._save_times()

    def _state(self, phase: str) -> Path:
        """Where a phase is saved. Of several processes each has a state of its own."""
        which = f"-{distributed.rank()}of{size()}" if active() else ""
        return self.directory / f"{phase}{which}.pt"

    def _save_times(self) -> None:
        self._settle()
        names = sorted(self.seconds)
        save_npz(
            self.directory / "times.npz",
            names=np.array(names, dtype="U32"),
            seconds=np.array([self.seconds[n] for n in names]),
            cpu_seconds=np.array([self.cpu_seconds[n] for n in names]),
        )

    def _restore(self, phase: str, stateful) -> int:
        saved = None if self.directory is None else self._saved(self._state(phase))
        if not distributed.same(saved["epoch"] if saved else 0) or saved is None:  # killed while saving: start over
            return 0
        for thing, state in zip(stateful, saved["states"], strict=True):
            thing.load_state_dict(state)
        self._go_on(saved["passes"])
        self.say(f"{phase}: resumed after epoch {saved['epoch']}", done=True)
        return saved["epoch"]

    def _saved(self, path: Path) -> dict | None:
        if not path.is_file():
            return None
        try:
            if not is_intact(path):
                raise UserError("sha256 differs")
            return torch.load(path, map_location=self.device, weights_only=True)
        except Exception as e:
            warnings.warn(f"{path} is damaged ({type(e).__name__}); this phase starts over", stacklevel=4)
            path.unlink()
            return None

    def clear(self) -> None:
        """Removes the intermediate files once the cell's result is safely written."""
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)

    # --- progress ---------------------------------------------------------------------------------------------------

    def say(self, text: str, done: bool = False, share: float | None = None) -> None:
        """Progress: a bar rewritten in place on a terminal, one plain line per phase in a log."""
        if not distributed.first():
            return
        if sys.stderr.isatty():
            bar = "" if share is None else f"[{'#' * round(20 * share):20s}] "
            print(f"\r\033[K{self.label} {bar}{text}", end="\n" if done else "", file=sys.stderr, flush=True)
        elif done:
            print(f"{self.label} {text}", file=sys.stderr, flush=True)
