"""A finished run that was written by hand, made once and copied for every test; runs without Snakemake."""

import contextlib
import shutil
from types import SimpleNamespace

import pytest

from sgoif.bench.execution.launch import run_snakemake
from tests.helpers.finished_runs import finished_run


@pytest.fixture(scope="session")
def finished_once(tmp_path_factory):
    """Folder and plan of the run that the copies are made of."""
    folder = tmp_path_factory.mktemp("finished")
    return folder, finished_run(folder)[0]


@pytest.fixture
def finished_plan(finished_once, tmp_path, monkeypatch):
    """The plan of a finished run in results/mini of the current folder."""
    folder, plan = finished_once
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)  # with the times of the files
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SGOIF_TRACKING", raising=False)
    return plan


@pytest.fixture
def snakemake_calls(monkeypatch) -> list[list[str]]:
    """Leaves Snakemake and the server of jobs out of a run; the command lines of Snakemake."""
    calls: list[list[str]] = []
    ended = SimpleNamespace(returncode=0, poll=lambda: 0)
    for name in ("run", "Popen"):
        monkeypatch.setattr(run_snakemake.subprocess, name, lambda command, **_: calls.append(command) or ended)
    monkeypatch.setattr(run_snakemake, "job_server", lambda **_: contextlib.nullcontext({}))
    return calls
