"""The folder of a run, from its configuration file: what a run begins with, and its removal (`make clean`)."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from sgoif.bench.config import load_config, selection_name
from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_json, try_lock

RESULTS = Path("results")
SELECTIONS = "selections"  # folder of a run that holds the runs of a part of it
RUN_LOCK = Path(".snakemake") / "sgoif.lock"  # held by `sgoif.bench run`, or by Snakemake itself, as long as it runs
LOCK_IS_HELD = "SGOIF_RUN_LOCK_IS_HELD"  # set for the Snakemake that `sgoif.bench run` starts
RUN_GOES_ON = "another run is going on in this folder; wait for it, or stop it, and try again"
SNAKEMAKE_LOCKS = Path(".snakemake") / "locks"  # files in here: Snakemake runs, or was killed


def folder_of(config: Mapping[str, Any]) -> Path:
    """Return the folder of a resolved configuration: results/<run>; of a selection: results/<run>/selections/<name>."""
    whole = RESULTS / config["run"]
    return whole / SELECTIONS / selection_name(config["select"]) if config.get("select") else whole


def run_folder(config: Path | str, select: Mapping[str, Any] | None = None) -> Path:
    """Return the folder of the run that a configuration file describes, see `folder_of`.

    Args:
        config: A YAML file; it is checked as `make tables` checks it.
        select: What the run is reduced to.

    Raises:
        UserError: If the file or a value in it is not valid.
    """
    return folder_of(load_config(config, select=select))


def write_config(folder: Path | str, config: dict[str, Any]) -> None:
    """Write the resolved configuration into the folder of a run, where its jobs read it, unless it is there already.

    Raises:
        UserError: If the folder cannot be written.
    """
    with _told_as_user_error(Path(folder)):
        atomic_write_json(Path(folder) / "config.json", config)


def check_writable(folder: Path | str) -> None:
    """Check that jobs can write into the folder of a run; it is made if needed.

    Raises:
        UserError: If they cannot.
    """
    with _told_as_user_error(Path(folder)):
        Path(folder).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()


@contextlib.contextmanager
def _told_as_user_error(folder: Path) -> Iterator[None]:
    """Turn an error of the file system inside a `with` block into one line about the folder."""
    try:
        yield
    except OSError as e:
        if e.errno in (errno.ENOSPC, errno.EDQUOT):
            raise  # the command line says that the disk is full
        raise UserError(f"{folder} cannot be written ({e.strerror}); make it writable and run again") from None


def hold_run_lock() -> None:
    """Hold the lock of this folder until this process ends, so that `make` knows of a Snakemake that it did not start.

    Raises:
        UserError: If another run is going on.
    """
    if LOCK_IS_HELD in os.environ:
        return
    RUN_LOCK.parent.mkdir(exist_ok=True)
    handle = open(RUN_LOCK, "w")
    if try_lock(handle) == "taken":
        handle.close()
        raise UserError(RUN_GOES_ON)
    _held.append(handle)


_held: list[IO[str]] = []  # a file that is closed is no lock any more


def clean(config: Path | str, select: Mapping[str, Any] | None = None) -> str:
    """Remove the results of one run, nothing else: neither data, nor what is published, nor what links point to.

    Its selections lie in its folder and go with it. Of a selection, only its own folder is removed.

    Args:
        config: The configuration file of the run.
        select: Remove only the results of this selection.

    Returns:
        One line that says what was removed.

    Raises:
        UserError: If the configuration is wrong, the folder is a link or no folder, or a run is going on.
    """
    folder = run_folder(config, select)
    if folder.is_symlink():
        raise UserError(
            f"{folder} is a link to {os.readlink(folder)}; what it points to is not removed: do that yourself"
        )
    if not folder.exists():
        return f"nothing to remove: there is no {folder}"
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder of results; look at it and remove it yourself")
    _refuse_while_running()
    files, size = _measure(folder)
    try:
        shutil.rmtree(folder)  # removes links, not what they point to
    except OSError as e:
        raise UserError(f"{e.filename or folder} cannot be removed ({e.strerror}); some results may be gone") from None
    return f"removed {folder}: {files} files, {size / 2**20:.1f} MiB"


def _refuse_while_running() -> None:
    """Refuse to go on while a run holds the lock of this folder."""
    if not RUN_LOCK.is_file():
        return
    with open(RUN_LOCK) as handle:
        state = try_lock(handle)
    if state == "taken":
        raise UserError("a run is going on in this folder; wait for it, or stop it, and try again")
    if state == "unsupported":
        refuse_unknown_run()


def refuse_unknown_run() -> None:
    """Refuse to go on if Snakemake's locks are there and no lock of ours can tell whether they are those of a dead run.

    Raises:
        UserError: If they are there.
    """
    if any(SNAKEMAKE_LOCKS.glob("*")):
        raise UserError(
            f"{SNAKEMAKE_LOCKS} says that a run is going on, and this file system has no locks that could tell whether "
            f"it still lives; if it does not, delete {SNAKEMAKE_LOCKS} and run again"
        )


def _measure(folder: Path) -> tuple[int, int]:
    """Number of files below a folder and their bytes; links are counted, not followed."""
    sizes = []
    for place, folders, names in os.walk(folder):
        found = [os.lstat(os.path.join(place, name)) for name in (*folders, *names)]
        sizes += [s.st_size for s in found if not stat.S_ISDIR(s.st_mode)]
    return len(sizes), sum(sizes)
