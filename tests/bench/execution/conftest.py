"""A finished run that was written by hand, made once and copied for every test."""

import shutil

import pytest

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
