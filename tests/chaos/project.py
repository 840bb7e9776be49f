"""A copy of the project in which a small run is disturbed, put back and compared with an undisturbed one."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.workflow.test_run import copy_project, environment

HERE = Path(__file__).resolve().parent
RUN = Path("results/chaos")
TABLES = f"{RUN}/tables/table1.md"
TIMEOUT = 900  # seconds; nothing here takes that long unless it hangs


@dataclass(frozen=True)
class Moment:
    """When a process is struck, and how: see fuse/sitecustomize.py."""

    event: str
    pattern: str
    act: str = "kill"
    skip: int = 0
    seconds: float | None = None
    reading: bool = False
    errno: int = 0  # of a call that is refused
    lose: str = ""  # names that are lost with the power unless they are on the disk


class Project:
    """One folder with the project, where `run` is what `make tables` does."""

    def __init__(self, folder: Path):
        self.folder = folder / "project"
        self.spare, self.mark, self.journal = folder / "spare", folder / "struck", folder / "journal"
        self.always: Moment | None = None  # in every run, beside its own moment
        self.umask = -1  # as it is
        folder.mkdir(parents=True, exist_ok=True)
        copy_project(self.folder)
        shutil.copy(HERE / "chaos.yaml", self.folder / "chaos.yaml")

    def start(self, *targets: str, moment: Moment | None = None, step: list[str] | None = None) -> subprocess.Popen:
        self.mark.unlink(missing_ok=True)
        shutil.rmtree(self.journal, ignore_errors=True)
        paths = os.pathsep.join([str(HERE / "fuse"), *filter(None, [os.environ.get("PYTHONPATH")])])
        env = {**environment(), "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
        lit = [(moment, self.mark), (self.always, self.mark.with_name("always"))]
        fuses = [{**vars(m), "mark": str(mark), "journal": str(self.journal)} for m, mark in lit if m is not None]
        if fuses:
            env["SGOIF_FUSE"] = json.dumps(fuses)
        words = step or ["run", "--", *targets, "--configfile", "chaos.yaml"]
        return subprocess.Popen(
            [sys.executable, "-m", "sgoif.bench", *words],
            cwd=self.folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            umask=self.umask,
        )

    def run(self, *targets: str, **how) -> tuple[int, str]:
        """Run to the end, whatever it is: (exit status, all it said)."""
        process = self.start(*targets, **how)
        try:
            said, _ = process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return 124, "it hung"
        return process.returncode, said

    def struck(self) -> str:
        """Where the fuse struck, without the folder; empty if it did not."""
        if not self.mark.is_file():
            return ""
        event, path = self.mark.read_text().split(" ", 2)[1:]
        path = re.sub(r"\.(\w[\w.]*)\.\d+-[0-9a-f]{8}\.tmp", r"\1", path.replace(f"{self.folder}/", ""))
        return f"{event} {path}"

    def keep(self) -> None:
        shutil.rmtree(self.spare, ignore_errors=True)
        shutil.copytree(self.folder, self.spare, symlinks=True)

    def put_back(self) -> None:
        """The state that was kept, with its time stamps."""
        for part in ("results", "data", ".snakemake"):
            shutil.rmtree(self.folder / part, ignore_errors=True)
            if (self.spare / part).is_dir():
                shutil.copytree(self.spare / part, self.folder / part, symlinks=True)

    def wipe(self) -> None:
        for part in ("results", "data", ".snakemake"):
            shutil.rmtree(self.folder / part, ignore_errors=True)

    def forget(self, *paths: str) -> None:
        """Delete outputs, so that the jobs that make them run again."""
        for path in paths:
            there = self.folder / RUN / path
            shutil.rmtree(there) if there.is_dir() else there.unlink(missing_ok=True)

    def outcome(self) -> dict[str, bytes]:
        """What must not depend on what happened: tables, scores, labels, truth and prepared data, as bytes."""
        kinds = ("results/*/tables/[!.]*", "results/*/cells/**/arrays.npz", "results/*/labels/*/[!.]*.npz")
        kinds += ("results/*/truth/*/[!.]*.npz", "data/*/[!.]*.npy")
        files = sorted(p for kind in kinds for p in self.folder.glob(kind))
        return {p.relative_to(self.folder).as_posix(): p.read_bytes() for p in files}


def last_error(said: str) -> str:
    """The line that tells what is wrong: the last of a job if there is one, else that of the run."""
    lines = [line for line in said.splitlines() if line.startswith("error: ")]
    of_jobs = [line for line in lines if not re.match(r"error: (a job|\d+ jobs) failed", line)]
    return (of_jobs or lines or [""])[-1]


def do_as_told(project: Project, error: str) -> list[str]:
    """Delete what the error says to delete, no more: "it" and "this folder" are what its line names first."""
    told = re.search(r"\b[Dd]elete (.*)", error)
    cure = told[1] if told else ""
    named = _paths(project, cure)
    if cure.startswith(("it ", "this folder", "the file")):
        named = _paths(project, error)[:1] + named
    for path in named:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return [str(path.relative_to(project.folder)) for path in named]


def _paths(project: Project, text: str) -> list[Path]:
    """The files and folders of the run, its data or Snakemake's records that a text names, in order."""
    words = [project.folder / word.rstrip(".") for word in re.findall(r"[\w./@-]+", text)]
    rooms = tuple(project.folder / room for room in ("results", "data", ".snakemake"))
    return [path for path in words if path.exists() and any(room in path.parents for room in rooms)]
