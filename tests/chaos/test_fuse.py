"""The model of a power loss: a name that was not synced is lost, one that was is not."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.project import HERE, Moment

WRITE = """
import os, sys
from pathlib import Path
from sgoif.utils import files
if sys.argv[1] == "careless":
    files.sync_folder = lambda folder: None
for content in ("old", "new"):
    files.atomic_write_text("results/cell/arrays", content)
    if content == "old":
        handle = os.open("results/cell", os.O_RDONLY)
        os.fsync(handle)
files.atomic_write_text("results/cell/first", "first")
files.atomic_write_text("results/batch", "batch")
"""


def _lose_power(place: Path, manner: str, moment: Moment) -> dict[str, str]:
    """The files that are left after the power went at a moment; temporary ones do not count."""
    (place / "results").mkdir()
    fuse = {**vars(moment), "mark": str(place / "mark"), "journal": str(place / "journal")}
    root = HERE.parents[1]
    env = {**os.environ, "PYTHONPATH": f"{HERE / 'fuse'}{os.pathsep}{root}", "SGOIF_FUSE": json.dumps([fuse])}
    words = [sys.executable, "-c", WRITE, manner]
    done = subprocess.run(words, cwd=place, env=env, start_new_session=True, capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return {p.name: p.read_text() for p in (place / "results").rglob("*") if p.is_file() and p.suffix != ".tmp"}


@pytest.mark.parametrize(
    ("manner", "left"), [("careless", {"arrays": "old"}), ("careful", {"arrays": "new", "first": "first"})]
)
def test_what_was_not_synced_is_lost(tmp_path, manner, left):
    assert _lose_power(tmp_path, manner, Moment("os.rename", "results/batch$", "power", lose=".")) == left


def test_the_power_goes_between_a_rename_and_its_sync(tmp_path):
    moment = Moment("sync folder", "cell/arrays$", "power", skip=1, lose="cell/arrays$")
    assert _lose_power(tmp_path, "careful", moment) == {"arrays": "old"}
