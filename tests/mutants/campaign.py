"""Runs the nearest tests of every drawn mutant, after the same tests on the unchanged project.

A test counts only if it passes on the unchanged project on this machine: one that fails or is skipped there, for a
package that is missing, kills nothing. Nor does a slow machine: the time limit follows the unchanged run.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import queue
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from sgoif.utils.files import atomic_write_text
from tests.mutants.nearest import nearest
from tests.mutants.sites import Mutant
from tests.mutants.workers import NOTHING_RAN, Run, Worker

KILLED, SURVIVED, TIMEOUT, UNTESTED = "killed", "survived", "timeout", "untested"
MOST_CHOICES = 12  # test files for one mutant
QUICK = 15.0  # seconds of a test file that may come first
CLEAN_LIMIT = 900.0  # seconds for one test file on the unchanged project
PATIENCE, GRACE = 5.0, 60.0  # a mutant's tests may take so many times the unchanged run, and so many seconds more
MIN_LIMIT = 1.0  # seconds that a run of tests may take, however little is left for its mutant

Job, Result = TypeVar("Job"), TypeVar("Result")


class Campaign:
    """Drawn mutants and what became of them, kept in a JSON file that a later start goes on with.

    Args:
        root: The project.
        mutants: What was drawn.
        out: The JSON file.
        budget: Seconds of tests, as they take on the unchanged project, for one mutant; the nearest file is always run.
        limit: Most seconds for one mutant, whatever its tests take; it is noticed if they need longer.
        again: Whether mutants that survived before are run again, as after writing a test.
    """

    def __init__(
        self,
        root: Path,
        mutants: Sequence[Mutant],
        out: Path,
        budget: float,
        limit: float = math.inf,
        again: bool = False,
    ) -> None:
        self.root, self.mutants, self.out, self.budget, self.limit = root, list(mutants), out, budget, limit
        stored = json.loads(out.read_text()) if out.is_file() else {}
        self.fingerprint = project_fingerprint(root)
        self.clean: dict[str, dict] = stored.get("clean", {}) if stored.get("project") == self.fingerprint else {}
        self.records: dict[str, dict] = {}
        for record in stored.get("mutants", []):
            if not again or record["outcome"] in (KILLED, TIMEOUT):
                self.records[record["id"]] = record
        self.choices = {file: nearest(root, file)[:MOST_CHOICES] for file in {m.file for m in self.mutants}}

    def run(self, workers: Sequence[Worker], say: Callable[[str], None] = print) -> list[dict]:
        """Run what is left to run and return the records of all mutants, in the order they were drawn.

        Args:
            workers: Copies of the project; as many mutants are run at a time.
            say: Is told of every result.
        """
        left = [mutant for mutant in self.mutants if identity(mutant) not in self.records]
        needed = dict.fromkeys(choice for m in left for choice in self.choices[m.file] if choice not in self.clean)
        for choice, run in share(workers, list(needed), self._run_clean):
            passed = [test for test, outcome in run.outcomes.items() if outcome == "passed"]
            bad = [test for test, outcome in run.outcomes.items() if outcome in ("failed", "started")]
            self.clean[choice] = {"seconds": round(run.seconds, 1), "passed": passed, "bad": bad}
            say(f"unchanged: {choice}: {len(passed)} passed, {len(bad)} failed, {run.seconds:.0f} s")
            self.save()
        for mutant, record in share(workers, left, self._judge):
            self.records[record["id"]] = record
            say(f"{record['outcome']}: {mutant.file}:{mutant.line} {mutant.kind}, {record['seconds']:.0f} s")
            self.save()
        self.save()
        return self.finished()

    def finished(self) -> list[dict]:
        """Return the records of the drawn mutants that were run, in the order they were drawn."""
        return [self.records[key] for key in map(identity, self.mutants) if key in self.records]

    def save(self) -> None:
        """Write the file; the records of mutants that are no longer drawn are left out."""
        machine = f"{platform.machine()}, Python {platform.python_version()}"
        content = {"project": self.fingerprint, "machine": machine, "mutants": self.finished(), "clean": self.clean}
        atomic_write_text(self.out, json.dumps(content, indent=1) + "\n")

    def groups(self, file: str) -> list[list[str]]:
        """Return the choices for a file in two groups: the nearest quick one that passes, and others within the budget.

        The others come in the order of their length, because the first failure ends a mutant.
        """
        usable = [choice for choice in self.choices[file] if self.clean[choice]["passed"]]
        spent, kept = 0.0, []
        for choice in usable:
            seconds = self.clean[choice]["seconds"]
            if not kept or spent + seconds <= self.budget:
                kept.append(choice)
                spent += seconds
        length = {choice: self.clean[choice]["seconds"] for choice in kept}
        first = next((choice for choice in kept if length[choice] <= QUICK), kept[0] if kept else "")
        rest = sorted((choice for choice in kept if choice != first), key=lambda choice: length[choice])
        return [group for group in ([first] if first else [], rest) if group]

    def _run_clean(self, worker: Worker, choice: str) -> Run:
        file, _, word = choice.partition(" ")
        return worker.pytest([file], CLEAN_LIMIT, *(["-k", word] if word else []))

    def _judge(self, worker: Worker, mutant: Mutant) -> dict[str, Any]:
        outcome, by, reason, seconds, ran = UNTESTED, None, "", 0.0, []
        with worker.mutated(mutant.file, mutant.source):
            for group in self.groups(mutant.file):
                limit = GRACE + PATIENCE * sum(self.clean[choice]["seconds"] for choice in group)
                limit = min(limit, max(self.limit - seconds, MIN_LIMIT))
                run = worker.pytest(self._arguments(group), limit, "-x")
                outcome, by, reason, seconds = verdict(run), run.killer, run.reason, seconds + run.seconds
                ran += group
                if outcome != SURVIVED:
                    break
        facts = {name: value for name, value in asdict(mutant).items() if name != "source"}
        facts["diff"] = mutant.diff((self.root / mutant.file).read_text())
        found = {"outcome": outcome, "by": by, "reason": reason, "seconds": round(seconds, 1), "ran": ran}
        return {"id": identity(mutant), **facts, **found}

    def _arguments(self, group: Iterable[str]) -> list[str]:
        """Return pytest's arguments for some choices, without the tests that fail on the unchanged project."""
        found = []
        for choice in group:
            clean = self.clean[choice]
            found += clean["passed"] if " " in choice else [choice]
            found += [part for test in clean["bad"] for part in ("--deselect", test)]
        return found


