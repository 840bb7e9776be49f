"""Downloads that go wrong: a web server on this machine that cuts, stalls, lies, or is killed under.

The dataset is tiny, in MNIST's format; after every fault its prepared arrays are those of a calm download.
`python -m tests.chaos.network URL FOLDER` is the process that is killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from sgoif.bench.data import catalogue, download
from sgoif.bench.data.prepare import prepare
from sgoif.errors import UserError
from sgoif.utils.paths import ROOT
from tests.helpers.tiny_archives import Shop, grey_dataset, shop

NAME = "tiny_grey"


class Trickster(Shop):
    """A Shop whose next answers are tricks, by name, from `server.tricks`."""

    def do_GET(self) -> None:
        trick = self.server.tricks.pop(0) if self.server.tricks else None
        data = self.server.files.get(self.path.strip("/"), b"")
        if trick == "not http":
            self.wfile.write(b"220 smtp ready\r\n" * 20)
        elif trick == "refuse":
            self.connection.close()
        elif trick == "a page":
            self._send(b"<html>Please log in</html>")
        elif trick == "wrong bytes":
            self._send(bytes(len(data)))
        elif trick == "promises more":
            self._send(data, length=len(data) + 1000)
        elif trick == "no length":
            self._send(data[: len(data) // 2], length=None)
        elif trick == "odd length":
            self._send(data, length="many")
        elif trick == "stall":
            self._send(data[: len(data) // 2], length=len(data))
            self.server.stalled.append(self.path)
            time.sleep(3)
        elif trick == "redirect":
            self.send_response(302)
            self.send_header("Location", self.path)
            self.end_headers()
        else:
            super().do_GET()

    def _send(self, data: bytes, length: object = -1) -> None:
        self.send_response(200)
        if length is not None:
            self.send_header("Content-Length", str(len(data) if length == -1 else length))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()


FAULTS = {  # what the server does, and how often, before it behaves
    "the connection breaks half-way": {"cut": [40]},
    "the connection breaks again and again": {"cut": [9] * 6},
    "the connection stalls half-way": {"tricks": ["stall"]},
    "the connection stalls until we give up": {"tricks": ["stall"] * 4},
    "wrong bytes of the right length": {"tricks": ["wrong bytes"]},
    "a log-in page instead of the file": {"tricks": ["a page"]},
    "less came than was promised": {"tricks": ["promises more"] * 4},
    "half a file and no length": {"tricks": ["no length"]},
    "a length that is no number": {"tricks": ["odd length"]},
    "the server is busy": {"errors": [503, 429]},
    "the server stays busy": {"errors": [503] * 4},
    "the file is gone from the server": {"errors": [404]},
    "the answer is not HTTP": {"tricks": ["not http"] * 4},
    "the connection is closed at once": {"tricks": ["refuse"] * 4},
    "the server sends us in circles": {"tricks": ["redirect"] * 40},
}


@contextlib.contextmanager
def known(url: str) -> Iterator[None]:
    """The tiny dataset in the registry, with its files at `url`; a quick clock for timeouts and waits."""
    d, _, _ = grey_dataset(NAME, url)
    clock = SimpleNamespace(sleep=lambda seconds: None)
    with mock.patch.dict(catalogue.DATASETS, {NAME: d}), mock.patch.multiple(download, TIMEOUT_SECONDS=0.4, time=clock):
        yield


@contextlib.contextmanager
def server() -> Iterator:
    _, _, files = grey_dataset(NAME)
    with shop(files) as shopkeeper:
        shopkeeper.RequestHandlerClass = Trickster
        shopkeeper.tricks, shopkeeper.stalled = [], []
        yield shopkeeper


def outcome(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted((folder / NAME).glob("*.npy"))}


def downloads(folder: Path, record, names=tuple(FAULTS)) -> None:
    """Injects the faults by name; `record` as in the driver."""
    with server() as shopkeeper, known(shopkeeper.url):
        reference = outcome(prepare(NAME, folder / "calm").parent)
        for name in names:
            place = folder / "stormy"
            shutil.rmtree(place, ignore_errors=True)
            for what in ("cut", "tricks", "errors"):
                setattr(shopkeeper, what, list(FAULTS[name].get(what, [])))
            said = ""
            try:
                prepare(NAME, place)
            except UserError as e:
                said = str(e).replace(shopkeeper.url, "http://…/").replace(str(folder), "…")
                shopkeeper.cut, shopkeeper.tricks, shopkeeper.errors = [], [], []
                prepare(NAME, place)
            named = not said or ("ubyte.gz" in said and "by hand" in said and "\n" not in said)
            same = outcome(place) == reference and named
            record("network", name, "LOST" if not same else "told, then same" if said else "same", said)


def killed(folder: Path, record) -> None:
    """SIGKILL while half of a file is there; the next download goes on from it."""
    with server() as shopkeeper, known(shopkeeper.url):
        reference = outcome(prepare(NAME, folder / "calm").parent)
        shopkeeper.tricks = ["stall"]
        place = folder / "killed"
        command = [sys.executable, "-m", "tests.chaos.network", shopkeeper.url, str(place)]
        process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
        until = time.monotonic() + 60
        while not shopkeeper.stalled and time.monotonic() < until:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        struck = bool(shopkeeper.stalled) and not outcome(place)
        prepare(NAME, place)
        same = struck and outcome(place) == reference
        record("job killed", "half-way through a download", "same" if same else "LOST")


if __name__ == "__main__":
    with known(sys.argv[1]), mock.patch.object(download, "TIMEOUT_SECONDS", 30):
        prepare(NAME, sys.argv[2])
