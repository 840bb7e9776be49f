"""Injects faults one by one and judges what became of the tables. Nothing is assumed: a fault that did not strike, an
error that does not name the file, a cure that does not cure and a table that differs in one bit all count as lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.chaos import faults
from tests.chaos.project import RUN, Moment, Project, do_as_told, last_error

SAME, TOLD, LOST = "same", "told, then same", "LOST"
VICTIMS = {"kill": "job killed", "kill all": "whole run killed", "power": "power lost"}


class Chaos:
    """One project, its undisturbed outcome, and a record of every fault."""

    def __init__(self, folder: Path, *targets: str):
        self.project, self.targets, self.records = Project(folder), targets, []
        before = time.perf_counter()
        status, said = self.project.run(*targets)
        assert status == 0, said[-3000:]
        self.seconds = time.perf_counter() - before
        self.reference = self.project.outcome()
        assert any(name.endswith("tables/table1.md") for name in self.reference), list(self.reference)
        self.project.keep()

    def record(self, fault: str, moment: str, outcome: str, said: str = "") -> None:
        said = said.replace(f"{self.project.folder}/", "")
        self.records.append({"fault": fault, "moment": moment, "outcome": outcome, "said": said})
        print(f"{len(self.records):3d}  {outcome:16s} {fault}: {moment}", flush=True)

    def is_same(self) -> str:
        """Empty, or what differs from the undisturbed run."""
        found = self.project.outcome()
        wrong = [n for n in sorted({*found, *self.reference}) if found.get(n) != self.reference.get(n)]
        return f"differs: {', '.join(wrong[:4])}" if wrong else ""

    def recover(self, *targets: str) -> tuple[str, str]:
        """Run again, doing once what an error says; (outcome, what was said)."""
        targets = targets or self.targets
        status, said = self.project.run(*targets)
        if status == 0:
            wrong = self.is_same()
            return (LOST, wrong) if wrong else (SAME, "")
        error = last_error(said)
        if not error or "Traceback" in said:
            return LOST, f"no error that names a file: {said[-1500:]}"
        done = do_as_told(self.project, error)
        status, said = self.project.run(*targets)
        wrong = self.is_same() if status == 0 else f"the cure {done} does not cure: {last_error(said) or said[-1500:]}"
        return (LOST, f"{error} | {wrong}") if wrong else (TOLD, error)

    # --- kills ------------------------------------------------------------------------------------------------------

    def kills(self) -> None:
        """From an empty folder, one run after the other is killed a little further on; the last is left alone."""
        self.project.wipe()
        self.kills_from_here(name for name in faults.KILLS if "MLflow" not in name)

    def kills_in_the_import(self) -> None:
        self.project.put_back()
        self.project.forget("mlflow")
        self.kills_from_here(name for name in faults.KILLS if "MLflow" in name)

    def kills_from_here(self, names: Iterable[str], table: Mapping[str, tuple[Moment, str]] = faults.KILLS) -> None:
        project, names = self.project, list(names)
        missed, where = {}, {}
        for name in names:
            moment, target = table[name]
            project.forget(target)  # a run that was killed may have got further than to its own target
            status, said = project.run(f"{RUN}/{target}", moment=moment)
            where[name] = project.struck()
            if not where[name] or status == 0:
                missed[name] = f"did not strike (exit status {status}): {said[-800:]}"
        outcome, said = self.recover()
        for name in names:
            moment, _ = table[name]
            outlived = moment.act == "power" and outcome == TOLD  # a file was there without one that it vouches for
            lost = name in missed or outlived
            self.record(
                VICTIMS[moment.act], f"{name} ({where[name]})", LOST if lost else outcome, missed.get(name, said)
            )

    def random_kills(self, n: int = 6, seed: int = 0) -> None:
        """The whole run is killed after random times, in the same folder, again and again."""
        project, rng, times = self.project, random.Random(seed), []
        project.wipe()
        while len(times) < n:
            process = project.start()
            wait = rng.uniform(0.1, 0.4) * self.seconds
            try:
                process.communicate(timeout=wait)
                project.wipe()  # it was done before the blow: from the beginning
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                times.append(wait)
        outcome, said = self.recover()
        for wait in times:
            self.record("whole run killed", f"after {wait:.1f} s, wherever it was", outcome, said)

    def lingering_job(self) -> None:
        """The run is killed; its job, which ends some seconds later, meets the next run in the same folder."""
        project = self.project
        project.put_back()
        project.forget(*faults.AGAIN["tracin"])
        slow = Moment("os.rename", rf"{faults.TRACIN}/work/retrain\.pt", "stall", 1, seconds=12)
        process = project.start(moment=slow)
        wait_for(project.mark)
        job = int(project.mark.read_text().split()[0])
        for pid in _family(process.pid) - _family(job):
            os.kill(pid, signal.SIGKILL)
        alive = Path(f"/proc/{job}").exists()
        outcome, said = self.recover(f"{RUN}/{faults.TABLE}")
        self.record("run killed, its job lingers for seconds", "retraining", outcome if alive else LOST, said)
        _end(process)

    # --- two at once ------------------------------------------------------------------------------------------------

    def two_runs(self) -> None:
        project = self.project
        project.put_back()
        project.forget(*faults.AFTER["metrics"])
        first = project.start(moment=Moment("os.rename", r"chaos/summary\.json", "stall", seconds=10))
        wait_for(project.mark)
        second = subprocess.run(first.args, cwd=project.folder, capture_output=True, text=True, timeout=100)
        first.communicate(timeout=200)
        error = last_error(second.stderr)
        refused = second.returncode == 2 and "another run is going on" in error and first.returncode == 0
        wrong = self.is_same()
        self.record("two runs in one folder", "assembling the summary", LOST if wrong or not refused else TOLD, error)

    def two_jobs(self) -> None:
        """The same batch computed by two processes at once, past Snakemake's lock."""
        project = self.project
        project.put_back()
        project.forget(*faults.AGAIN["tracin"])
        config = str(RUN / "config.json")
        words = ["batch", "--config", config, "--task", "noisy", "--dataset", "digits", "--method", "tracin"]
        both = [project.start(step=[*words, "--batch", "0"]) for _ in range(2)]
        said = [p.communicate(timeout=200)[0] for p in both]
        wrong = "" if all(p.returncode == 0 for p in both) else said[0][-500:] + said[1][-500:]
        outcome, told = self.recover(f"{RUN}/{faults.TABLE}")
        self.record("two jobs on one batch", "training", LOST if wrong else outcome, wrong or told)

    # --- full disk --------------------------------------------------------------------------------------------------

    def starve(self, names: Iterable[str] = tuple(faults.STARVED)) -> None:
        """A write fails with ENOSPC; then there is room again."""
        for name in names:
            moment, redo = faults.STARVED[name]
            self.project.put_back()
            self.project.forget(*redo)
            status, said = self.project.run(moment=moment)
            error, struck = last_error(said), self.project.struck()
            told = status != 0 and ("No space left" in error or "disk is full" in error) and "Traceback" not in said
            outcome, later = self.recover()
            good = struck and told and outcome == SAME
            self.record("disk full", name, TOLD if good else LOST, error if good else f"{error or said[-800:]} {later}")

    def small_disk(self, sizes: Iterable[str] = ("300k", "900k")) -> None:
        """The results lie on a file system of this size; then on a larger one."""
        project = self.project
        for size in sizes:
            project.wipe()
            results = project.folder / "results"
            results.mkdir()
            mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(results)]
            if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
                print("     a file system cannot be mounted here: not tried", flush=True)
                return
            try:
                status, said = project.run()
                error = last_error(said)
                told = status != 0 and ("No space left" in error or "is full" in error) and "Traceback" not in said
                subprocess.run(["mount", "-o", "remount,size=64m", str(results)], check=True)
                outcome, later = self.recover()
            finally:
                subprocess.run(["umount", "-l", str(results)], check=True)
            done = f"{size} for all results"
            good = told and outcome == SAME
            self.record("disk full", done, TOLD if good else LOST, error if good else f"{error or said[-800:]} {later}")

    # --- damaged files ----------------------------------------------------------------------------------------------

    def damages(self, chosen: Iterable[faults.Damage] = tuple(faults.DAMAGES)) -> None:
        for number, fault in enumerate(chosen):
            project = self.project
            project.put_back()
            project.forget(*fault.redo)
            faults.damage(project.folder / fault.place(), fault.how, seed=number)
            outcome, said = self.recover(f"{RUN}/{fault.target}")
            self.record(f"damaged file ({fault.how})", str(fault.place()), outcome, said)

    def damaged_states(self, chosen: Iterable[faults.Damage] = tuple(faults.WORKING)) -> None:
        """A cell is killed in training, what it had saved is damaged, and it goes on."""
        for number, fault in enumerate(chosen):
            project = self.project
            project.put_back()
            project.forget("cells", "batches", *faults.AFTER["cells"])
            killed = Moment("os.rename", rf"{faults.PLAIN}/work/train\.pt", skip=2)
            project.run(f"{RUN}/{faults.BATCH['plain']}", moment=killed)
            faults.damage(project.folder / fault.place(), fault.how, seed=number)
            outcome, said = self.recover(f"{RUN}/{faults.TABLE}")
            self.record(f"damaged state ({fault.how})", str(fault.place()), outcome, said)


def _family(pid: int) -> set[int]:
    """A process and all below it."""
    found = {pid}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found |= _family(int(path.parent.name))
    return found


def wait_for(path: Path, seconds: float = 200) -> None:
    until = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < until, f"{path} never came"
        time.sleep(0.05)


def _end(process: subprocess.Popen) -> None:
    """End what is left of a run's process group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.communicate()
