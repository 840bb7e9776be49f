"""A copy of the project for tests that write into it, and a shell inside."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from sgoif.utils.paths import ROOT

MINI_CONFIG = Path(__file__).with_name("mini.yaml")
GENERATED = ("results", "data", "parcel", "mlruns", "site")


def copy_project(folder: Path) -> Path:
    """Everything but hidden files and what is generated; what is published or compiled is part of the project."""
    for source in [p for p in ROOT.iterdir() if not p.name.startswith(".") and p.name not in GENERATED]:
        if source.is_dir():
            shutil.copytree(source, folder / source.name)
        else:
            shutil.copy2(source, folder)
    shutil.copytree(ROOT / "results" / "published", folder / "results" / "published")
    return folder


def import_nothing_beforehand(folder: Path) -> None:
    """For runs whose jobs need no torch: to import it for jobs to come takes longer than all else that they do."""
    server = folder / "sgoif" / "bench" / "execution" / "launch" / "server.py"
    text, found = re.subn(r"^LIBRARIES = \(.*?^\)", "LIBRARIES = ()", server.read_text(), flags=re.M | re.S)
    assert found == 1
    server.write_text(text)


def sh(folder: Path, command: str) -> subprocess.CompletedProcess:
    """Run a command line there with this environment's programs first, on one thread; pytest without its plugins."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # they take a second to load
    return subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True)


def make(command: str) -> str:
    """A make command that takes the environment as it is, instead of making it anew."""
    return command.replace("make ", "make -o .venv/run.stamp -o .venv/test.stamp -o .venv/bin/uv ", 1)
