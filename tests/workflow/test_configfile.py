"""Which configuration Snakemake takes, and that planning a run writes nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from sgoif.bench.run_folder import RUN_LOCK
from sgoif.utils.paths import ROOT
from tests.helpers.project_copy import MINI_CONFIG
from tests.workflow.test_dag import checked
from tests.workflow.test_run import copy_project, environment


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    return copy_project(tmp_path_factory.mktemp("project"))


def snakemake(folder: Path, *arguments: str, config: Path = MINI_CONFIG) -> subprocess.CompletedProcess:
    """Run Snakemake, which need not check the hyper-parameters of `config` again."""
    command = [sys.executable, "-m", "snakemake", "--nolock", *arguments]
    variables = {**environment(), **checked(config)}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=180)


def files(folder: Path) -> dict[str, bytes]:
    """Everything but Snakemake's own folder and compiled code."""
    found = [p for p in folder.rglob("*") if not {".snakemake", "__pycache__"} & set(p.relative_to(folder).parts)]
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"" for p in found}


def test_a_dry_run_writes_nothing(project):
    before = files(project)
    done = snakemake(project, "-n", "--configfile", "mini.yaml")
    assert done.returncode == 0 and "results/mini/summary.json" in done.stdout + done.stderr, done.stderr[-2000:]
    assert files(project) == before


def test_without_a_file_it_is_the_embedded_run_and_a_file_has_to_name_its_own(project):
    done = snakemake(project, "-n", "track_init", config=ROOT / "configs" / "embedded.yaml")
    assert done.returncode == 0 and "results/embedded/mlflow/created" in done.stdout + done.stderr, done.stderr[-2000:]
    (project / "nameless.yaml").write_text("execution: {threads: 1}\n")
    done = snakemake(project, "-n", "track_init", "--configfile", "nameless.yaml")
    assert done.returncode and "the key 'run' is missing" in done.stdout + done.stderr
    (project / "configs" / "child.yaml").write_text("extends: embedded.yaml\n")
    done = snakemake(project, "-n", "track_init", "--configfile", "configs/child.yaml")
    assert done.returncode and "the key 'run' is missing" in done.stdout + done.stderr


def test_a_selection_plans_its_own_folder_and_nothing_of_the_whole_run(project):
    before = files(project)
    command = [sys.executable, "-m", "sgoif.bench", "run", "--methods=loss", "--settings=n20_s0", "--seeds=1"]
    done = subprocess.run(
        [*command, "--", "-n", "--configfile", "mini.yaml"],
        cwd=project,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    shown = done.stdout + done.stderr
    rules = {line.split()[1].rstrip(":") for line in shown.splitlines() if line.startswith(("rule ", "localrule "))}
    assert rules == {"prepare", "corrupt", "hold_out", "plain", "noisy_loss", "evaluate", "summarise", "tables", "all"}
    assert "results/mini/selections/methods-loss.settings-n20_s0.seeds-1/tables/table1.md" in shown
    assert "results/mini/tables" not in shown and files(project) == before


def test_jobs_that_start_find_the_configuration(project):
    done = snakemake(project, "results/mini/mlflow/created", "--cores", "1", "--configfile", "mini.yaml")
    assert done.returncode == 0, done.stderr[-2000:]
    assert (project / "results/mini/config.json").is_file()
    assert (project / RUN_LOCK).is_file(), "`make` would not know of this run"
