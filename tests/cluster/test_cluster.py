"""For real: a small run through Slurm, imports into PostgreSQL from several processes. `make test-slurm`."""

import os
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from sgoif.bench.evaluation.evaluate import evaluate
from sgoif.bench.sharing import mlflow_import, mlflow_store
from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_json
from sgoif.utils.paths import ROOT
from tests.chaos.project import TABLES, Project
from tests.cluster import throwaway
from tests.helpers.fake_runs import GRID, Run, config

pytestmark = pytest.mark.slow


@pytest.mark.skipif(bool(throwaway.missing_for_slurm()), reason=throwaway.missing_for_slurm())
def test_through_slurm_the_tables_are_the_same(tmp_path):
    here, there = Project(tmp_path / "here"), Project(tmp_path / "there")
    status, said = here.run(TABLES)
    assert status == 0, said[-3000:]
    quick = ["--slurm-init-seconds-before-status-checks", "3", "--seconds-between-status-checks", "3"]
    options = [*quick, "--slurm-status-command", "squeue", "--slurm-no-account", "--slurm-keep-successful-logs"]
    sizes = ["--default-resources", "slurm_partition=main", "mem_mb=2000*attempt", "runtime=10"]
    with throwaway.slurm() as env, mock.patch.dict(os.environ, env):
        words = [TABLES, "--workflow-profile", "profiles/slurm", "--latency-wait", "10", *options, *sizes]
        status, said = there.run(*words)
        log = Path(env["SLURM_CONF"]).with_name("slurmctld.log")
        jobs = len(set(re.findall(r"_job_complete: JobId=(\d+)", log.read_text())))
    assert status == 0, said[-3000:]
    assert jobs >= 8, "the jobs went through Slurm"
    assert there.outcome() == here.outcome()


def finished(folder: Path, name: str) -> Run:
    run = Run(folder)
    run.root.rename(run.root.with_name(name)) if run.root.exists() else None
    run.root = run.root.with_name(name)
    one = {"n20s0": GRID["n20s0"]}
    run.fill_noisy(settings=one, seeds=(0,), methods={"aum": 1.5, "sgoif": 1.7})
    run.config = config(noisy={"digits": {"settings": one, "seeds": [0], "methods": ["aum", "sgoif"]}})
    evaluate(run.root, run.data, "noisy", "digits", run.config)
    atomic_write_json(run.root / "config.json", run.config)
    return run


@pytest.mark.skipif(bool(throwaway.missing_for_postgres()), reason=throwaway.missing_for_postgres())
def test_several_nodes_import_into_one_postgresql(tmp_path):
    """Two runs into a database without any tables, at the same moment, from two processes; then once more."""
    runs = [finished(tmp_path / name, name) for name in ("one", "two")]
    code = (
        "import sys; from sgoif.bench.sharing.mlflow_import import import_run; "
        "print(import_run(*sys.argv[1:])['created'])"
    )
    with throwaway.postgres() as uri:
        for expected in ("7", "0"):  # plain, two methods, a variant, a newcomer twice, the tables; then nothing is new
            both = [
                subprocess.Popen(
                    [sys.executable, "-c", code, str(run.root), uri],
                    cwd=ROOT,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                for run in runs
            ]
            said = [p.communicate(timeout=200) for p in both]
            assert [out.strip() for out, _ in said] == [expected] * 2, said
        known = mlflow_store.experiments(mlflow_store.open_client(uri))
        assert {"one/noisy/digits", "two/noisy/digits", "one/tables", "two/tables"} <= set(known)
    with pytest.raises(UserError, match="check that its server runs"):
        mlflow_import.import_run(runs[0].root, uri)
