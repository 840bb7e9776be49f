"""Tells a person how far a run is: "47 of 102, noisy labels: Co-Teaching, about 6 min left".

Snakemake writes its log to a file, which is read here while it grows. On a terminal one line is rewritten; elsewhere a
line is printed now and then. What a job reports as an error is shown at once.
"""

from __future__ import annotations

import functools
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from sgoif.bench.execution.plan import Plan
from sgoif.bench.methods import registry
from sgoif.bench.methods.registry import FOLDS, PLAIN, task_kind

POLL_SECONDS = 0.2
LINE_SECONDS = 20.0  # between two lines where the line cannot be rewritten
TASKS = {"noisy": "noisy labels", "tuning": "tuning", "ood": "OOD detection"}
RULES = {  # what rules without a method do
    "prepare": "preparing {dataset}",
    "corrupt": "noisy labels of {dataset}",
    "hold_out": "setting test images of {dataset} aside",
    "evaluate": "metrics of {dataset}",
    "curves": "curves of {dataset}",
    "summarise": "summary",
    "tables": "tables",
    "ledger": "ledger of the paper's numbers",
    "page": "report page",
    "track_init": "MLflow store",
    "track": "MLflow import",
}
SMALL_JOBS = {"prepare": 0.2, "corrupt": 0.2, "hold_out": 0.2}  # sizes in plain trainings
SHARED_TITLES = {PLAIN: "plain training", FOLDS: "cross-validation"}
# Lines that Snakemake writes about itself. What remains is an error, of a job or its own.
ROUTINE = re.compile(
    r"\s|$|\[.*\]$|SNAKEMAKE$|=+$|Using |Assuming |Building DAG|Provided |Rules claiming|Conda environments|Job stats"
    r"|job +count|-+ +-+$|\w+ +\d+$|Select jobs|Execute \d+ jobs|(local)?rule |Finished jobid|\d+ of \d+ steps"
    r"|Touching |Complete log|Elapsed time|Nothing to be done|Removing output|Creating conda|Activating conda|Updating "
    r"|Exiting |RuleException|CalledProcessError in|Command '|Error in rule |WorkflowError:$|At least one job did not"
    r"|host: "
)
# What the shell of a job says, or the process that handed it over, if the job was ended by SIGKILL.
KILLED = re.compile(r"Killed|\S+:(?: line \d+:)? +\d+ Killed\b.*")


@dataclass
class RunningJob:
    """A job that has started: what it does, how large it is beside a plain training, and when it started."""

    title: str
    weight: float
    started: float


@dataclass
class LogReader:
    """What Snakemake's log says so far.

    Attributes:
        weigh: Size of a job of a rule with wildcards, in plain trainings.
        describe: What such a job does, in words.
        clock: The time in seconds.
        done: Number of finished jobs.
        total: Number of jobs; 0 as long as it is not known.
        running: Jobs that have started, by Snakemake's number.
        finished_weight: Size of the finished jobs.
        failed: Rules of the jobs that failed.
        killed: Whether a job was killed from outside.
        errors: Lines by which jobs reported what went wrong.
        remarks: Other lines that are not routine, such as tracebacks.
        idle: Whether there was nothing to do.
    """

    weigh: Callable[[str, Mapping[str, str]], float]
    describe: Callable[[str, Mapping[str, str]], str]
    clock: Callable[[], float] = time.monotonic
    done: int = 0
    total: int = 0
    running: dict[str, RunningJob] = field(default_factory=dict)
    finished_weight: float = 0.0
    failed: list[str] = field(default_factory=list)
    killed: bool = False
    errors: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    idle: bool = False
    _rule: str = ""
    _job: str = ""

    def read(self, line: str) -> str | None:
        """Take in a line and return it if it is an error that a job reported."""
        line = line.rstrip("\n")
        if found := re.fullmatch(r"(?:local)?rule (\w+):", line):
            self._rule, self._job = found[1], ""
        elif found := re.fullmatch(r" +jobid: (\d+)", line):
            self._job = found[1]
            self._start({})
        elif (found := re.fullmatch(r" +wildcards: (.*)", line)) and self._job:
            self._start(dict(part.split("=", 1) for part in found[1].split(", ") if "=" in part))
        elif found := re.fullmatch(r"Finished jobid: (\d+) .*", line):
            job = self.running.pop(found[1], None)
            self.finished_weight += job.weight if job else 0.0
        elif found := re.fullmatch(r"(\d+) of (\d+) steps .*", line):
            self.done, self.total = int(found[1]), int(found[2])
        elif found := re.fullmatch(r"total +(\d+)", line):
            self.total = int(found[1])
        elif found := re.fullmatch(r"Error in rule (\w+):", line):
            self.failed.append(found[1])
            self._rule = ""
        elif line.startswith("Nothing to be done"):
            self.idle = True
        elif line.startswith("error: "):
            self.errors.append(line)
            return line
        elif KILLED.fullmatch(line):
            self.killed = True
        elif not ROUTINE.match(line):
            self.remarks.append(line)
        return None

    def _start(self, wildcards: Mapping[str, str]) -> None:
        if self._rule and self._rule != "all":
            weight = self.weigh(self._rule, wildcards)
            self.running[self._job] = RunningJob(self.describe(self._rule, wildcards), weight, self.clock())


