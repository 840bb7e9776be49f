"""The process of which the jobs of a run are copies: libraries are imported once instead of in every job.

A job that computes nothing takes five seconds of importing torch and the rest. The server imports them while Snakemake
plans, and forks for each step that a `client` hands over. A copy is a process of its own, as before: it has the
client's arguments, environment, folder and output, can fail or be killed alone, and its exit status is the client's.

The server holds libraries alone. A copy imports the project's own modules itself, so that it runs the code that is on
the disk when it starts, which is also what the key of a cell is computed from.

Where a step cannot be handed over (another interpreter, as with conda; another machine; no such sockets), it runs by
itself, and only takes longer to start.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from sgoif.bench.execution.launch import client
from sgoif.bench.execution.launch.lifeline import killed_with_parent

LIBRARIES = (
    "numpy",
    "torch",
    "torch._dynamo",  # the first optimiser imports it
    "sklearn.datasets",
    "sklearn.metrics",
    "sklearn.mixture",
    "scipy.stats",
    "jsonschema",
    "matplotlib.pyplot",
)
PROJECT = ("sgoif", "baselines")
LOG = Path(".snakemake/job-server.log")
REQUEST_SECONDS = 10.0  # for a client to say what it wants


@contextlib.contextmanager
def job_server(libraries: Sequence[str] = LIBRARIES, **environment: str) -> Iterator[dict[str, str]]:
    """Keep a server running inside a `with` block.

    Args:
        libraries: Modules that it imports.
        **environment: Variables that libraries read when they are imported.

    Yields:
        The environment variable by which steps find it; empty where the system has no such sockets.
    """
    if not sys.platform.startswith("linux"):
        yield {}
        return
    address = f"sgoif-jobs-{os.getpid()}-{secrets.token_hex(8)}"
    LOG.parent.mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, LOG.open("w") as log:
        listener.bind("\0" + address)
        listener.listen(128)
        server = subprocess.Popen(
            [sys.executable, "-m", __name__, str(listener.fileno()), *libraries],
            pass_fds=[listener.fileno()],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,  # Ctrl-C reaches the clients, which pass it on
            preexec_fn=killed_with_parent(),
        )
    try:
        yield {client.ADDRESS: address}
    finally:
        server.kill()  # its jobs end with it
        server.wait()


class Server:
    """Answers clients until it is killed. It has one thread, since a process with several must not fork."""

    def __init__(self, listener: socket.socket, interpreter: dict[str, Any]) -> None:
        """Take over a listening socket.

        Args:
            listener: Where clients connect.
            interpreter: What a client must have in common with this process, as it was when it started.
        """
        self._listener = listener
        self._interpreter = interpreter
        self._clients: dict[int, socket.socket] = {}  # by process of the job
        self._die_with_server = killed_with_parent()

    def serve(self) -> None:
        """Fork a job for every request, and tell its client how it ended."""
        ended, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        while True:
            ready, _, _ = select.select([self._listener, ended], [], [])
            if ended in ready:
                os.read(ended, 4096)
                self._report_ended()
            if self._listener in ready:
                self._accept()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        try:
            connection.settimeout(REQUEST_SECONDS)
            header, files, _, _ = socket.recv_fds(connection, client.LENGTH.size, 3)
            request = client.read_text(connection, header) if client.peer_is_same_user(connection) else None
        except (OSError, ValueError):
            request, files = None, []
        connection.settimeout(None)
        if request is None or len(files) != 3 or any(request[k] != v for k, v in self._interpreter.items()):
            connection.close()  # the client runs the step itself
        else:
            self._start(connection, request, files)
        for file in files:
            os.close(file)

    def _start(self, connection: socket.socket, request: dict[str, Any], files: list[int]) -> None:
        process = os.fork()
        if process == 0:
            self._listener.close()
            for other in self._clients.values():
                other.close()
            _run_step(connection, request, files, self._die_with_server)
        self._clients[process] = connection
        with contextlib.suppress(OSError):
            client.send(connection, {"process": process})

    def _report_ended(self) -> None:
        while self._clients:
            process, status = os.waitpid(-1, os.WNOHANG)
            if process == 0:
                return
            with self._clients.pop(process) as connection, contextlib.suppress(OSError):
                code = os.waitstatus_to_exitcode(status)
                client.send(connection, {"status": code if code >= 0 else 128 - code})


def _run_step(connection: socket.socket, request: dict[str, Any], files: list[int], die: Any) -> NoReturn:
    """Become the job: the life of a forked process, which does not return."""
    status = 1
    try:
        if die is not None:
            die()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        threading.Thread(target=_die_with_client, args=(connection,), daemon=True).start()
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.argv = [request["program"], *request["arguments"]]
        for name in [m for m in sys.modules if m.partition(".")[0] in PROJECT]:
            del sys.modules[name]
        status = _main(request["arguments"])
    except BaseException:  # what a process of its own would print before it ends
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _main(arguments: list[str]) -> int:
    try:
        status = importlib.import_module("sgoif.bench.cli").main(arguments)
        return int(status)
    except SystemExit as e:  # of the parser
        return e.code if isinstance(e.code, int) else 1


def _die_with_client(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.recv(1)
    os.kill(os.getpid(), signal.SIGKILL)


def _import_all(libraries: Sequence[str]) -> None:
    for name in libraries:
        with contextlib.suppress(ImportError):  # the step that needs it says that it is missing
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # so that collections of the copies do not touch, and copy, what they share


if __name__ == "__main__":
    server = Server(socket.socket(fileno=int(sys.argv[1])), client.interpreter())
    _import_all(sys.argv[2:])
    server.serve()
