"""The MLflow import: complete, idempotent, replacing what changed. One store for all tests: MLflow is slow to start."""

import sqlite3

import pytest

from sgoif.bench.evaluation.evaluate import evaluate
from sgoif.bench.sharing import mlflow_import, mlflow_store
from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_json
from tests.helpers.fake_runs import GRID, Run, config

ONE = {"n20s0": GRID["n20s0"]}
CELLS = 1 * 2 * 4 + 1  # setting x seeds x (plain, aum, sgoif, sgoif@no_gate), and a failed newcomer


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    run = Run(tmp_path_factory.mktemp("tracked"))
    run.fill_noisy(settings=ONE, seeds=(0, 1), methods={"aum": 1.5, "sgoif": 1.7})
    methods = ["aum", "sgoif", "sgoif@no_gate", "newcomer"]
    run.config = config(noisy={"digits": {"title": "digits", "settings": ONE, "seeds": [0, 1], "methods": methods}})
    evaluate(run.root, run.data, "noisy", "digits", run.config)
    atomic_write_json(run.root / "config.json", run.config)
    (run.root / "tables").mkdir()
    (run.root / "tables" / "table1.md").write_text("# Table 1\n")
    run.uri = mlflow_store.store_uri(run.root, {"tracking": {"uri": None}})
    mlflow_store.init_store(run.uri)
    run.first = mlflow_import.import_run(run.root, run.uri)
    return run


def runs(run, experiment="run/noisy/digits"):
    """title -> run"""
    client = mlflow_store.open_client(run.uri)
    found = client.get_experiment_by_name(experiment)
    return {r.info.run_name: r for r in client.search_runs([found.experiment_id], max_results=1000)}


def everything(run) -> list:
    """All rows of the store's tables that hold runs."""
    with sqlite3.connect(run.root / "mlflow" / "mlflow.db") as db:
        tables = ("runs", "metrics", "latest_metrics", "params", "tags", "experiments")
        return [sorted(map(repr, db.execute(f"select * from {t}").fetchall())) for t in tables]


def test_every_cell_is_a_run_with_its_numbers(imported):
    assert imported.first["created"] == CELLS + 2  # newcomer's second seed is ok in n20s0; and the tables
    run = runs(imported)["sgoif n20s0 seed1"]
    assert run.data.params["method"] == "sgoif" and run.data.params["seed"] == "1"
    assert run.data.tags["method_title"] == "SG-OIF" and run.data.tags["method_group"] == "Methods of the paper"
    assert run.data.metrics["overhead_standalone"] == pytest.approx(2.35)
    assert run.data.metrics["extra/hvps_per_step"] == 2.5 and "variant/early/auc_pr" in run.data.metrics
    for tag in ("commit", "config_hash", "hardware", "cell_key", "versions"):
        assert run.data.tags[tag]
    assert run.info.status == "FINISHED" and run.info.end_time - run.info.start_time == 4700


def test_curves_failures_and_artifacts(imported):
    client = mlflow_store.open_client(imported.uri)
    plain = runs(imported)["plain n20s0 seed0"]
    curve = client.get_metric_history(plain.info.run_id, "curve/loss")
    assert [(m.step, m.value) for m in curve] == [(0, 1.0), (1, 0.5), (2, 0.3)]
    failed = runs(imported)["newcomer n20s0 seed0"]
    assert failed.info.status == "FAILED" and failed.data.tags["reason"] == "the loss became NaN in epoch 3"
    tables = runs(imported, "run/tables")["tables and summary"]
    assert {a.path for a in client.list_artifacts(tables.info.run_id)} == {"table1.md", "config.json"}
    assert str(imported.root / "mlflow" / "artifacts") in plain.info.artifact_uri
    assert [a.path for a in client.list_artifacts(plain.info.run_id)] == ["result.json"]


def test_importing_twice_changes_nothing(imported):
    before = everything(imported)
    again = mlflow_import.import_run(imported.root, imported.uri)
    assert (again["created"], again["removed"], again["kept"]) == (0, 0, imported.first["created"])
    assert everything(imported) == before


def test_a_changed_cell_replaces_its_run_and_an_interrupted_import_is_mended(imported):
    old = runs(imported)
    imported.cell("noisy", "digits", "n20s0", 0, "newcomer", status="failed", reason="out of memory", key="k2")
    evaluate(imported.root, imported.data, "noisy", "digits", imported.config)
    client = mlflow_store.open_client(imported.uri)
    cut = old["aum n20s0 seed0"].info
    client.create_run(cut.experiment_id, tags={mlflow_import.ITEM_TAG: "n20s0/seed0/aum"}, run_name="cut short")
    done = mlflow_import.import_run(imported.root, imported.uri)
    assert (done["created"], done["removed"]) == (1, 2)
    new = runs(imported)
    assert set(new) == set(old)
    assert {n for n in new if new[n].info.run_id != old[n].info.run_id} == {"newcomer n20s0 seed0"}
    assert new["newcomer n20s0 seed0"].data.tags["cell_key"] == "k2"


def test_a_broken_store_is_told(tmp_path):
    (tmp_path / "m.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(UserError, match="delete the file and run again"):
        mlflow_store.init_store(f"sqlite:///{tmp_path / 'm.db'}")


def test_the_store_is_chosen_by_environment_then_configuration(tmp_path, monkeypatch):
    monkeypatch.delenv("SGOIF_TRACKING", raising=False)
    here, there = {"tracking": {"uri": None}}, {"tracking": {"uri": "postgresql://db/mlflow"}}
    assert mlflow_store.store_uri(tmp_path, here) == f"sqlite:///{tmp_path}/mlflow/mlflow.db"
    assert mlflow_store.store_uri(tmp_path, there) == "postgresql://db/mlflow"
    monkeypatch.setenv("SGOIF_TRACKING", "https://mlflow.example")
    assert mlflow_store.store_uri(tmp_path, there) == "https://mlflow.example"


def test_a_server_that_is_not_there_is_told_without_its_password(monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(UserError, match=r"http://me:\*\*\*@127\.0\.0\.1:9 does not work .*its server runs"):
        mlflow_store.init_store("http://me:secret@127.0.0.1:9")
