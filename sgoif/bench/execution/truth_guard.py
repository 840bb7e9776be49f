"""Keeps the truth from methods: in a process that runs them, opening true labels is an error.

The workflow already passes no such file to a method's job; the guard also covers what the code opens by itself.
"""

from __future__ import annotations

import os
import sys


class TruthAccessError(PermissionError):
    """A method tried to open a file that only the evaluation may read."""


def forbid_truth() -> None:
    """Make this process unable to open truth files or a dataset's labels. It cannot be undone."""

    def watch(event: str, args: tuple[object, ...]) -> None:
        if event == "open" and isinstance(args[0], (str, bytes, os.PathLike)):
            path = os.fsdecode(args[0]).replace(os.sep, "/")
            if "/truth/" in path or path.endswith(("_labels.npy", "/labels.npz")):
                raise TruthAccessError(f"a method's job may not open {path}: only the evaluation reads it")

    sys.addaudithook(watch)
