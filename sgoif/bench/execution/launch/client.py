"""Hands a step to the process that has the libraries loaded already (`server`), and ends as the step ended.

This module is imported before anything else of a step, so it imports little itself.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
from typing import Any

ADDRESS = "SGOIF_JOB_SERVER"  # environment variable: name of the server's socket
LENGTH = struct.Struct("!Q")  # of a message, before its text
_PEER = struct.Struct("3i")  # process, user and group at the other end of a socket


def hand_over(arguments: list[str]) -> int | None:
    """Run a step in a copy of the run's prepared process, if there is one for this Python and this folder.

    Signals that end a process are passed on to the copy, which dies when this process does.

    Args:
        arguments: Words of the command line after `python -m sgoif.bench`.

    Returns:
        The exit status of the step; None if it was not run, so that this process has to run it.
    """
    address = os.environ.get(ADDRESS)
    server = _connect(address) if address else None
    if server is None:
        return None
    with server:
        try:
            send(server, {**interpreter(), "program": sys.argv[0], "arguments": arguments, **_place()}, (0, 1, 2))
            started = receive(server)
        except OSError:
            return None
        if not started or "process" not in started:
            return None
        _forward_signals(started["process"])
        ended = receive(server)
    if ended is None:
        print("error: the process that starts the jobs of this run has ended; run again to go on", file=sys.stderr)
        return 1
    status = int(ended["status"])
    if status == 128 + signal.SIGKILL:
        print("Killed", file=sys.stderr)  # as a shell says of a process of its own; the copy could say nothing
    return status


def interpreter() -> dict[str, Any]:
    """Return what a process must have in common with the server: Python and where modules are looked for."""
    return {"python": [sys.prefix, sys.version], "path": sys.path}


def peer_is_same_user(connection: socket.socket) -> bool:
    """Say whether the process at the other end belongs to this user."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return bool(_PEER.unpack(raw)[1] == os.getuid())


def send(connection: socket.socket, message: dict[str, Any], files: tuple[int, ...] = ()) -> None:
    """Send a message, and with it open files by their descriptors."""
    text = json.dumps(message).encode()
    header = LENGTH.pack(len(text))
    if files:
        socket.send_fds(connection, [header], list(files))
    else:
        connection.sendall(header)
    connection.sendall(text)


def receive(connection: socket.socket) -> dict[str, Any] | None:
    """Return the next message; None if the other end has gone."""
    try:
        header = connection.recv(LENGTH.size, socket.MSG_WAITALL)
        return read_text(connection, header)
    except ConnectionError:
        return None


def read_text(connection: socket.socket, header: bytes) -> dict[str, Any] | None:
    """Return the message of a header that was read; None if the other end has gone."""
    if len(header) < LENGTH.size:
        return None
    (left,) = LENGTH.unpack(header)
    text = b""
    while left > len(text):
        part = connection.recv(left - len(text))
        if not part:
            return None
        text += part
    message: dict[str, Any] = json.loads(text)
    return message


def _connect(address: str) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect("\0" + address)  # the kernel's own names: no file is left behind
        if peer_is_same_user(connection):
            return connection
    except (OSError, AttributeError):  # no such server, as on another machine, or no such system
        pass
    connection.close()
    return None


def _place() -> dict[str, Any]:
    return {"folder": os.getcwd(), "environment": dict(os.environ)}


def _forward_signals(process: int) -> None:
    def forward(number: int, frame: object) -> None:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            pass  # it has just ended

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, forward)
