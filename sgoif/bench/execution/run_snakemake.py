"""`make tables`: Snakemake in this folder, one run at a time, able to start again after any kind of end."""

import fcntl
import json
import shutil
import subprocess
import sys
from pathlib import Path

from sgoif.bench.config import load_config
from sgoif.errors import UserError
from sgoif.utils.files import is_intact

DEFAULT = "configs/embedded.yaml"  # as in the Snakefile
OUTPUTS = (".", "batches/*/*/*", "metrics/*", "tables", "figures")  # sealed outputs of rules, below a run's folder
ROOM = 1 << 20  # bytes; with less than this left no job can write its result


def run(arguments: list[str]) -> int:
    """Runs Snakemake. A second run in the same folder is refused; the locks of a killed one are cleared."""
    config = _config_only(arguments)
    resolved = load_config(config[-1] if config else DEFAULT)  # a mistake is told before Snakemake starts
    Path(".snakemake").mkdir(exist_ok=True)
    handle = open(".snakemake/sgoif.lock", "w")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise UserError("another run is going on in this folder; wait for it, or stop it, and try again") from None
    snakemake = [sys.executable, "-m", "snakemake"]
    # this run holds the folder, so a lock that Snakemake still finds was left by a run that was killed
    if any(Path(".snakemake/locks").glob("*")):
        unlock = [*snakemake, "--unlock", *config]
        subprocess.run(unlock, capture_output=True, pass_fds=[handle.fileno()])
    _forget_damaged(Path("results") / resolved["run"])
    done = subprocess.run([*snakemake, *arguments], pass_fds=[handle.fileno()])
    if done.returncode:
        _tell_a_full_disk()
    return done.returncode


def _forget_damaged(run_dir: Path) -> None:
    """Deletes outputs that are not what was written, so that Snakemake, which sees times alone, makes them again."""
    for folder in OUTPUTS:
        for seal in run_dir.glob(f"{folder}/.*.sha256"):
            path = seal.with_name(seal.name.removeprefix(".").removesuffix(".sha256"))
            if path.is_file() and not is_intact(path):
                print(f"{path} is damaged and is made again", file=sys.stderr)
                path.unlink()
    for path in (p for p in Path(".snakemake/metadata").rglob("*") if p.is_file()):
        try:
            json.loads(path.read_bytes())
        except ValueError:  # Snakemake's record of an output: it would end in a traceback, and can do without
            print(f"{path} is damaged and is forgotten", file=sys.stderr)
            path.unlink()


def _tell_a_full_disk() -> None:
    """A full disk shows itself in many ways, some of them without a name: a log that cannot be opened, a cut file."""
    for folder in (Path("."), Path("results"), Path("data")):
        if folder.exists() and shutil.disk_usage(folder).free < ROOM:
            raise UserError(f"the disk of {folder.resolve()} is full; free some room and run again")


def _config_only(arguments: list[str]) -> list[str]:
    """`--configfile X` among the arguments, so that unlocking reads the same configuration."""
    if "--configfile" in arguments:
        at = arguments.index("--configfile")
        return arguments[at : at + 2]
    return []
