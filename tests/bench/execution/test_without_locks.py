"""A file system without locks: what can go on goes on, the rest is refused in one line; nothing waits for ever."""

import errno
import fcntl
import os
import shutil

import pytest

from sgoif.bench.execution.launch import gpu_slots, run_snakemake
from sgoif.bench.run_folder import clean
from sgoif.errors import UserError
from sgoif.scan.output_folder import lock_folder
from tests.helpers.project_copy import MINI_CONFIG


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a small run and no locks."""

    def flock(handle, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results/mini/tables").mkdir(parents=True)
    (tmp_path / ".snakemake").mkdir()
    (tmp_path / ".snakemake/sgoif.lock").touch()
    shutil.copy(MINI_CONFIG, tmp_path / "mini.yaml")
    return tmp_path


def _leave_locks(place):
    (place / ".snakemake/locks").mkdir()
    (place / ".snakemake/locks/0.output.lock").touch()


def test_a_run_goes_on(place, snakemake_calls, capsys):
    assert run_snakemake.run(["--configfile", "mini.yaml"]) == 0
    assert len(snakemake_calls) == 1 and "no locks" in capsys.readouterr().err


def test_a_run_that_may_still_live_is_not_unlocked(place, snakemake_calls):
    _leave_locks(place)
    with pytest.raises(UserError, match=r"has no locks .* delete \.snakemake/locks and run again"):
        run_snakemake.run(["--configfile", "mini.yaml"])
    assert snakemake_calls == []


def test_only_a_run_that_may_live_is_not_removed(place):
    _leave_locks(place)
    with pytest.raises(UserError, match=r"delete \.snakemake/locks"):
        clean("mini.yaml")
    assert (place / "results/mini").is_dir()
    (place / ".snakemake/locks/0.output.lock").unlink()
    assert clean("mini.yaml").startswith("removed results/mini")


def test_a_job_for_a_gpu_is_refused_and_does_not_wait_for_ever(place, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(gpu_slots.time, "sleep", lambda _: pytest.fail("it waits"))
    with pytest.raises(UserError, match="slots: this file system has no locks"), gpu_slots.slot(place / "slots", 1):
        pass


def test_a_scan_goes_on(place, capsys):
    with lock_folder(place / "out"):
        pass
    assert "do not start two scans" in capsys.readouterr().err
