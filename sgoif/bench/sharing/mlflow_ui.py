"""`make ui`: serves MLflow's pages of a run to this machine, from one process, and says when they answer.

`mlflow ui` starts four servers and eight processes for jobs of language models, each of which imports MLflow; on two
slow cores its first page took a hundred seconds. One server in this process takes about ten, and ends with it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shlex
import socket
import sqlite3
import sys
import threading
import time
import urllib.error
import urllib.request
import warnings
from pathlib import Path
from typing import Any

from sgoif.bench.sharing import mlflow_artifacts, mlflow_schema, mlflow_store, mlflow_view
from sgoif.errors import UserError

HOST = "127.0.0.1"  # nobody else sees the pages
SECONDS_TO_ANSWER = 300.0
SECONDS_TO_END = 3
STORE_VARIABLE = "_MLFLOW_SERVER_FILE_STORE"  # what `mlflow ui --backend-store-uri` sets for its server
ENVIRONMENT = {
    **mlflow_store.QUIET_ENVIRONMENT,
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/",
    "_MLFLOW_SGI_NAME": "uvicorn",
}


def serve(run_dir: Path, uri: str, port: int = 5000) -> None:
    """Serve MLflow's pages until Ctrl-C.

    Args:
        run_dir: Folder of the run.
        uri: Address of the store (`mlflow_store.store_uri`); the pages of a server are where it is.
        port: Where to listen on this machine.

    Raises:
        UserError: If the store is missing, damaged or of another version, if it cannot be reached, or if the port is
            taken.
    """
    started = time.perf_counter()
    if uri.startswith(("http://", "https://")):
        print(f"the runs are on the server {mlflow_store.without_password(uri)}; open it in a browser")
        return
    check_store(run_dir, uri)
    with contextlib.closing(_listen(port)) as listener:
        print(f"MLflow starts on http://{HOST}:{port}; wait until it answers", flush=True)
        _run(run_dir, uri, listener, started)


def check_store(run_dir: Path, uri: str) -> None:
    """Refuse a SQLite store that MLflow could not show, and find artifacts of a folder that was moved.

    Raises:
        UserError: If the store is missing, damaged or of another version, with what to do.
    """
    path = mlflow_store.sqlite_file(uri)
    if path is None:
        return
    cure = "run `make tables`, which imports the run"
    if mlflow_store.is_own(path, run_dir):
        cure = f"run `rm -rf {shlex.quote(str(path.parent))}` and `make tables`, which makes it from the run's files"
    if not path.is_file():
        raise UserError(f"there is no MLflow store {path}; {cure}")
    try:
        mlflow_schema.check_file(path)
        if mlflow_schema.revision(path) is None:
            raise UserError(f"{path} holds no runs; {cure}")
        if mlflow_store.is_own(path, run_dir) and (difference := mlflow_schema.other_version(path)):
            raise UserError(f"{path} {difference}; {cure}")
        mlflow_schema.check_version(path)
    except UserError as e:
        raise UserError(str(e).replace("delete the file and run again", cure)) from None
    try:
        mlflow_artifacts.relocate(path, run_dir)
    except sqlite3.OperationalError as e:  # read-only, or an import is at work: the pages can be shown all the same
        print(f"warning: {path} cannot be written ({e}); artifacts of a moved folder are not found", file=sys.stderr)


def _listen(port: int) -> socket.socket:
    """Listen at once: a page opened early waits, and nobody else can take the port meanwhile."""
    try:
        return socket.create_server((HOST, port))
    except (OSError, OverflowError) as e:
        taken = getattr(e, "errno", None) == errno.EADDRINUSE
        reason = "is taken, perhaps by another `make ui`" if taken else f"cannot be used ({e})"
        raise UserError(f"port {port} {reason}; end that program, or choose another: `make ui PORT=5001`") from None


def _run(run_dir: Path, uri: str, listener: socket.socket, started: float) -> None:
    os.environ.update({**ENVIRONMENT, STORE_VARIABLE: uri})
    warnings.filterwarnings("ignore", module=r"mlflow\.server")  # of the libraries that its server is made of
    import uvicorn
    from mlflow.server.fastapi_app import app  # here, where Ctrl-C still ends it at once

    class Server(uvicorn.Server):
        """Ends by itself at Ctrl-C, without raising it again."""

        def handle_exit(self, sig: int, frame: Any) -> None:
            self.force_exit = self.should_exit
            self.should_exit = True

    server = Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=SECONDS_TO_END))
    port = listener.getsockname()[1]
    problems: list[str] = []

    def announce() -> None:
        try:
            found = _experiments(port)
        except (OSError, ValueError) as e:
            problems.append(_reason(e))
            server.should_exit = True
            return
        seconds = time.perf_counter() - started
        print(f"MLflow answers on http://{HOST}:{port} after {seconds:.0f} s; Ctrl-C ends it", flush=True)
        for name, experiment_id in found.items():
            if name.startswith(f"{run_dir.name}/"):
                print(f"  {name}: http://{HOST}:{port}/{mlflow_view.runs_page(name, experiment_id)}", flush=True)

    threading.Thread(target=announce, daemon=True).start()
    server.run(sockets=[listener])
    if problems:
        address = mlflow_store.without_password(uri)
        raise UserError(f"MLflow cannot show {address} ({problems[0]}); check that it can be reached")


def _experiments(port: int) -> dict[str, str]:
    """Name -> id of the store's experiments, once the server answers."""
    url = f"http://{HOST}:{port}/ajax-api/2.0/mlflow/experiments/search?max_results=1000"
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(url, timeout=SECONDS_TO_ANSWER) as answer:
        found = json.load(answer).get("experiments", [])
    return {e["name"]: e["experiment_id"] for e in sorted(found, key=lambda e: str(e["name"]))}


def _reason(error: Exception) -> str:
    """The first words of what a server answered, on one line."""
    text = error.read().decode(errors="replace") if isinstance(error, urllib.error.HTTPError) else str(error)
    with contextlib.suppress(ValueError, AttributeError):
        text = str(json.loads(text).get("message", text))
    return " ".join(text.split())[: mlflow_schema.MAX_MESSAGE_LENGTH]
