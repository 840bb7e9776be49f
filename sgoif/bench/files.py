"""Files that are written whole or not at all, with the same bytes for the same content."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sgoif.bench.errors import UserError

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date a zip entry can carry


@contextlib.contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """Yields a temporary path; on success that file takes the place of `path` in one step, on failure it goes."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp")
    try:
        yield temporary
        with open(temporary, "rb+") as f:
            os.fsync(f.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def atomic_write_bytes(path: Path | str, data: bytes) -> bool:
    """Writes `data` unless the file already holds exactly that. True when something was written.

    An unchanged file keeps its time stamp, so nothing downstream is computed again.
    """
    path = Path(path)
    if path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data:
        return False
    with replacing(path) as temporary:
        temporary.write_bytes(data)
    return True


def atomic_write_text(path: Path | str, text: str) -> bool:
    return atomic_write_bytes(path, text.encode())


def atomic_write_json(path: Path | str, value: Any) -> bool:
    """Writes `value` as indented JSON with sorted keys; NaN and infinity are refused, since JSON has none."""
    text = json.dumps(value, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False)
    return atomic_write_text(path, text + "\n")


def read_json(path: Path | str) -> Any:
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


def load_npz(path: Path | str) -> dict[str, np.ndarray]:
    """All arrays of an npz, read into memory; pickled objects are refused."""
    try:
        with np.load(path, allow_pickle=False) as z:
            return {name: z[name] for name in z.files}
    except FileNotFoundError:
        raise UserError(f"{path} is missing; run the step that writes it") from None
    except (ValueError, EOFError, zipfile.BadZipFile, TypeError) as e:
        raise UserError(f"{path} is not a readable npz ({e}); delete it and run again") from None


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
