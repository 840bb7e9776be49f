"""The mini run from end to end, in a copy of the project: kill it, run it again, edit a method or add one, start two at
once, run another beside it."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sgoif.bench.execution import results
from sgoif.bench.execution.launch.time_limit import TIME_IS_UP
from sgoif.bench.execution.records import BatchEntry, read_batch
from sgoif.utils.files import atomic_write_json, load_npz
from sgoif.utils.paths import ROOT
from tests.helpers.project_copy import MINI_CONFIG, import_nothing_beforehand

PARTS = ("Snakefile", "workflow", "profiles", "sgoif", "baselines", "configs", "environment.yml")
MINI = ("--configfile", "mini.yaml")


def copy_project(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, folder / part)
        else:
            shutil.copy(source, folder / part)
    shutil.copy(MINI_CONFIG, folder / "mini.yaml")
    return folder


def environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "MLFLOW_DISABLE_TELEMETRY": "true", "PYTHONDONTWRITEBYTECODE": ""}


def start(folder: Path, *more: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "sgoif.bench", "run", "--", *MINI, *more]
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def run(folder: Path, *more: str) -> str:
    process = start(folder, *more)
    output, _ = process.communicate(timeout=420)
    assert process.returncode == 0, output[-3000:]
    return output


def tables(folder: Path) -> dict[str, str]:
    """Hash of what the tables say of quality: everything but times and memory, which no two runs share."""
    cells = json.loads((folder / "results/mini/summary.json").read_text())
    quality = [c for c in cells if not any(w in str(c["metric"]) for w in ("second", "overhead", "memory", "layout"))]
    for cell in quality:
        cell.pop("seconds", None)
    return hashlib.sha256(json.dumps(quality, sort_keys=True).encode()).hexdigest()


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = copy_project(tmp_path_factory.mktemp("project"))
    run(folder)
    import_nothing_beforehand(folder)  # little is computed from here on
    return folder


@pytest.mark.slow
def test_in_stretches_it_is_the_same_run(finished, tmp_path):
    """Stretches that are too short for the run: jobs are ended and go on, and the tables are those of one go."""
    folder = copy_project(tmp_path / "project")
    command = [sys.executable, "-m", "sgoif.bench", "stretch", "--seconds", "15", "mini.yaml"]
    statuses = []
    while not statuses or (statuses[-1] == TIME_IS_UP and len(statuses) < 40):
        done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=200)
        statuses.append(done.returncode)
    assert statuses[-1] == 0 and len(statuses) > 1, (statuses, done.stdout[-2000:], done.stderr[-2000:])
    assert tables(folder) == tables(finished)


def test_every_table_is_there(finished):
    run_dir = finished / "results" / "mini"
    for table in ("table1", "table3"):
        for kind in ("md", "tex", "csv", "json"):
            assert (run_dir / "tables" / f"{table}.{kind}").stat().st_size > 200
    summary = json.loads((run_dir / "summary.json").read_text())
    needed = {"table", "dataset", "setting", "method", "metric", "mean", "std", "n_seeds", "status", "seconds"}
    assert all(needed <= set(record) for record in summary)
    assert json.loads((run_dir / "mlflow" / "imported.json").read_text())


def test_a_second_run_has_nothing_to_do_and_an_edited_method_reruns_itself_and_what_depends_on_it_alone(finished):
    path = finished / "baselines" / "noisy" / "aum.py"
    before = path.read_text()
    path.write_text(before + "\n# a comment changes nothing\n")
    assert "Nothing to be done" in run(finished)
    path.write_text(before + "\nUNUSED = 1\n")
    output = run(finished, "--dry-run")  # says what it would run, without the minute that takes
    path.write_text(before)
    ran = {line.split()[1].rstrip(":") for line in output.splitlines() if line.startswith(("rule ", "localrule "))}
    figures = {rule for rule in ran if rule.startswith("figure_")}
    after = {"evaluate", "curves", "summarise", "tables", "ledger", "page", "track", "all"}
    assert ran - figures == {"noisy_aum", *after} and {"figure_detection", "figure_pareto"} <= figures


def test_killed_anywhere_and_started_again_gives_the_same_numbers(finished, tmp_path):
    folder = copy_project(tmp_path)
    summary = ("--until", "summarise")  # what follows is killed in tests/chaos
    for name, count in (("meta.json", 1), ("result.json", 3)):  # data prepared, and amid the cells of a batch
        process = start(folder, *summary)
        while process.poll() is None and len(list(folder.glob(f"[dr]*/**/{name}"))) < count:
            time.sleep(0.1)
        assert process.poll() is None, "it was done before it was killed"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    run(folder, *summary)
    assert tables(folder) == tables(finished)


def test_two_runs_in_one_folder_the_second_is_refused(finished):
    shutil.rmtree(finished / "results" / "mini" / "tables")
    first = start(finished, "--until", "tables")
    time.sleep(1.0)
    second = start(finished)
    output, _ = second.communicate(timeout=60)
    first.communicate(timeout=300)
    assert first.returncode == 0
    assert second.returncode == 2 and "another run is going on in this folder" in output and "Traceback" not in output


def test_another_run_leaves_prepared_data_alone(finished):
    """Prepared data belong to no run: another configuration finds them up to date, whatever mirror it names."""
    meta = finished / "data" / "digits_near" / "meta.json"
    (finished / "mirror").mkdir()
    told = "run: other\ndata: {mirror: mirror, download: false}"
    (finished / "other.yaml").write_text((finished / "mini.yaml").read_text().replace("run: mini", told))
    written = meta.stat().st_mtime_ns
    command = [sys.executable, "-m", "snakemake", "--configfile", "other.yaml", "--", "data/digits_near/meta.json"]
    done = subprocess.run(command, cwd=finished, env=environment(), capture_output=True, text=True, timeout=200)
    assert done.returncode == 0 and "Nothing to be done" in done.stdout + done.stderr, done.stderr[-2000:]
    assert meta.stat().st_mtime_ns == written


def test_a_corrupt_score_file_is_named_with_its_cure(finished):
    cell = finished / "results/mini/cells/noisy/digits/n20_s0/seed0/aum"
    whole = (cell / "arrays.npz").read_bytes()
    (cell / "arrays.npz").write_bytes(whole[:-100])
    config = "results/mini/config.json"
    command = [
        sys.executable,
        "-m",
        "sgoif.bench",
        "evaluate",
        "--config",
        config,
        "--task",
        "noisy",
        "--dataset",
        "digits",
    ]
    done = subprocess.run(command, cwd=finished, env=environment(), capture_output=True, text=True)
    (cell / "arrays.npz").write_bytes(whole)
    assert done.returncode == 2 and "aum" in done.stderr and "Delete" in done.stderr and "Traceback" not in done.stderr


def test_a_failed_cell_is_retried_by_snakemake_and_gives_its_numbers(finished):
    """By the two commands of `make retry`. What depends on the cell is stale afterwards."""
    run_dir = finished / "results/mini"
    batch = run_dir / "batches/noisy/digits/random/0.json"
    first, *others = read_batch(batch)
    arrays = run_dir / first.path / "arrays.npz"
    scores = load_npz(arrays)["scores"]
    arrays.unlink()
    failed = results.write(run_dir, first.cell, first.key, "failed", "MemoryError: no luck")
    atomic_write_json(batch, {"cells": [e.to_json() for e in (BatchEntry.of(failed), *others)]}, seal=True)
    command = [sys.executable, "-m", "sgoif.bench", "retry", "--config", "mini.yaml"]
    done = subprocess.run(command, cwd=finished, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0 and f"{first.cell} is tried again; it had failed: MemoryError: no luck" in done.stdout
    assert not batch.exists() and all((run_dir / e.path / "result.json").exists() for e in others)
    run(finished, "--until", "noisy_random")
    assert [entry.status for entry in read_batch(batch)] == ["ok"] * (1 + len(others))
    assert (load_npz(arrays)["scores"] == scores).all()


def test_a_baseline_is_one_file_and_one_rule(finished):
    """A new method is picked up, planned and computed without touching any other file. It stays: this test is last."""
    source, rule = finished / "baselines/noisy/random.py", finished / "workflow/rules/noisy/random.smk"
    source.with_name("mine.py").write_text(source.read_text().replace('"random"', '"mine"'))
    rule.with_name("mine.smk").write_text(rule.read_text().replace("random", "mine"))
    config = finished / "mini.yaml"
    config.write_text(config.read_text().replace("noisy: [random,", "noisy: [random, mine,"))
    assert "1 jobs done." in run(finished, "--until", "noisy_mine"), "nothing else is computed again"
    batch = read_batch(finished / "results/mini/batches/noisy/digits/mine/0.json")
    assert [entry.status for entry in batch] == ["ok"] * 4
