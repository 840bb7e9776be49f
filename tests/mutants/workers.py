"""Copies of the project, and what pytest says in them.

Each worker has a copy of its own in a temporary folder. Its bytecode is checked by hash, so that a mutated file is
compiled anew even if its size and time are those of the original.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.record import RECORD

LEFT_OUT = ("results", "data", "parcel", "mlruns", "build", "dist")
NOTHING_RAN = 5  # pytest's exit status


@dataclass(frozen=True)
class Run:
    """What pytest said of some tests."""

    outcomes: dict[str, str]  # of each test that began: passed, skipped, failed, or started if it did not end
    killer: str | None  # the first test that failed or did not end
    reason: str
    seconds: float
    timed_out: bool
    status: int


class Worker:
    """One copy of the project, used by one mutant at a time.

    Args:
        root: The project.
        folder: Where to put the copy; must not exist.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen | None = None
        self.stopped = False
        folder.mkdir(parents=True)
        for source in root.iterdir():
            if source.name.startswith(".") or source.name in LEFT_OUT:
                continue
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
                shutil.copytree(source, folder / source.name, ignore=ignored)
            else:
                shutil.copy2(source, folder)
        compile_all = ["compileall", "-q", "--invalidation-mode", "checked-hash", "sgoif", "baselines", "tests"]
        subprocess.run([sys.executable, "-m", *compile_all], cwd=folder, check=True, stdout=subprocess.DEVNULL)

    @contextlib.contextmanager
    def mutated(self, file: str, source: str) -> Iterator[None]:
        """Hold a mutated file in the copy inside a `with` block."""
        path = self.folder / file
        original = path.read_bytes()
        path.write_text(source)
        try:
            yield
        finally:
            path.write_bytes(original)

    def pytest(self, choices: Sequence[str], limit: float, *options: str) -> Run:
        """Run tests in the copy, in the order given.

        Args:
            choices: Test files or tests.
            limit: Seconds after which pytest and its children are killed.
            options: Further options of pytest.
        """
        self._check_stopped()
        scratch = self.folder / ".scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.mutants.record",
                   "--basetemp", str(scratch / "pytest"), *options, *choices]  # fmt: skip
        record = scratch / "record"
        record.touch()
        begin = time.monotonic()
        with open(scratch / "output", "wb") as output:
            process = self.process = subprocess.Popen(command, cwd=self.folder, env=self._environment(scratch, record),
                                       stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                       start_new_session=True)  # fmt: skip
            try:
                status, timed_out = process.wait(limit), False
            except subprocess.TimeoutExpired:
                status, timed_out = -signal.SIGKILL, True
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._check_stopped()
        lines = [json.loads(line) for line in record.read_text().splitlines() if line.endswith("]")]
        return read_run(lines, status, timed_out, time.monotonic() - begin, scratch / "output")

    def stop(self) -> None:
        """Kill the tests that run; whoever waits for them gets an InterruptedError instead of an outcome."""
        self.stopped = True
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def _check_stopped(self) -> None:
        if self.stopped:
            raise InterruptedError("mutants: stopped")

    def _environment(self, scratch: Path, record: Path) -> dict[str, str]:
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        found = os.pathsep.join(filter(None, (str(self.folder), os.environ.get("PYTHONPATH"))))
        paths = {"PYTHONPATH": found, "TMPDIR": str(scratch), RECORD: str(record)}
        plain = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        return {**os.environ, **threads, **paths, **plain}


def read_run(lines: list[list], status: int, timed_out: bool, seconds: float, output: Path) -> Run:
    """Make out of the plugin's lines what became of each test, and which one ended the run.

    Args:
        lines: What the plugin wrote: outcome, test, seconds, reason.
        status: Pytest's exit status.
        timed_out: Whether it was killed at its limit.
        seconds: How long it ran.
        output: What it printed, for an end that no test explains.
    """
    outcomes: dict[str, str] = {}
    reasons = {}
    for outcome, test, _, reason in lines:
        if outcomes.get(test) != "failed":  # a failure of the test is not undone by its clean-up
            outcomes[test], reasons[test] = outcome, reason
    bad = next((test for test, outcome in outcomes.items() if outcome in ("failed", "started")), None)
    reason = reasons.get(bad, "")
    if bad is None and status not in (0, NOTHING_RAN):
        text = output.read_text(errors="replace").strip().splitlines()
        reason = f"pytest ended with status {status}: {text[-1][:200] if text else ''}"
    return Run(outcomes, bad, reason, seconds, timed_out, status)
