"""Download official files: resumed after a break, verified, and complete or not there at all."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sgoif.bench.data.dataset import OfficialFile
from sgoif.errors import UserError
from sgoif.utils.files import digest_file

if TYPE_CHECKING:
    from http.client import HTTPResponse

Progress = Callable[[str, int, int | None], None]  # file name, bytes so far, bytes in all if known

CHUNK_BYTES = 1 << 20
MAX_ATTEMPTS = 4
TIMEOUT_SECONDS = 30.0
RANGE_NOT_SATISFIABLE = 416
PARTIAL_CONTENT = 206


def fetch(
    source: OfficialFile,
    folder: Path,
    progress: Progress | None = None,
    attempts: int = MAX_ATTEMPTS,
    wait: float = 1.0,
) -> Path:
    """Download a file into `folder`, unless it is there already.

    Bytes go to `<name>.part`, which a later call continues; the file gets its name once its checksum was verified.

    Args:
        source: The file.
        folder: Where it goes.
        progress: Called after every chunk.
        attempts: How often a broken connection is opened at most.
        wait: Seconds before the second attempt; doubled before each further one.

    Returns:
        Path of the verified file.

    Raises:
        UserError: If the file cannot be downloaded, the disk is full, or the checksum is wrong.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / source.filename
    if target.is_file():
        if _is_right(source, target):
            return target
        target.unlink()
    partial = target.with_name(target.name + ".part")
    by_hand = f"or put the file there by hand: {target} (from {source.url})"
    for attempt in range(attempts):
        try:
            _transfer(source, partial, progress)
            break
        except OSError as e:  # urllib's URLError and timeouts are OSErrors
            if e.errno == errno.ENOSPC:
                raise UserError(f"{partial}: the disk is full; free some space and run again") from None
            if _is_final(e) or attempt == attempts - 1:
                raise UserError(f"cannot download {source.url} ({_reason(e)}); check the network, {by_hand}") from None
            time.sleep(wait * 2**attempt)
    if not _is_right(source, partial):
        size = partial.stat().st_size
        partial.unlink()
        raise UserError(
            f"{source.url}: the {size} bytes received do not have the checksum {source.checksum or source.size}; "
            f"they were deleted: run again, {by_hand}"
        )
    os.replace(partial, target)
    return target


def _transfer(source: OfficialFile, partial: Path, progress: Progress | None) -> None:
    """Open one connection and append what is still missing; OSError when less came than was promised."""
    have = partial.stat().st_size if partial.exists() else 0
    response = _open(source.url, have)
    if response is None:
        return
    with response:
        if response.status != PARTIAL_CONTENT:  # the server does not continue: start over
            have = 0
        length = response.headers.get("Content-Length", "")
        total = have + int(length) if length.isdecimal() else source.size
        with open(partial, "ab" if have else "wb") as out:
            for chunk in _chunks(response):
                out.write(chunk)
                have += len(chunk)
                if progress:
                    progress(source.filename, have, total)
    if total is not None and have < total:
        raise ConnectionError(f"the connection broke after {have} of {total} bytes")


def _open(url: str, start: int) -> HTTPResponse | None:
    """Request a file from the byte `start` on; None if the server says that nothing is missing."""
    import http.client
    import urllib.error
    import urllib.request

    request = urllib.request.Request(url, headers={"User-Agent": "sgoif", "Accept-Encoding": "identity"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        return urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as e:
        if e.code == RANGE_NOT_SATISFIABLE and start:  # complete, or longer than the file: the checksum decides
            return None
        raise
    except http.client.HTTPException as e:
        if isinstance(e, OSError):
            raise
        raise ConnectionError(f"the server does not speak HTTP ({type(e).__name__})") from None


def _chunks(response: HTTPResponse) -> Iterator[bytes]:
    """Yield what comes; also the bytes before a break, so that the next connection continues after them."""
    import http.client

    while True:
        try:
            chunk = response.read(CHUNK_BYTES)
        except http.client.IncompleteRead as e:
            yield e.partial
            raise ConnectionError("the connection broke") from None
        if not chunk:
            return
        yield chunk


def _is_right(source: OfficialFile, path: Path) -> bool:
    """Compare a file's size and checksum with the published ones."""
    if source.size is not None and path.stat().st_size != source.size:
        return False
    if source.checksum is None:
        return True  # the arrays inside have a known hash, which the reader compares
    algorithm, expected = source.checksum.split(":")
    return digest_file(path, algorithm) == expected


def _is_final(e: OSError) -> bool:
    """Return whether trying again is useless: the server refuses, or there is no such host."""
    import socket

    code = getattr(e, "code", None)
    if isinstance(code, int):
        return 400 <= code < 500 and code not in (408, 429)
    return isinstance(getattr(e, "reason", None), socket.gaierror)


def _reason(e: OSError) -> str:
    code = getattr(e, "code", None)
    return f"HTTP {code}" if code else str(getattr(e, "reason", None) or e)
