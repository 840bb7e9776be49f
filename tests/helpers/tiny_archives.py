"""Tiny datasets in the official formats, and a web server on this machine that can misbehave."""

import contextlib
import gzip
import hashlib
import io
import pickle
import re
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

from sgoif.bench.data import catalogue
from sgoif.bench.data.dataset import Dataset, OfficialFile
from sgoif.utils.files import sha256_array

FACTS = dict(licence="made up", citation="this test", kind="labelled")


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


def pictures(n: int, size: int = 6, channels: int = 1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random images and labels 0..3, with every label present."""
    rng = np.random.default_rng(seed)
    shape = (n, size, size) + ((3,) if channels == 3 else ())
    return rng.integers(0, 256, shape, dtype=np.uint8), np.arange(n) % 4


def hashes(parts: dict) -> dict[str, str]:
    out = {}
    for part, (images, labels) in parts.items():
        out |= {f"{part}_images": sha256_array(images), f"{part}_labels": sha256_array(labels.astype(np.uint8))}
    return out


def idx_bytes(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.astype(np.uint8).tobytes()


def grey_dataset(name: str = "tiny_grey", base: str = "http://127.0.0.1:9/") -> tuple[Dataset, dict, dict[str, bytes]]:
    """A dataset in MNIST's format, its parts and its official files."""
    parts = {"train": pictures(20), "test": pictures(8, seed=1)}
    files = {}
    for part, stem in (("train", "train"), ("test", "t10k")):
        images, labels = parts[part]
        files[f"{stem}-images-idx3-ubyte.gz"] = gzip.compress(idx_bytes(images), mtime=0)
        files[f"{stem}-labels-idx1-ubyte.gz"] = gzip.compress(idx_bytes(labels), mtime=0)
    d = Dataset(
        name=name,
        title="tiny",
        parts={"train": 20, "test": 8},
        classes=tuple("abcd"),
        image_size=6,
        mean=(0.5,),
        std=(0.25,),
        reader="idx",
        sources=tuple(OfficialFile(base + f, f, f"md5:{md5(data)}", len(data)) for f, data in files.items()),
        folder=name,
        arrays=hashes(parts),
        **FACTS,
    )
    return d, parts, files


def old_pickle(value: object) -> bytes:
    """A pickle as Python 2 and the numpy of 2009 wrote it."""
    return pickle.dumps(value, protocol=0).replace(b"numpy._core.", b"numpy.core.")


def tar_bytes(members: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
    return gzip.compress(out.getvalue(), mtime=0)  # the same bytes at any time


def cifar_dataset(name: str = "tiny_cifar") -> tuple[Dataset, dict, dict[str, bytes]]:
    """A dataset in CIFAR-10's format: two training batches and a test batch; files: the loose batches."""
    parts = {"train": pictures(12, 32, 3), "test": pictures(4, 32, 3, seed=1)}
    images, labels = parts["train"]
    split = {"data_batch_1": slice(0, 8), "data_batch_2": slice(8, 12)}
    files = {}
    for batch, rows in split.items():
        flat = images[rows].transpose(0, 3, 1, 2).reshape(-1, 3072)
        files[f"tiny-py/{batch}"] = old_pickle({"data": flat, "labels": labels[rows].tolist(), "filenames": ["x"]})
    flat = parts["test"][0].transpose(0, 3, 1, 2).reshape(-1, 3072)
    files["tiny-py/test_batch"] = old_pickle({"data": flat, "labels": parts["test"][1].tolist()})
    archive = tar_bytes(files)
    d = Dataset(
        name=name,
        title="tiny",
        parts={"train": 12, "test": 4},
        classes=tuple("abcd"),
        image_size=32,
        channels=3,
        reader="cifar",
        sources=(OfficialFile("http://127.0.0.1:9/tiny.tar.gz", "tiny.tar.gz", f"md5:{md5(archive)}", len(archive)),),
        loose={file: md5(data) for file, data in files.items()},
        folder=name,
        arrays=hashes(parts),
        **FACTS,
    )
    return d, parts, files


def register(monkeypatch, d: Dataset, **changes: object) -> Dataset:
    d = replace(d, **changes)
    monkeypatch.setitem(catalogue.DATASETS, d.name, d)
    return d


class Shop(BaseHTTPRequestHandler):
    """Serves server.files with Range; server.cut: bytes after which the next answers break off."""

    def do_GET(self) -> None:
        server = self.server
        name = self.path.strip("/")
        server.asked.append((name, self.headers.get("Range")))
        if server.errors:
            self.send_error(server.errors.pop(0))
            return
        if name not in server.files:
            self.send_error(404)
            return
        data, start = server.files[name], 0
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if wanted and server.ranges:
            start = int(wanted[1])
            if start >= len(data):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        stop = start + server.cut.pop(0) if server.cut else len(data)
        self.wfile.write(data[start:stop])

    def log_message(self, *args: object) -> None:
        pass


@contextlib.contextmanager
def shop(files: dict[str, bytes], ranges: bool = True) -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    server.files, server.ranges, server.cut, server.errors, server.asked = files, ranges, [], [], []
    server.url = f"http://127.0.0.1:{server.server_address[1]}/"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
