"""Opens the MLflow store of a run: a SQLite file, a PostgreSQL database or a server.

Where several nodes run the benchmark the store is a database or a server (docs/benchmark/cluster.md). One process at a
time creates or fills a store, and failures of MLflow or its database become one-line errors.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgoif.bench.sharing import mlflow_schema
from sgoif.errors import UserError
from sgoif.utils.files import atomic_replace, file_lock

if TYPE_CHECKING:
    from mlflow import MlflowClient

# set before mlflow is imported: nothing is sent anywhere, and neither git nor the network is used
QUIET_ENVIRONMENT = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "GIT_PYTHON_REFRESH": "quiet"}


def store_uri(run_dir: Path, config: Mapping[str, Any]) -> str:
    """Return the address of a run's store.

    That is SGOIF_TRACKING, else the configuration's `tracking.uri`, else a SQLite file in the run's folder.
    """
    return os.environ.get("SGOIF_TRACKING") or config["tracking"]["uri"] or f"sqlite:///{run_dir}/mlflow/mlflow.db"


def init_store(uri: str, run_dir: Path | None = None) -> None:
    """Create the store with MLflow's tables if there is none.

    Args:
        uri: Address of the store.
        run_dir: Folder of the run; its own store is made again if it is of another version of MLflow.

    Raises:
        UserError: If the store is damaged, of another version, or cannot be reached.
    """
    with readable_errors(uri), exclusive(uri):
        ensure_store(uri, run_dir)


def ensure_store(uri: str, run_dir: Path | None = None) -> None:
    """Create the store if there is none; the caller holds `exclusive`."""
    path = sqlite_file(uri)
    if path is None:
        experiments(open_client(uri))
        return
    if path.is_file():
        mlflow_schema.check_file(path)
        if is_own(path, run_dir):
            mlflow_schema.set_aside_other_version(path)
        else:
            mlflow_schema.check_version(path)
    if (
        not path.is_file()
    ):  # a store whose creation was cut short cannot be repaired, so it gets its name when it is complete
        with atomic_replace(path) as temporary:
            experiments(open_client(f"sqlite:///{temporary}"))


@contextlib.contextmanager
def exclusive(uri: str) -> Iterator[None]:
    """Hold the store alone: MLflow breaks a new store when several processes create it at once.

    SQLite: a lock beside the file. PostgreSQL: a lock in the database, which holds across nodes and is released with
    its connection. A server has its own.
    """
    path = sqlite_file(uri)
    if path is not None:
        with file_lock(path.with_suffix(".lock")):
            yield
    elif uri.startswith("postgresql"):
        from sqlalchemy import create_engine, text
        from sqlalchemy.pool import NullPool

        with create_engine(uri, poolclass=NullPool).connect() as connection:
            connection.execute(text("select pg_advisory_lock(hashtext('sgoif'))"))
            yield
    else:
        yield


@contextlib.contextmanager
def readable_errors(uri: str) -> Iterator[None]:
    """Turn errors of MLflow and its database into a `UserError` of one line, with the store and what to do."""
    os.environ.update(QUIET_ENVIRONMENT)
    from alembic.util.exc import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, CommandError) as e:
        message = " ".join(str(getattr(e, "orig", None) or e).split())[: mlflow_schema.MAX_MESSAGE_LENGTH]
        if "disk is full" in message:
            raise UserError(f"{uri}: the disk is full; free some room and run again") from None
        path = sqlite_file(uri)
        cure = f"delete {path} and run again" if path else "check that its server runs and can be reached"
        if "out-of-date database schema" in message:
            cure = "if it is older than the MLflow here, back it up and run `mlflow db upgrade`; else use its MLflow"
        raise UserError(f"the MLflow store {without_password(uri)} does not work ({message}); {cure}") from None
    except ModuleNotFoundError as e:
        raise UserError(f"{without_password(uri)} needs the package {e.name}; `make cluster` installs it") from None


def open_client(uri: str) -> MlflowClient:
    """Open a client of the store.

    Raises:
        UserError: If the file of a SQLite store is damaged or of another version of MLflow, which itself would try
            again for two minutes.
    """
    path = sqlite_file(uri)
    if path is not None and path.is_file():
        mlflow_schema.check_file(path)
        mlflow_schema.check_version(path)
    os.environ.update(QUIET_ENVIRONMENT)
    import logging

    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
    from mlflow import MlflowClient
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    if not event.contains(Engine, "connect", _do_not_sync):
        event.listen(Engine, "connect", _do_not_sync)
    return MlflowClient(tracking_uri=uri)


def experiments(client: MlflowClient) -> dict[str, str]:
    """Return name -> id of all experiments; one that was deleted in the user interface is restored."""
    from mlflow.entities import ViewType

    found = client.search_experiments(ViewType.ALL, max_results=1000)
    for experiment in found:
        if experiment.lifecycle_stage == "deleted":
            client.restore_experiment(experiment.experiment_id)
    return {e.name: e.experiment_id for e in found}


def sqlite_file(uri: str) -> Path | None:
    """Return the file of a SQLite store; None for a server or another database."""
    return Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else None


def is_own(path: Path, run_dir: Path | None) -> bool:
    """Return whether a SQLite file is the store in the run's folder, which holds nothing but that run."""
    return run_dir is not None and path.resolve() == (run_dir / "mlflow" / "mlflow.db").resolve()


def without_password(uri: str) -> str:
    """Return the address of a store with its password hidden."""
    return re.sub(r"(://[^:/@]*):[^@]*@", r"\1:***@", uri)


def _do_not_sync(connection: Any, _: Any) -> None:
    """Skip waiting for the disk at each of the ten commits of a run: a broken store is deleted and imported again."""
    if type(connection).__module__.startswith("sqlite3"):
        connection.execute("PRAGMA synchronous = OFF")
