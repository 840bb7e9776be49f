"""Faults of the machine around a run: its power, its clock, a user's umask, a file system without locks or hard links.

The power is lost in a model of it: a rename below results/ or data/ that was not followed by a sync of its folder is
undone (see fuse/sitecustomize.py). What SQLite does in C, and caches below the file system, are not in the model.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable
from pathlib import Path

from tests.chaos import faults
from tests.chaos.driver import LOST, SAME, TOLD, Chaos, wait_for
from tests.chaos.project import RUN, Moment, Project, last_error

DAY = 86400.0
OURS = 0o664  # the mode of files before the umask
CLOCKS = {  # whose clock goes back a day, and when
    "of a job, between two saved states": Moment("os.rename", rf"{faults.TRACIN}/work/retrain", "clock", 1, DAY),
    "of Snakemake, as it starts": Moment("open", r"\.snakemake/log/", "clock", seconds=DAY),
}
REFUSED = {
    "no locks or hard links (ENOLCK)": Moment("fcntl.flock|fcntl.lockf|os.link", "", "refuse", errno=errno.ENOLCK),
    "no locks or hard links (ENOTSUP)": Moment("fcntl.flock|fcntl.lockf|os.link", "", "refuse", errno=errno.ENOTSUP),
}


def power_loss(chaos: Chaos, names: Iterable[str] = tuple(faults.POWER)) -> None:
    """From an empty folder, the power goes again and again, a little further on; nobody has to be told anything."""
    chaos.project.wipe()
    chaos.kills_from_here(names, faults.POWER)


def clock(chaos: Chaos) -> None:
    """The clock is set back by a day: between two runs, and in the middle of one."""
    for name, redo in (("a cell", faults.AGAIN["loss"]), ("the tables", faults.AFTER["summary"])):
        files_from_tomorrow(chaos, name, redo)
    for name, moment in CLOCKS.items():
        chaos.project.put_back()
        chaos.project.forget(*faults.AGAIN["tracin"])
        status, said = chaos.project.run(*chaos.targets, moment=moment)
        wrong = chaos.is_same() if status == 0 else last_error(said) or said[-800:]
        lost = wrong or not chaos.project.struck() or idle(chaos)
        chaos.record("clock set back", name, LOST if lost else SAME, lost if isinstance(lost, str) else "no strike")


def files_from_tomorrow(chaos: Chaos, name: str, redo: Iterable[str]) -> None:
    """All files are from tomorrow when a part is made again; the run after that finds nothing to do."""
    project = chaos.project
    project.put_back()
    for folder in ("results", "data", ".snakemake"):
        for path in (project.folder / folder).rglob("*"):
            then = path.lstat().st_mtime + DAY
            os.utime(path, (then, then), follow_symlinks=False)
    project.forget(*redo)
    outcome, said = chaos.recover()
    busy = idle(chaos) if outcome == SAME else ""
    chaos.record("clock set back", f"between two runs, then {name} again", LOST if busy else outcome, busy or said)


def idle(chaos: Chaos) -> str:
    """Empty if one more run has nothing to do, else what it says."""
    status, said = chaos.project.run(*chaos.targets)
    return "" if status == 0 and "Nothing to be done" in said else f"not idle: {said[-800:]}"


def umasks(chaos: Chaos, masks: Iterable[int] = (0o077, 0o000)) -> None:
    """A run of a user with this umask is killed while a state is saved, looked at, and ended by the same user."""
    project = chaos.project
    for mask in masks:
        project.wipe()
        project.umask = mask
        try:
            project.run(*chaos.targets, moment=Moment("os.rename", rf"{faults.PLAIN}/work/train\.pt", "kill all", 1))
            left = list((project.folder / RUN).rglob(".*.tmp"))
            wrong = wrong_modes(left, mask) if project.struck() and left else "no temporary file was left"
            outcome, said = chaos.recover()
        finally:
            project.umask = -1
        wrong = wrong or wrong_modes([project.folder / name for name in project.outcome()], mask)
        chaos.record("umask", f"{mask:03o}", LOST if wrong else outcome, wrong or said)


def wrong_modes(paths: Iterable[Path], mask: int) -> str:
    """Empty, or a file whose mode is not the one of the umask without writing by others."""
    modes = {path: path.stat().st_mode & 0o777 for path in paths}
    wrong = [f"{path} has mode {mode:o}" for path, mode in modes.items() if mode != OURS & ~mask]
    return wrong[0] if wrong else ""


def no_locks(chaos: Chaos) -> None:
    """The file system has neither locks nor hard links: a run, a killed one, two jobs at once, two runs at once."""
    project = chaos.project
    try:
        for name, project.always in REFUSED.items():
            project.put_back()
            project.forget(*faults.AGAIN["loss"], "mlflow")
            _expect_the_fault(project)
            outcome, said = chaos.recover()
            struck = project.mark.with_name("always").exists()
            chaos.record(name, "a whole run", outcome if struck else LOST, said)
        name = next(iter(REFUSED))
        project.always = None
        project.put_back()
        project.forget(*faults.AFTER["cells"])
        project.run(*chaos.targets, moment=Moment("os.rename", r"metrics/noisy/digits\.json", "kill all"))
        project.always = REFUSED[name]
        outcome, said = chaos.recover()
        chaos.record(name, "the run before was killed", outcome, said)
        _two_jobs(chaos, name)
        _two_runs(chaos, name)
    finally:
        project.always = None


def _expect_the_fault(project: Project) -> None:
    project.mark.with_name("always").unlink(missing_ok=True)


def _two_jobs(chaos: Chaos, name: str) -> None:
    """One of two jobs on one batch may fail, in one line; what is there is whole: the next run gives the same bits."""
    project = chaos.project
    project.put_back()
    project.forget(*faults.AGAIN["tracin"])
    words = ["--config", str(RUN / "config.json"), "--task", "noisy", "--dataset", "digits", "--method", "tracin"]
    both = [project.start(step=["batch", *words, "--batch", "0"]) for _ in range(2)]
    said = [p.communicate(timeout=200)[0] for p in both]
    silent = [s for p, s in zip(both, said, strict=True) if p.returncode and not last_error(s)]
    outcome, later = chaos.recover(f"{RUN}/{faults.TABLE}")
    wrong = "".join(s[-500:] for s in silent)
    chaos.record(name, "two jobs on one batch", LOST if wrong else outcome, wrong or later)


def _two_runs(chaos: Chaos, name: str) -> None:
    """The second run finds Snakemake's locks and is refused; the first goes on."""
    project = chaos.project
    project.put_back()
    project.forget(*faults.AFTER["metrics"])
    first = project.start(moment=Moment("os.rename", r"chaos/summary\.json$", "stall", seconds=10))
    wait_for(project.mark)
    started = time.monotonic()
    status, said = project.run()
    seconds = time.monotonic() - started
    first.communicate(timeout=200)
    error, wrong = last_error(said), chaos.is_same()
    refused = status == 2 and "has no locks" in error and first.returncode == 0 and seconds < 60
    chaos.record(name, "two runs at once", LOST if wrong or not refused else TOLD, error or said[-500:])
