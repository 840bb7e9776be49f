"""`make ui`: it says when the page answers, refuses in one line what cannot be shown, and leaves no process behind."""

import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.request

import pytest

from sgoif.bench.sharing import mlflow_schema, mlflow_store, mlflow_ui
from sgoif.errors import UserError


@pytest.fixture
def store(tmp_path):
    """The file of a run's store; of MLflow's tables it has the revision alone."""
    path = tmp_path / "a run" / "mlflow" / "mlflow.db"
    path.parent.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("create table alembic_version (version_num text)")
        db.execute("insert into alembic_version values (?)", (mlflow_schema._revisions()[1],))
    return path


def refused(path) -> str:
    """What `make ui` says about a store."""
    with pytest.raises(UserError) as e:
        mlflow_ui.serve(path.parent.parent, f"sqlite:///{path}", 0)
    assert "\n" not in str(e.value)
    return str(e.value)


def test_a_missing_or_damaged_store_is_one_line_that_says_what_to_do(store):
    cure = f"run `rm -rf '{store.parent}'` and `make tables`"
    with contextlib.closing(sqlite3.connect(store)) as db, db:
        db.execute("drop table alembic_version")
    assert "holds no runs" in refused(store) and cure in refused(store)
    store.write_bytes(b"not a database at all" * 100)
    assert "is not a usable MLflow store" in refused(store) and cure in refused(store)
    store.unlink()
    assert "there is no MLflow store" in refused(store) and cure in refused(store)


def test_a_taken_port_is_one_line(store):
    with socket.create_server((mlflow_ui.HOST, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UserError, match=rf"port {port} is taken.*make ui PORT=5001"):
            mlflow_ui.serve(store.parent.parent, f"sqlite:///{store}", port)
    with pytest.raises(UserError, match="port 70000 cannot be used"):
        mlflow_ui.serve(store.parent.parent, f"sqlite:///{store}", 70000)


def test_the_pages_of_a_server_are_named_without_its_password(tmp_path, capsys):
    mlflow_ui.serve(tmp_path, "https://me:secret@mlflow.example")
    assert "https://me:***@mlflow.example; open it" in capsys.readouterr().out


def test_the_address_is_printed_when_it_answers_and_ctrl_c_ends_everything(tmp_path):
    run_dir = tmp_path / "run"
    uri = f"sqlite:///{run_dir}/mlflow/mlflow.db"
    mlflow_store.init_store(uri)
    mlflow_store.open_client(uri).create_experiment("run/noisy/digits")
    code = "import pathlib, sys; from sgoif.bench.sharing import mlflow_ui as ui; "
    code += "ui.serve(pathlib.Path(sys.argv[1]), sys.argv[2], 0)"
    command = [sys.executable, "-c", code, str(run_dir), uri]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert "wait until it answers" in process.stdout.readline()
        address = process.stdout.readline().split(" answers on ")[1].split()[0]
        assert "run/noisy/digits: " in process.stdout.readline()
        with urllib.request.urlopen(f"{address}/ajax-api/2.0/mlflow/experiments/search?max_results=9", timeout=30) as f:
            assert {e["name"] for e in json.load(f)["experiments"]} == {"Default", "run/noisy/digits"}
        assert members(process.pid) == [process.pid]  # one process, no workers
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0 and members(process.pid) == []
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def members(group: int) -> list[int]:
    """The processes of a group."""
    found = subprocess.run(["ps", "-e", "-o", "pid=,pgid="], capture_output=True, text=True, check=True).stdout
    return [int(pid) for pid, of in map(str.split, found.splitlines()) if int(of) == group]


def test_what_the_server_is_told_is_what_mlflow_reads():
    from mlflow import environment_variables
    from mlflow.server import constants

    assert mlflow_ui.STORE_VARIABLE == constants.BACKEND_STORE_URI_ENV_VAR
    assert constants.ARTIFACT_ROOT_ENV_VAR in mlflow_ui.ENVIRONMENT
    assert environment_variables.MLFLOW_SERVER_ENABLE_JOB_EXECUTION.name in mlflow_ui.ENVIRONMENT
