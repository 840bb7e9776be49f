"""Files that are written whole or not at all, with the same bytes for the same content.

A sealed file has its sha256 beside it (`.<name>.sha256`), so that a flipped bit is noticed when it is read.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import os
import uuid
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sgoif.errors import UserError

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date a zip entry can carry


@contextlib.contextmanager
def replacing(path: Path | str, seal: bool = False) -> Iterator[Path]:
    """Yields a temporary path; on success that file takes the place of `path` in one step, on failure it goes.

    A sealed file stays sealed, and its seal is written first: a kill in between leaves a file that reads as damaged,
    not one that is wrongly trusted.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp")
    try:
        yield temporary
        with open(temporary, "rb+") as f:
            os.fsync(f.fileno())
        if seal or _seal(path).is_file():
            atomic_write_text(_seal(path), sha256_file(temporary) + "\n")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Waits until no other process of this machine holds `path`: a job may outlive the run that was killed above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def atomic_write_bytes(path: Path | str, data: bytes, seal: bool = False) -> bool:
    """Writes `data` unless the file already holds exactly that. True when something was written.

    An unchanged file keeps its time stamp, so nothing downstream is computed again.
    """
    path = Path(path)
    if path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data:
        return False
    with replacing(path, seal) as temporary:
        temporary.write_bytes(data)
    return True


def atomic_write_text(path: Path | str, text: str, seal: bool = False) -> bool:
    return atomic_write_bytes(path, text.encode(), seal)


def _seal(path: Path) -> Path:
    return path.with_name(f".{path.name}.sha256")


def is_intact(path: Path | str) -> bool:
    """Does the file have the sha256 that lies beside it? A file without a seal is not judged here."""
    seal = _seal(Path(path))
    return not seal.is_file() or seal.read_text(errors="replace").strip() == sha256_file(path)


def atomic_write_json(path: Path | str, value: Any, seal: bool = False) -> bool:
    """Writes `value` as indented JSON with sorted keys; NaN and infinity are refused, since JSON has none."""
    text = json.dumps(value, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False)
    return atomic_write_bytes(path, (text + "\n").encode(), seal)


def read_json(path: Path | str) -> Any:
    """The JSON value of a file; one that is no JSON, or not what was sealed, is refused by name."""
    if not is_intact(path):
        raise UserError(f"{path} is damaged (its sha256 is not the one it was sealed with); delete it and run again")
    try:
        return json.loads(Path(path).read_bytes())
    except ValueError as e:
        raise UserError(f"{path} is not valid JSON ({e}); delete it and run again") from None


def npz_bytes(**arrays: np.ndarray) -> bytes:
    """An npz whose bytes depend on the arrays alone; object arrays are refused.

    Sorted names and fixed dates; not compressed, since the compressed bytes would depend on the machine's zlib.
    """
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as z:
        for name in sorted(arrays):
            entry = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            body = io.BytesIO()
            np.lib.format.write_array(body, np.asarray(arrays[name]), allow_pickle=False)
            z.writestr(entry, body.getvalue())
    return out.getvalue()


def save_npz(path: Path | str, **arrays: np.ndarray) -> bool:
    """Writes an npz atomically; the same arrays give the same file, bit for bit. True when the file changed."""
    return atomic_write_bytes(path, npz_bytes(**arrays))


def load_npz(path: Path | str, without: Collection[str] = ()) -> dict[str, np.ndarray]:
    """All arrays of an npz but those named, read into memory; pickled objects are refused."""
    try:
        with np.load(path, allow_pickle=False) as z:
            return {name: z[name] for name in z.files if name not in without}
    except FileNotFoundError:
        raise UserError(f"{path} is missing; run the step that writes it") from None
    except Exception as e:  # a damaged zip fails in a dozen ways, down to struct, zlib and memory errors
        said = " ".join(str(e).split())[:200] or type(e).__name__
        raise UserError(f"{path} is not a readable npz ({said}); delete it and run again") from None


def save_npy(path: Path | str, array: np.ndarray) -> None:
    """Writes one npy atomically."""
    with replacing(path) as temporary, open(temporary, "wb") as f:
        np.lib.format.write_array(f, np.asarray(array), allow_pickle=False)


def digest_file(path: Path | str, algorithm: str = "sha256") -> str:
    with open(path, "rb") as f:
        return hashlib.file_digest(f, algorithm).hexdigest()


def sha256_file(path: Path | str) -> str:
    return digest_file(path, "sha256")


def sha256_array(array: np.ndarray) -> str:
    """sha256 of an array's elements in C order (not of its npy header)."""
    return hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8)).hexdigest()
