"""Files that are written whole or not at all, with the same bytes for the same content.

A sealed file has its sha256 beside it (`.<name>.sha256`), so that a flipped bit is noticed when the file is read.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import json
import os
import sys
import uuid
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from sgoif.errors import UserError

_ZIP_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest date that a zip entry can have
_NEVER_BY_OTHERS = 0o664  # the mode of new files before the umask: others never write them, whatever the umask says
_NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES, errno.EPERM, errno.EBADF}
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EBADF}  # EBADF: NFS


@contextlib.contextmanager
def atomic_replace(path: Path | str, seal: bool = False) -> Iterator[Path]:
    """Replace a file in one step by a temporary file that is written inside a `with` block.

    On an error the temporary file is deleted and `path` stays as it was. A sealed file stays sealed, and its seal is
    written first: a kill in between leaves a file that reads as damaged, not one that is wrongly trusted. When the
    block is left, the new name is on the disk as well (see `sync_folder`): what is written later cannot outlive it.

    Args:
        path: The file to replace; its folder is made if needed.
        seal: Whether to write a seal even if the file has none yet.

    Yields:
        The path of the temporary file, which is there and empty.
    """
    path = Path(path)
    _make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp")
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _NEVER_BY_OTHERS))
        yield temporary
        with open(temporary, "rb+") as f:
            os.fsync(f.fileno())
        if seal or _seal(path).is_file():
            atomic_write_text(_seal(path), sha256_file(temporary) + "\n")
        os.replace(temporary, path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Put the names in a folder on the disk, where the file system can: a rename may be lost with the power until then.

    Raises:
        OSError: If the disk fails or is full.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:  # a folder that one may write and not list
        return
    try:
        os.fsync(handle)
    except OSError as e:
        if e.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(handle)


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, each with its name on the disk."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def try_lock(handle: IO[Any], wait: bool = False) -> Literal["held", "taken", "unsupported"]:
    """Ask for the exclusive lock of an open file; closing the file, or the end of the process, releases it.

    Args:
        handle: The open file.
        wait: Whether to wait while another process holds the lock.

    Returns:
        "held" if this process has the lock now, "taken" if another one has it, "unsupported" if the file system has
        no locks, so that nobody can tell.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as e:
        if e.errno in _NO_LOCKS:
            return "unsupported"
        if e.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return "taken"
        raise
    return "held"


@contextlib.contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path` inside a `with` block; wait for other processes of this machine first.

    A job may outlive the run that started it and was killed, so two jobs may want to write the same files. On a file
    system without locks the block runs all the same, after a line that says so: every file is then still whole, since
    it is replaced in one step, but one of two jobs may fail and has to be run again.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as handle:
        if try_lock(handle, wait=True) == "unsupported":
            print(f"note: {path} cannot be locked, this file system has no locks; going on", file=sys.stderr)
        yield


def atomic_write_bytes(path: Path | str, data: bytes, seal: bool = False) -> bool:
    """Write `data` unless the file already holds exactly that.

    An unchanged file keeps its time stamp, so nothing downstream is computed again.

    Args:
        path: The file.
        data: Its content.
        seal: Whether to write a seal beside the file.

    Returns:
        Whether something was written.
    """
    path = Path(path)
    if path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data:
        return False
    with atomic_replace(path, seal) as temporary:
        temporary.write_bytes(data)
    return True


def atomic_write_text(path: Path | str, text: str, seal: bool = False) -> bool:
    """Write `text` as UTF-8 unless the file already holds exactly that; see `atomic_write_bytes`."""
    return atomic_write_bytes(path, text.encode(), seal)


def _seal(path: Path) -> Path:
    """The file that holds the sha256 of `path`."""
    return path.with_name(f".{path.name}.sha256")


def is_intact(path: Path | str) -> bool:
    """Say whether a file has the sha256 of its seal; a file without a seal counts as intact."""
    seal = _seal(Path(path))
    return not seal.is_file() or seal.read_text(errors="replace").strip() == sha256_file(path)


def atomic_write_json(path: Path | str, value: Any, seal: bool = False) -> bool:
    """Write `value` as indented JSON with sorted keys unless the file already holds exactly that.

    Returns:
        Whether something was written.

    Raises:
        ValueError: If `value` contains NaN or infinity, which JSON does not have.
    """
    text = json.dumps(value, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False)
    return atomic_write_bytes(path, (text + "\n").encode(), seal)


def read_json(path: Path | str) -> Any:
    """Read a JSON file.

    Raises:
        UserError: If the file is not valid JSON, or differs from its seal.
    """
    if not is_intact(path):
        raise UserError(f"{path} is damaged (its sha256 is not the one it was sealed with); delete it and run again")
    try:
        return json.loads(Path(path).read_bytes())
    except ValueError as e:
        raise UserError(f"{path} is not valid JSON ({e}); delete it and run again") from None


def npz_bytes(**arrays: np.ndarray) -> bytes:
    """Return the bytes of an npz file that depend on the arrays alone.

    Names are sorted and dates fixed. Nothing is compressed, since compressed bytes would depend on the machine's zlib.

    Raises:
        ValueError: If an array holds Python objects.
    """
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as z:
        for name in sorted(arrays):
            entry = zipfile.ZipInfo(f"{name}.npy", _ZIP_DATE)
            entry.create_system = 3  # Unix
            entry.external_attr = 0o644 << 16
            body = io.BytesIO()
            np.lib.format.write_array(body, np.asarray(arrays[name]), allow_pickle=False)
            z.writestr(entry, body.getvalue())
    return out.getvalue()


def save_npz(path: Path | str, **arrays: np.ndarray) -> bool:
    """Write an npz file atomically; the same arrays give the same file, bit for bit.

    Returns:
        Whether the file changed.
    """
    return atomic_write_bytes(path, npz_bytes(**arrays))


def load_npz(path: Path | str, without: Collection[str] = ()) -> dict[str, np.ndarray]:
    """Read the arrays of an npz file into memory.

    Args:
        path: The file.
        without: Names of arrays that are not read.

    Raises:
        UserError: If the file is missing, damaged, or holds pickled objects.
    """
    try:
        with np.load(path, allow_pickle=False) as z:
            return {name: z[name] for name in z.files if name not in without}
    except FileNotFoundError:
        raise UserError(f"{path} is missing; run the step that writes it") from None
    except Exception as e:  # a damaged zip fails in a dozen ways, down to struct, zlib and memory errors
        message = " ".join(str(e).split())[:200] or type(e).__name__
        raise UserError(f"{path} is not a readable npz ({message}); delete it and run again") from None


def save_npy(path: Path | str, array: np.ndarray) -> None:
    """Write one array to an npy file atomically."""
    with atomic_replace(path) as temporary, open(temporary, "wb") as f:
        np.lib.format.write_array(f, np.asarray(array), allow_pickle=False)


def digest_file(path: Path | str, algorithm: str = "sha256") -> str:
    """Return the hexadecimal digest of a file's content."""
    with open(path, "rb") as f:
        return hashlib.file_digest(f, algorithm).hexdigest()


def sha256_file(path: Path | str) -> str:
    """Return the sha256 of a file's content."""
    return digest_file(path, "sha256")


def sha256_array(array: np.ndarray) -> str:
    """Return the sha256 of an array's elements in C order (without a header)."""
    return hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).hexdigest()
