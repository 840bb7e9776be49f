"""mypy over `sgoif`, as pyproject.toml configures it; among the tests, so that it does not leave a core idle."""

import subprocess
import sys

from sgoif.utils.paths import ROOT


def mypy(*options: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "mypy", "--no-error-summary", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_types():
    done = mypy()
    if done.returncode:  # mypy's cache of modules that have moved since can crash it
        done = mypy("--no-incremental")
    assert done.returncode == 0, done.stdout + done.stderr