def verdict(run: Run) -> str:
    """Say what a run of pytest means for a mutant; skipped tests, or none at all, kill nothing."""
    if run.timed_out:
        return TIMEOUT
    return SURVIVED if run.status in (0, NOTHING_RAN) else KILLED


def identity(mutant: Mutant) -> str:
    """Return a short hash of the whole mutated file: another one after any edit of the file."""
    return hashlib.sha256(f"{mutant.file}:{mutant.source}".encode()).hexdigest()[:16]


def project_fingerprint(root: Path) -> str:
    """Return a hash of the code and the tests, and of the Python that runs them."""
    state = hashlib.sha256(platform.python_version().encode())
    for folder in ("sgoif", "baselines", "tests", "configs", "workflow"):
        for path in sorted(p for p in (root / folder).rglob("*") if p.is_file() and "__pycache__" not in p.parts):
            state.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return state.hexdigest()[:16]


def share(workers: Sequence[Worker], jobs: Sequence[Job], work: Callable[[Worker, Job], Result]) -> Iterable:
    """Yield each job with its result as it ends, where a worker does one job at a time.

    Args:
        workers: Who works.
        jobs: What there is to do.
        work: Does one job with one worker.
    """
    free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
    for worker in workers:
        free.put(worker)

    def one(job: Job) -> Result:
        worker = free.get()
        try:
            return work(worker, job)
        finally:
            free.put(worker)

    with ThreadPoolExecutor(max(len(workers), 1)) as pool:
        futures = {pool.submit(one, job): job for job in jobs}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:  # Ctrl-C, or an error of one job: the others are not waited for
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in workers:
                worker.stop()
            raise
