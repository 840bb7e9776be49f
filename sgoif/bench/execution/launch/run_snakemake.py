"""Runs Snakemake (`make tables`): one run at a time in a folder, able to start again after any kind of end."""

from __future__ import annotations

import base64
import compileall
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sgoif.bench.config import load_config
from sgoif.bench.config.checks import CHECKED_PARAMS, params_digest
from sgoif.bench.execution.clock import settle_future_times
from sgoif.bench.execution.integrity.damage import delete
from sgoif.bench.execution.integrity.quick_check import quick_check
from sgoif.bench.execution.integrity.run_files import (
    batch_files,
    is_merged,
    label_files,
    missing_sources,
    result_files,
)
from sgoif.bench.execution.launch.lifeline import killed_with_parent, run_process
from sgoif.bench.execution.launch.progress import LogReader, follow
from sgoif.bench.execution.launch.server import PROJECT, job_server
from sgoif.bench.execution.launch.time_limit import SECONDS_TO_END, TIME_IS_UP, ended_in_time
from sgoif.bench.execution.plan import Plan
from sgoif.bench.run_folder import (
    LOCK_IS_HELD,
    RUN_GOES_ON,
    RUN_LOCK,
    check_writable,
    folder_of,
    refuse_unknown_run,
    write_config,
)
from sgoif.errors import UserError
from sgoif.utils.files import try_lock
from sgoif.utils.paths import ROOT

DEFAULT_CONFIG = "configs/embedded.yaml"  # as in the Snakefile
# Options of Snakemake with which it only plans or reports, `-n` apart.
PLANNING = (
    "--dry",
    "--lint",
    "--report",
    "--summary",
    "--detailed-summary",
    "--dag",
    "--rulegraph",
    "--filegraph",
    "--list",
)
RECORDS = Path(".snakemake/metadata")  # by which params Snakemake made what
LOG = Path(".snakemake/run.log")  # of the last run: what Snakemake and the jobs say
REMARKS = 30  # lines of it that are shown if Snakemake fails without a job that says why
KILLED = (
    "killed from outside, usually for lack of memory: run fewer jobs at once (`execution.threads` up, or"
    " `execution.jobs_per_gpu` down); the same command goes on"
)
MIN_FREE_BYTES = 1 << 20  # with less than this left no job can write its result


def run(arguments: list[str], select: Mapping[str, Any] | None = None, seconds: float | None = None) -> int:
    """Run Snakemake, after clearing what a killed run left behind.

    Args:
        arguments: The arguments of Snakemake.
        select: What the run is reduced to; None: all of it.
        seconds: Time after which it ends, finished or not; None: any.

    Returns:
        Its exit status; `TIME_IS_UP` if it is not finished after that time.

    Raises:
        UserError: If the configuration is wrong, another run is active in this folder, or the disk is full.
    """
    config = _config_only(arguments)
    if select and {"--config", "-C"} & set(arguments):
        raise UserError("--config of Snakemake cannot be given with a selection; put its values into a configuration")
    selected = ["--config", f"select={json.dumps(select)}"] if select else []
    # a mistake is reported before Snakemake starts
    resolved = load_config(config[-1] if config else DEFAULT_CONFIG, select=select)
    run_dir, computes = folder_of(resolved), not _only_plans(arguments)
    if computes and not (run_dir / "report.html").exists():  # a finished run may be read-only
        check_writable(run_dir)
        _check_data_folder(resolved)
    snakemake = [sys.executable, "-m", "snakemake"]
    with alone_in_folder() as lock:
        # this run holds the folder, so a lock that Snakemake still finds was left by a run that was killed
        if any(Path(".snakemake/locks").glob("*")):
            subprocess.run([*snakemake, "--unlock", *config, *selected], capture_output=True, pass_fds=[lock])
        again = _make_again(Plan(resolved), run_dir) if computes else []
        if computes:
            settle_future_times(run_dir, Path(resolved["data"]["root"]))
        command = [*snakemake, *arguments, *again, *selected]
        checked = {CHECKED_PARAMS: params_digest(resolved)}
        if computes:
            status = _compute(command, resolved, run_dir, lock, checked, seconds)
        else:
            status = _plan(command, lock, checked)
    if status == TIME_IS_UP:
        return status
    if status:
        _check_free_disk()
    elif computes and not {"--config", "-C"} & set(arguments):
        write_config(run_dir, resolved)  # where nothing was to be done no job has started, and nothing wrote it
    return status


def _check_data_folder(config: dict[str, Any]) -> None:
    """Check that datasets which are not prepared yet can be; prepared ones may lie in a folder that is read-only."""
    root = Path(config["data"]["root"])
    if not all((root / name / "meta.json").is_file() for name in Plan(config).needed_datasets()):
        check_writable(root)


def _plan(command: list[str], lock: int, environment: dict[str, str]) -> int:
    """Run Snakemake where it only plans or reports: what it says is the result."""
    return subprocess.run(command, pass_fds=[lock], env={**os.environ, **environment}).returncode