class Progress:
    """The line that a person reads.

    Args:
        reader: What Snakemake's log says.
        batches: Sizes of the batches to compute, in plain trainings; every other job counts as one.
        out: Where the line is written.
    """

    def __init__(self, reader: LogReader, batches: Sequence[float], out: TextIO):
        self.reader = reader
        self.batches = batches
        self.out = out
        self.rewrites = out.isatty()
        self._began: float | None = None
        self._shown_at = -LINE_SECONDS
        self._shown = ""

    def line(self) -> str:
        """Return what is going on; empty if there is nothing to say."""
        reader = self.reader
        if not reader.running:
            return "planning" if self.rewrites and not reader.total else ""
        latest = max(reader.running.values(), key=lambda job: job.started)
        return ", ".join(filter(None, [f"{reader.done} of {reader.total}", latest.title, self._left()]))

    def _left(self) -> str:
        """How long it will take; empty until a twentieth is done."""
        reader = self.reader
        total = sum(self.batches) + max(reader.total - len(self.batches), 0)
        done = reader.finished_weight + sum(job.weight for job in reader.running.values()) / 2
        if self._began is None or reader.finished_weight < total / 20:
            return ""
        seconds = (reader.clock() - self._began) * max(total - done, 0.0) / done
        return f"about {round(seconds / 60)} min left" if seconds >= 60 else "less than a minute left"

    def show(self, last: bool = False) -> None:
        """Write the line if it is due."""
        now, line = self.reader.clock(), self.line()
        if self.reader.running and self._began is None:
            self._began = now
        if last:
            line = ""
        elif not line or line == self._shown:
            return
        if self.rewrites:
            self.out.write("\r\033[K" + line)
        elif line and now - self._shown_at >= LINE_SECONDS:
            self.out.write(line + "\n")
            self._shown_at = now
        else:
            return
        self._shown = line
        self.out.flush()

    def say(self, text: str) -> None:
        """Write a line that stays."""
        self.out.write(("\r\033[K" if self.rewrites else "") + text + "\n")
        self._shown = ""
        self.out.flush()


def describe(rule: str, wildcards: Mapping[str, str]) -> str:
    """Return what a job does, in words."""
    if "task" in wildcards and "batch" in wildcards:
        task = wildcards["task"]
        name = rule.removeprefix(f"{task_kind(task)}_")
        title = SHARED_TITLES.get(name) or registry.declaration(task_kind(task), name).title
        variant = wildcards.get("variant", "").removeprefix(registry.VARIANT_MARK).replace("_", " ")
        return f"{TASKS[task]}: {title}" + (f", {variant}" if variant else "")
    if rule.startswith("figure_"):
        return "figures"
    return RULES.get(rule, rule).format(dataset=wildcards.get("dataset", ""))


def weigh(plan: Plan, rule: str, wildcards: Mapping[str, str]) -> float:
    """Return the rough size of a job in plain trainings; what reads results counts as one."""
    if "task" not in wildcards or "batch" not in wildcards:
        return SMALL_JOBS.get(rule, 1.0)
    task, dataset, number = wildcards["task"], wildcards["dataset"], int(wildcards["batch"])
    name = rule.removeprefix(f"{task_kind(task)}_")
    cells = plan.batch(task, dataset, name + wildcards.get("variant", ""), number)
    if name in SHARED_TITLES:
        return len(cells) * (3.0 if name == FOLDS else 1.0)
    reads = registry.declaration(task_kind(task), name).shared_runs
    own = 0.2 if reads else 2.0
    return sum(own + (task != "ood" and plan.retrains(cell)) + plan.retrains_same(cell) for cell in cells)


def weights_left(plan: Plan, run_dir: Path) -> list[float]:
    """Return the sizes of the batches of a run that are still to be computed, in plain trainings."""
    found = []
    for task in ("noisy", "ood"):
        for dataset in plan.datasets(task):
            methods = plan.methods(task, dataset)
            names = {registry.split_variant(method)[0] for method in methods}
            folds = any(registry.declaration(task, name).reads_folds for name in names)
            for method in (PLAIN, *((FOLDS,) if folds else ()), *methods):
                name, variant = registry.split_variant(method)
                for number in range(plan.n_batches(task, dataset)):
                    if not (run_dir / "batches" / task / dataset / method / f"{number}.json").is_file():
                        marked = f"{registry.VARIANT_MARK}{variant}" if variant else ""
                        words = {"task": task, "dataset": dataset, "batch": str(number), "variant": marked}
                        found.append(weigh(plan, name, words))
    return [weight for weight in found if weight]


def follow(process: subprocess.Popen[bytes], log: Path, plan: Plan, run_dir: Path, out: TextIO) -> LogReader:
    """Show the progress of Snakemake until it ends.

    Args:
        process: Snakemake, which writes to `log`.
        log: Its log.
        plan: The cells of the run.
        run_dir: Folder of the run.
        out: Where progress is written.

    Returns:
        What the log said.
    """
    reader = LogReader(functools.partial(weigh, plan), describe)
    progress = Progress(reader, weights_left(plan, run_dir), out)
    with log.open(errors="replace") as lines:
        while True:
            ended = process.poll() is not None
            for line in lines:
                if error := reader.read(line):
                    progress.say(error)
                elif reader.total and line.startswith("total "):
                    progress.say(f"{reader.total} jobs; what they and Snakemake say is in {log}")
            if ended:
                progress.show(last=True)
                return reader
            progress.show()
            time.sleep(POLL_SECONDS)
