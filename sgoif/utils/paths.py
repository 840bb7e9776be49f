"""The root of the project's checkout. The benchmark runs from a checkout; the library needs none."""

from __future__ import annotations

import sys
from pathlib import Path

from sgoif.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


def check_environment(command: str) -> None:
    """Check that a command lies in the environment that it runs in.

    A program of an environment that was copied along with a checkout starts the Python of the first one, and so would
    run its code.

    Args:
        command: The program that was called, `sys.argv[0]`.

    Raises:
        UserError: If it lies in another environment.
    """
    place = Path(command).resolve().parent.parent
    if (place / "pyvenv.cfg").is_file() and place != Path(sys.prefix).resolve():
        raise UserError(f"{command} was copied and runs the code in {ROOT}; delete {place} and run `make venv`")


def check_checkout(folder: Path) -> None:
    """Check that a folder is not another checkout than that of the code that runs.

    Raises:
        UserError: If it is.
    """
    folder = folder.resolve()
    if folder != ROOT and (folder / "Snakefile").is_file() and (folder / "sgoif" / "bench").is_dir():
        raise UserError(f"this folder is a checkout, but the code that runs is that of {ROOT}; use its `make`")
