"""Runs Snakemake (`make tables`): one run at a time in a folder, able to start again after any kind of end."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from sgoif.bench.config import load_config
from sgoif.bench.execution.clock import settle_future_times
from sgoif.bench.run_folder import RESULTS, check_writable, refuse_unknown_run, write_config
from sgoif.errors import UserError
from sgoif.utils.files import is_intact, try_lock

DEFAULT_CONFIG = "configs/embedded.yaml"  # as in the Snakefile
SEALED_OUTPUTS = (".", "batches/*/*/*", "metrics/*", "tables", "figures")  # folders of sealed files, below a run's
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
MIN_FREE_BYTES = 1 << 20  # with less than this left no job can write its result


def run(arguments: list[str]) -> int:
    """Runs Snakemake, after clearing what a killed run left behind.

    Args:
        arguments: The arguments of Snakemake.

    Returns:
        Its exit status.

    Raises:
        UserError: If the configuration is wrong, another run is active in this folder, or the disk is full.
    """
    config = _config_only(arguments)
    resolved = load_config(config[-1] if config else DEFAULT_CONFIG)  # a mistake is reported before Snakemake starts
    run_dir, computes = RESULTS / resolved["run"], not _only_plans(arguments)
    if computes and not (run_dir / "report.html").exists():  # a finished run may be read-only
        check_writable(run_dir)
    Path(".snakemake").mkdir(exist_ok=True)
    handle = open(".snakemake/sgoif.lock", "w")
    state = try_lock(handle)
    if state == "taken":
        raise UserError("another run is going on in this folder; wait for it, or stop it, and try again")
    if state == "unsupported":
        refuse_unknown_run()
        print("note: this file system has no locks; do not start two runs in this folder at once", file=sys.stderr)
    snakemake = [sys.executable, "-m", "snakemake"]
    # this run holds the folder, so a lock that Snakemake still finds was left by a run that was killed
    if any(Path(".snakemake/locks").glob("*")):
        unlock = [*snakemake, "--unlock", *config]
        subprocess.run(unlock, capture_output=True, pass_fds=[handle.fileno()])
    if computes:
        _delete_damaged(run_dir)
        settle_future_times(run_dir, Path(resolved["data"]["root"]))
    done = subprocess.run([*snakemake, *arguments], pass_fds=[handle.fileno()])
    if done.returncode:
        _check_free_disk()
    elif computes and not {"--config", "-C"} & set(arguments):
        write_config(run_dir, resolved)  # where nothing was to be done no job has started, and nothing wrote it
    return done.returncode


def _delete_damaged(run_dir: Path) -> None:
    """Deletes outputs whose checksum differs, so that Snakemake, which compares times alone, makes them again."""
    for folder in SEALED_OUTPUTS:
        for seal in run_dir.glob(f"{folder}/.*.sha256"):
            path = seal.with_name(seal.name.removeprefix(".").removesuffix(".sha256"))
            if path.is_file() and not is_intact(path):
                print(f"{path} is damaged and is made again", file=sys.stderr)
                path.unlink()
    for path in (p for p in Path(".snakemake/metadata").rglob("*") if p.is_file()):
        try:
            json.loads(path.read_bytes())
        except ValueError:  # Snakemake's record of an output: it would end in a traceback, and is not needed
            print(f"{path} is damaged and is forgotten", file=sys.stderr)
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
    """Returns `--configfile X` if it is among the arguments, so that unlocking reads the same configuration."""
    if "--configfile" in arguments:
        at = arguments.index("--configfile")
        return arguments[at : at + 2]
    return []
