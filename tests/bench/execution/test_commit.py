"""The commit that results name: that of the code, whatever was written from it."""

import subprocess
from pathlib import Path

import pytest

from sgoif.bench.execution.environment import commit

FILES = (
    *("sgoif/a.py", "docs/index.md", "docs/results/measured.md"),
    *("docs/scripts/api.py", "results/published/run/table.md"),
)


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    git(folder, "init", "-q")
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("before")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    return folder


def test_what_the_code_writes_does_not_change_the_commit_and_code_does(checkout):
    head = git(checkout, "rev-parse", "HEAD")[:12]
    inside = checkout / "sgoif"
    for name in ("", *FILES):  # "": nothing changed
        git(checkout, "checkout", "-q", ".")
        if name:
            (checkout / name).write_text("after")
        commit.cache_clear()
        assert commit(inside) == head + ("-dirty" if name.endswith(".py") else ""), name
    (checkout / FILES[0]).write_text("after")  # beside a changed table
    git(checkout, "add", ".")  # and what waits to be committed counts too
    commit.cache_clear()
    assert commit(inside) == f"{head}-dirty"


def test_outside_a_checkout_there_is_none(tmp_path):
    assert commit(tmp_path) == ""
