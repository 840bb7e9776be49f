"""The MLflow import: complete, idempotent, replacing what changed. One store for all tests: MLflow is slow to start."""

import json
import shutil
import sqlite3

import pytest

from sgoif.bench.evaluation.evaluate import evaluate
from sgoif.bench.sharing import mlflow_import, mlflow_schema, mlflow_store, mlflow_ui, mlflow_view
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
        tables = ("runs", "metrics", "latest_metrics", "params", "tags", "experiments", "experiment_tags")
        return [sorted(map(repr, db.execute(f"select * from {t}").fetchall())) for t in tables]


def test_every_cell_is_a_run_with_its_numbers(imported):
    assert imported.first["created"] == CELLS + 2  # newcomer's second seed is ok in n20s0; and the tables
    run = runs(imported)["sgoif n20s0 1"]
    assert run.data.params["method"] == "sgoif" and run.data.params["seed"] == "1"
    assert run.data.tags["method_title"] == "SG-OIF" and run.data.tags["method_group"] == "Methods of the paper"
    assert run.data.metrics["overhead_standalone"] == pytest.approx(2.35)
    assert run.data.metrics["extra/hvps_per_step"] == 2.5 and "variant/early/auc_pr" in run.data.metrics
    for tag in ("commit", "config_hash", "hardware", "cell_key", "versions"):
        assert run.data.tags[tag]
    assert run.info.status == "FINISHED" and run.info.end_time - run.info.start_time == 4700


def test_curves_failures_and_artifacts(imported):
    client = mlflow_store.open_client(imported.uri)
    plain = runs(imported)["plain n20s0 0"]
    curve = client.get_metric_history(plain.info.run_id, "curve/loss")
    assert [(m.step, m.value) for m in curve] == [(0, 1.0), (1, 0.5), (2, 0.3)]
    failed = runs(imported)["newcomer n20s0 0"]
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
    cut = old["aum n20s0 0"].info
    client.create_run(cut.experiment_id, tags={mlflow_import.ITEM_TAG: "n20s0/seed0/aum"}, run_name="cut short")
    done = mlflow_import.import_run(imported.root, imported.uri)
    assert (done["created"], done["removed"]) == (1, 2)
    new = runs(imported)
    assert set(new) == set(old)
    assert {n for n in new if new[n].info.run_id != old[n].info.run_id} == {"newcomer n20s0 0"}
    assert new["newcomer n20s0 0"].data.tags["cell_key"] == "k2"


def test_the_page_of_runs_shows_the_metrics_that_matter(imported):
    client = mlflow_store.open_client(imported.uri)
    experiment = client.get_experiment_by_name("run/noisy/digits")
    view = json.loads(experiment.tags[f"mlflow.sharedViewState.{mlflow_view.VIEW}"])
    shown = [name.split("`")[1] for name in view["selectedColumns"]]
    assert shown == ["auc_pr", "p_at_1", "auroc", "test_accuracy", "seconds_total", "method", "setting", "seed"]
    run = runs(imported)["sgoif n20s0 1"]
    assert set(shown) <= run.data.metrics.keys() | run.data.params.keys()
    page = mlflow_view.runs_page(experiment.name, experiment.experiment_id)
    assert page.endswith("viewStateShareKey=sgoif") and page in experiment.tags["mlflow.note.content"]
    assert "viewState" not in mlflow_view.runs_page("run/tables", "2")
    client.set_experiment_tag(experiment.experiment_id, "mlflow.note.content", "mine")
    mlflow_import.import_run(imported.root, imported.uri)
    assert client.get_experiment(experiment.experiment_id).tags["mlflow.note.content"] == "mine"


@pytest.mark.parametrize("by", ["import", "ui"])
def test_artifacts_are_found_after_the_folder_was_moved(imported, tmp_path, by):
    there = tmp_path / "other place" / "run"
    shutil.copytree(imported.root, there)
    shutil.move(imported.root / "mlflow" / "artifacts", imported.root / "mlflow" / "hidden")
    uri = f"sqlite:///{there}/mlflow/mlflow.db"
    try:
        mlflow_import.import_run(there, uri) if by == "import" else mlflow_ui.check_store(there, uri)
        client = mlflow_store.open_client(uri)
        for experiment in ("run/noisy/digits", "run/tables"):
            found = client.get_experiment_by_name(experiment)
            for run in client.search_runs([found.experiment_id]):
                files = [a.path for a in client.list_artifacts(run.info.run_id)]
                assert files and (tmp_path / "other place").as_uri() in run.info.artifact_uri
        assert open(client.download_artifacts(run.info.run_id, "table1.md")).read() == "# Table 1\n"
    finally:
        shutil.move(imported.root / "mlflow" / "hidden", imported.root / "mlflow" / "artifacts")


@pytest.mark.parametrize(("revision", "age"), [("90e64c465722", "an older"), ("ffffffffffff", "a newer")])
def test_a_store_of_another_version_is_kept_and_made_again(imported, tmp_path, capsys, revision, age):
    there = tmp_path / "run"
    shutil.copytree(imported.root, there)
    path = there / "mlflow" / "mlflow.db"
    with sqlite3.connect(path) as db:
        db.execute("update alembic_version set version_num = ?", (revision,))
    with pytest.raises(UserError, match=rf"{age} MLflow .*revision {revision}, here .*rm -rf .*make tables"):
        mlflow_ui.check_store(there, f"sqlite:///{path}")
    with pytest.raises(UserError, match=rf"{age} MLflow .*move the file away"):  # not the run's own: left alone
        mlflow_store.init_store(f"sqlite:///{path}", tmp_path / "another run")
    done = mlflow_import.import_run(there, f"sqlite:///{path}")
    assert done["created"] == imported.first["created"] and done["kept"] == 0
    assert mlflow_schema.revision(path.with_name(f"mlflow.db.{revision}")) == revision
    assert mlflow_schema.other_version(path) is None
    assert f"{age} MLflow" in capsys.readouterr().err


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
