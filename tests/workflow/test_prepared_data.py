"""Prepared data belong to no run: another configuration finds them up to date, whatever mirror it names."""

import subprocess
import sys
from pathlib import Path

from tests.workflow.test_run import copy_project, environment

META = "data/digits_near/meta.json"


def snakemake(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "snakemake", *arguments, "--", META]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout + done.stderr


def test_another_run_leaves_prepared_data_alone(tmp_path):
    folder = copy_project(tmp_path)
    (folder / "mirror").mkdir()
    other = (
        (folder / "mini.yaml").read_text().replace("run: mini", "run: other\ndata: {mirror: mirror, download: false}")
    )
    (folder / "other.yaml").write_text(other)
    assert "prepare" in snakemake(folder, "--configfile", "mini.yaml")
    written = (folder / META).stat().st_mtime_ns
    assert "Nothing to be done" in snakemake(folder, "--configfile", "other.yaml")
    assert (folder / META).stat().st_mtime_ns == written
