"""No method peeks: in a process that runs methods, opening the truth or a dataset's label file is an error.

The DAG already hands no such file to a method's job; this makes the rule hold for what the code opens, too.
"""

import os
import sys


class Peeked(PermissionError):
    """A method tried to open a file that only the evaluation may read."""


def forbid_truth() -> None:
    """From now on this process cannot open truth files or a dataset's labels. It cannot be undone."""

    def watch(event: str, args: tuple) -> None:
        if event == "open" and isinstance(args[0], (str, bytes, os.PathLike)):
            path = os.fsdecode(args[0]).replace(os.sep, "/")
            if "/truth/" in path or path.endswith(("_labels.npy", "/labels.npz")):
                raise Peeked(f"a method's job may not open {path}: only the evaluation reads it")

    sys.addaudithook(watch)
