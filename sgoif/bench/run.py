"""`make tables`: Snakemake in this folder, one run at a time, able to start again after any kind of end."""

import fcntl
import subprocess
import sys
from pathlib import Path

from sgoif.bench import config as configuration
from sgoif.bench.errors import UserError


def run(arguments: list[str]) -> int:
    """Runs Snakemake. A second run in the same folder is refused; the locks of a killed one are cleared."""
    config = _config_only(arguments)
    if config:
        configuration.load(config[-1])  # a mistake is told before Snakemake starts
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
    done = subprocess.run([*snakemake, *arguments], pass_fds=[handle.fileno()])
    return done.returncode


def _config_only(arguments: list[str]) -> list[str]:
    """`--configfile X` among the arguments, so that unlocking reads the same configuration."""
    if "--configfile" in arguments:
        at = arguments.index("--configfile")
        return arguments[at : at + 2]
    return []
