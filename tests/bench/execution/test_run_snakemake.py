"""What `sgoif.bench run` does around Snakemake, which is replaced by a function here."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sgoif.bench.cli import main
from sgoif.bench.config import load_config
from sgoif.bench.execution.launch import run_snakemake
from tests.helpers.project_copy import MINI_CONFIG

RUN = Path("results/mini")


@pytest.fixture
def project(tmp_path, monkeypatch, snakemake_calls) -> list[list[str]]:
    """An empty folder in which Snakemake finds nothing to do; the calls of it."""
    monkeypatch.chdir(tmp_path)
    Path("mini.yaml").write_text(MINI_CONFIG.read_text())
    return snakemake_calls


def test_where_nothing_was_to_be_done_the_configuration_is_there(project):
    assert main(["run", "--", "--configfile", "mini.yaml"]) == 0
    assert json.loads((RUN / "config.json").read_text()) == load_config("mini.yaml")


@pytest.mark.parametrize("option", ["-n", "-nq", "--dry-run", "--dryrun", "--lint", "--report=x.html", "--summary"])
def test_a_plan_writes_nothing(project, option):
    (RUN / "tables").mkdir(parents=True)
    (RUN / "tables/t.md").write_text("damaged")
    (RUN / "tables/.t.md.sha256").write_text("0" * 64)
    assert main(["run", "--", option, "--configfile", "mini.yaml"]) == 0
    assert len(project) == 1 and not (RUN / "config.json").exists() and (RUN / "tables/t.md").exists()


def test_the_project_is_compiled_before_the_jobs_where_processes_write_no_bytecode(project, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(run_snakemake, "ROOT", tmp_path)
    Path("baselines/noisy").mkdir(parents=True)
    Path("baselines/noisy/mine.py").write_text("SCORE = 1\n")
    Path("baselines/noisy/unfinished.py").write_text("def score(\n")
    assert main(["run", "--", "-n", "--configfile", "mini.yaml"]) == 0 and not list(tmp_path.rglob("*.pyc"))
    assert main(["run", "--", "--configfile", "mini.yaml"]) == 0
    assert [file.name.split(".")[0] for file in tmp_path.rglob("*.pyc")] == ["mine"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Error in rule plain:\n", "error: a job failed (plain); the log is .snakemake/run.log, "),
        ("bash: line 1: 7 Killed  x\nError in rule plain:\n", "a job failed (plain); it was killed from outside, "),
        ("Killed\nError in rule plain:\nError in rule aum:\n", "2 jobs failed (plain, aum); some were killed from "),
    ],
)
def test_a_job_that_was_killed_is_told_with_a_remedy(project, capsys, monkeypatch, said, told):
    def snakemake(command, stdout, **_):
        os.write(stdout.fileno(), said.encode())
        return SimpleNamespace(returncode=1, poll=lambda: 1)

    monkeypatch.setattr(run_snakemake.subprocess, "Popen", snakemake)
    assert main(["run", "--", "--configfile", "mini.yaml"]) == 1
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1
    assert ("`execution.threads` up" in error and "the same command goes on" in error) == ("killed" in told)


def test_results_that_cannot_be_written_are_told_in_one_line_before_snakemake_starts(project, capsys):
    RUN.parent.mkdir()
    RUN.symlink_to("/proc/nowhere")
    assert main(["run", "--", "--configfile", "mini.yaml"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: results/mini cannot be written (") and told.count("\n") == 1 and not project


def test_a_data_folder_that_cannot_be_written_is_told_where_something_is_to_be_prepared(project, capsys, monkeypatch):
    Path("data").write_text("no folder")
    assert main(["run", "--", "--configfile", "mini.yaml"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: data cannot be written (") and told.count("\n") == 1 and not project
    monkeypatch.setattr(run_snakemake.Plan, "needed_datasets", lambda _: set())
    assert main(["run", "--", "--configfile", "mini.yaml"]) == 0