def _compute(
    command: list[str],
    config: dict[str, Any],
    run_dir: Path,
    lock: int,
    environment: dict[str, str],
    seconds: float | None = None,
) -> int:
    """Run Snakemake, with its log in a file and a line of progress instead."""
    _compile_project()
    with _prepared_process(config) as where, LOG.open("wb") as log:
        process = subprocess.Popen(
            command,
            pass_fds=[lock],
            env={**os.environ, **run_process(), **environment, **where, LOCK_IS_HELD: "1"},
            preexec_fn=killed_with_parent(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            with ended_in_time(process, seconds) as time_is_up:
                said = follow(process, LOG, Plan(config), run_dir, sys.stdout)
        except KeyboardInterrupt:
            print(file=sys.stdout, flush=True)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SECONDS_TO_END)  # a terminal sends the interrupt to all
            process.kill()
            raise
    if process.returncode == 0:
        print("Nothing to be done: everything is there and up to date." if said.idle else f"{said.done} jobs done.")
        return 0
    if time_is_up.is_set() and not said.failed:
        print(f"The time is up: {said.done} jobs done.")
        return TIME_IS_UP
    for line in [] if said.errors else said.remarks[-REMARKS:]:
        print(line, file=sys.stderr)
    print(f"error: {_what_failed(said)}; the log is {LOG}, that of a job in {run_dir}/logs", file=sys.stderr)
    return process.returncode


def _what_failed(said: LogReader) -> str:
    if not said.failed:
        return "Snakemake ended with an error"
    several = len(said.failed) > 1
    told = f"{len(said.failed)} jobs" if several else "a job"
    told += f" failed ({', '.join(said.failed)})"
    return told + (f"; {'some were' if several else 'it was'} {KILLED}" if said.killed else "")


def _compile_project() -> None:
    """Compiles the project once: where PYTHONDONTWRITEBYTECODE is set each job would do it for itself (0.14 s)."""
    for package in PROJECT:
        compileall.compile_dir(ROOT / package, quiet=2)  # what cannot be written or compiled, a job compiles or tells


def _prepared_process(config: dict[str, Any]) -> contextlib.AbstractContextManager[dict[str, str]]:
    """Return the process of which jobs are copies; none on a GPU, which a forked process cannot use."""
    execution = config["execution"]
    if execution["device"] != "cpu":
        return contextlib.nullcontext({})
    threads = os.environ.get("OMP_NUM_THREADS", str(execution["threads"]))
    return job_server(CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS=threads, **run_process())


@contextlib.contextmanager
def alone_in_folder() -> Iterator[int]:
    """Keep other runs out of this folder inside a `with` block.

    Yields:
        The file descriptor of the lock, for a process that shall hold it too.

    Raises:
        UserError: If another run is active in this folder.
    """
    RUN_LOCK.parent.mkdir(exist_ok=True)
    with open(RUN_LOCK, "w") as handle:
        state = try_lock(handle)
        if state == "taken":
            raise UserError(RUN_GOES_ON)
        if state == "unsupported":
            refuse_unknown_run()
            print("note: this file system has no locks; do not start two runs in this folder at once", file=sys.stderr)
        yield handle.fileno()


def _make_again(plan: Plan, run_dir: Path) -> list[str]:
    """Delete damaged files and records, and return the arguments by which Snakemake makes them again.

    Snakemake compares times alone, and does not look for a file if all that is made from it exists.
    """
    _forget_records()
    for damage in quick_check(plan, run_dir):
        print(f"{damage.path} {damage.what} and is made again", file=sys.stderr)
        for path in damage.delete:
            delete(path)
    missing = missing_sources(plan, run_dir)
    made = [*label_files(plan, run_dir), *batch_files(plan, run_dir), *result_files(plan, run_dir)]
    unknown = [] if is_merged(run_dir) else _without_record(made)
    if unknown:
        print(
            f"{run_dir}: files that Snakemake has no record of, so that they may be of another configuration or code, "
            f"are made again: {len(unknown)}; cells that fit are kept",
            file=sys.stderr,
        )
    again = [str(path) for path in (*missing, *unknown)]
    return ["--forcerun", *again] if again else []


def _without_record(files: Iterable[Path]) -> list[Path]:
    """Return those of the files that are there though Snakemake does not know by which params they were made.

    It takes such a file for up to date: one that was copied from another folder, or whose record was lost.
    """
    recorded = {_recorded_path(record) for record in RECORDS.rglob("*") if record.is_file()}
    return [path for path in files if path.is_file() and str(path) not in recorded]


def _recorded_path(record: Path) -> str:
    """Return the output that a record of Snakemake is about: its path in base 64, long ones over several folders."""
    name = "".join(part.removeprefix("@") for part in record.relative_to(RECORDS).parts)
    try:
        return base64.urlsafe_b64decode(name).decode()
    except ValueError:
        return ""


def _forget_records() -> None:
    """Delete Snakemake's records of outputs that are damaged, or that name the run for which data were prepared.

    A damaged record would end in a traceback. Prepared data are compared with their hashes, and the rule that prepares
    them has no params to compare; records of earlier versions have some.
    """
    for path in (p for p in RECORDS.rglob("*") if p.is_file()):
        try:
            record = json.loads(path.read_bytes())
        except ValueError:
            print(f"{path} is damaged and is forgotten", file=sys.stderr)
            path.unlink()
            continue
        if isinstance(record, dict) and record.get("rule") == "prepare" and record.get("params"):
            path.unlink()


def _check_free_disk() -> None:
    """Names a full disk as the cause of a failed run, which may not have reported it: a log that cannot be opened."""
    for folder in (Path("."), Path("results"), Path("data")):
        if folder.exists() and shutil.disk_usage(folder).free < MIN_FREE_BYTES:
            raise UserError(f"the disk of {folder.resolve()} is full; free some room and run again")


def _only_plans(arguments: list[str]) -> bool:
    """Says whether Snakemake, called like this, computes nothing; then nothing may be written."""
    return any(a.startswith(PLANNING) or re.fullmatch("-[A-Za-z]*n[A-Za-z]*", a) for a in arguments)


def _config_only(arguments: list[str]) -> list[str]:
    """Return `--configfile X` if it is among the arguments, so that unlocking reads the same configuration."""
    if "--configfile" in arguments:
        at = arguments.index("--configfile")
        return arguments[at : at + 2]
    return []
