"""`make tables` around Snakemake, for which a small program stands in: what is made again, what ends with the run."""

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sgoif.bench import cli, run_folder
from sgoif.bench.execution.integrity.outdated import refuse_outdated
from sgoif.bench.execution.launch import run_snakemake
from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_json
from sgoif.utils.paths import ROOT

ARRAYS = "results/mini/cells/noisy/digits/n20_s0/seed0/random/arrays.npz"
BATCH = "results/mini/batches/noisy/digits/random/0.json"
# starts a job as Snakemake does: in a shell that waits for it
SNAKEMAKE = """
import subprocess, sys
subprocess.run(["bash", "-c", f"{sys.executable} job.py > job.log 2>&1 || {{ echo failed; exit 1; }}"])
"""
JOB = """
import os, pathlib, time
from sgoif.bench import cli, steps
def wait(args):
    pathlib.Path("job.pid").write_text(f"{os.getpid()} {os.getppid()} .")
    time.sleep(60)
steps.where_step = wait
cli.main(["where", "--config", "x"])
"""


@pytest.fixture
def snakemake_arguments(finished_plan, snakemake_calls):
    """Run with Snakemake left out; a function that returns the arguments it would have had."""
    return lambda: run_snakemake.run(["--configfile", "mini.yaml"]) or snakemake_calls.pop()[3:]


def test_a_cut_score_file_of_a_finished_run_is_computed_again(snakemake_arguments, capsys):
    assert snakemake_arguments() == ["--configfile", "mini.yaml"], "nothing is wrong"
    Path(ARRAYS).write_bytes(Path(ARRAYS).read_bytes()[:-100])
    assert snakemake_arguments()[-2:] == ["--forcerun", BATCH]
    assert f"{Path(ARRAYS).parent} is damaged" in capsys.readouterr().err and not Path(BATCH).exists()
    assert snakemake_arguments()[-2:] == ["--forcerun", BATCH], "also if that run was killed"


def test_what_snakemake_has_no_record_of_is_made_again(snakemake_arguments, capsys):
    """Results that were copied here, or whose records were lost, may be of another configuration."""
    records = Path(".snakemake/metadata")
    known = next(path for path in records.iterdir() if base64.urlsafe_b64decode(path.name).decode() == BATCH)
    known.unlink()
    assert snakemake_arguments()[-2:] == ["--forcerun", BATCH]
    assert "are made again: 1; cells that fit are kept" in capsys.readouterr().err
    shutil.rmtree(records)
    _, *again = snakemake_arguments()[2:]
    assert {BATCH, "results/mini/labels/digits/n20_s0.npz", "results/mini/summary.json"} < set(again)
    assert {"data/digits/meta.json", ARRAYS}.isdisjoint(again)


def test_a_path_that_is_too_long_for_one_record_is_read_from_several_folders(snakemake_arguments):
    record = next(iter(Path(".snakemake/metadata").iterdir()))
    folder, name = record.with_name("@" + record.name[:20]), record.name[20:]
    content = record.read_text()
    record.unlink()
    folder.mkdir()
    (folder / name).write_text(content)
    assert snakemake_arguments() == ["--configfile", "mini.yaml"]


def test_a_snakemake_that_make_did_not_start_holds_the_folder_too(finished_plan, monkeypatch):
    monkeypatch.setattr(run_folder, "_held", [])
    monkeypatch.setenv(run_folder.LOCK_IS_HELD, "1")
    run_folder.hold_run_lock()
    with run_snakemake.alone_in_folder():
        run_folder.hold_run_lock()  # of the run that started it
        monkeypatch.delenv(run_folder.LOCK_IS_HELD)
        with pytest.raises(UserError, match="another run is going on"):
            run_folder.hold_run_lock()
    run_folder.hold_run_lock()
    for what in (lambda: run_snakemake.run(["--configfile", "mini.yaml"]), lambda: run_folder.clean("mini.yaml")):
        with pytest.raises(UserError, match="run is going on in this folder"):
            what()


@pytest.mark.parametrize("step", ["report", "publish"])
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda: Path(BATCH).unlink(), f"{BATCH} is missing"),
        (lambda: os.utime(BATCH), f"{BATCH} is newer than results/mini/summary.json"),
        (lambda: edit_config(epochs=7), "was computed with another configuration"),
    ],
    ids=["missing", "newer", "configuration"],
)
@pytest.mark.usefixtures("finished_plan")
def test_a_run_that_was_changed_and_interrupted_is_neither_reported_nor_published(step, change, told, capsys):
    change()
    assert cli.main([step, "--config", "results/mini/config.json"]) == 2
    error = capsys.readouterr().err
    assert told in error and "make tables" in error and not Path("results/published").exists()


def test_a_finished_run_is_not_outdated(finished_plan):
    refuse_outdated(finished_plan, Path("results/mini"))
    Path("results/mini/summary.json").unlink()
    refuse_outdated(finished_plan, Path("results/mini"))  # what needs the summary says so itself


def edit_config(**recipe):
    path = Path("results/mini/config.json")
    config = json.loads(path.read_text())
    config["noisy"]["digits"]["recipe"].update(recipe)
    atomic_write_json(path, config)


def test_records_of_an_earlier_way_to_prepare_data_are_forgotten(snakemake_arguments):
    records = Path(".snakemake/metadata")
    records.mkdir(parents=True, exist_ok=True)
    old = {"rule": "prepare", "params": ["'python -m sgoif.bench prepare --config results/other/config.json'"]}
    (records / "old").write_text(json.dumps(old))
    (records / "new").write_text(json.dumps({**old, "params": []}))
    (records / "other").write_text(json.dumps({**old, "rule": "corrupt"}))
    snakemake_arguments()
    assert {path.name for path in records.iterdir()} & {"old", "new", "other"} == {"new", "other"}


@pytest.mark.parametrize(
    "kill",
    [
        lambda run: os.killpg(run.pid, signal.SIGKILL),
        lambda run: run.send_signal(signal.SIGKILL),
        lambda run: run.send_signal(signal.SIGTERM),
        lambda run: run.send_signal(signal.SIGINT),
    ],
    ids=["group", "leader-kill", "leader-terminate", "leader-interrupt"],
)
@pytest.mark.usefixtures("finished_plan")
def test_no_job_outlives_its_run(tmp_path, kill):
    (tmp_path / "snakemake.py").write_text(SNAKEMAKE)
    (tmp_path / "job.py").write_text(JOB)
    command = [sys.executable, "-m", "sgoif.bench", "run", "--", "--configfile", "mini.yaml"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.Popen(command, cwd=tmp_path, env=environment, start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: (tmp_path / "job.pid").is_file() and (tmp_path / "job.pid").read_text().count(" ") == 2, 60)
        job, shell = map(int, (tmp_path / "job.pid").read_text().split()[:2])
        assert alive(job) and alive(shell)
        kill(run)
        run.wait(timeout=10)
        wait_until(lambda: not alive(job) and not alive(shell), 10)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)


def wait_until(condition, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.1)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
