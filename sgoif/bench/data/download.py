"""Downloads that resume, are verified and land whole or not at all."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

from sgoif.bench.data.dataset import Source
from sgoif.errors import UserError
from sgoif.utils.files import digest_file

Progress = Callable[[str, int, int | None], None]  # file name, bytes so far, bytes in all if known

CHUNK = 1 << 20
ATTEMPTS = 4
TIMEOUT = 30.0


def fetch(
    source: Source, folder: Path, progress: Progress | None = None, attempts: int = ATTEMPTS, wait: float = 1.0
) -> Path:
    """The verified file in `folder`, downloaded if it is not there.

    Bytes go to `<name>.part`, which a later call continues; the file gets its name only after its checksum was found
    right. A connection that breaks is taken up again up to `attempts` times, `wait` seconds later and later.
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


def _transfer(source: Source, partial: Path, progress: Progress | None) -> None:
    """One connection: asks for what is still missing and appends it. OSError when less came than was promised."""
    import http.client
    import urllib.error
    import urllib.request

    have = partial.stat().st_size if partial.exists() else 0
    request = urllib.request.Request(source.url, headers={"User-Agent": "sgoif", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as e:
        if e.code == 416 and have:  # nothing is missing, or the part is longer than the file: the checksum decides
            return
        raise
    except http.client.HTTPException as e:
        if isinstance(e, OSError):
            raise
        raise ConnectionError(f"the server does not speak HTTP ({type(e).__name__})") from None
    with answer:
        if have and answer.status != 206:  # the server does not continue: start over
            have = 0
        length = answer.headers.get("Content-Length", "")
        total = have + int(length) if length.isdecimal() else source.size
        with open(partial, "ab" if have else "wb") as out:
            while True:
                try:
                    chunk = answer.read(CHUNK)
                except http.client.IncompleteRead as e:
                    out.write(e.partial)
                    raise ConnectionError("the connection broke") from None
                if not chunk:
                    break
                out.write(chunk)
                have += len(chunk)
                if progress:
                    progress(source.filename, have, total)
    if total is not None and have < total:
        raise ConnectionError(f"the connection broke after {have} of {total} bytes")


def _is_right(source: Source, path: Path) -> bool:
    if source.size is not None and path.stat().st_size != source.size:
        return False
    if source.checksum is None:
        return True  # the arrays inside have a known hash, which the reader compares
    algorithm, expected = source.checksum.split(":")
    return digest_file(path, algorithm) == expected


def _is_final(e: OSError) -> bool:
    """Errors that trying again will not cure: the server says no, or there is no such host."""
    import socket

    code = getattr(e, "code", None)
    if isinstance(code, int):
        return 400 <= code < 500 and code not in (408, 429)
    return isinstance(getattr(e, "reason", None), socket.gaierror)


def _reason(e: OSError) -> str:
    code = getattr(e, "code", None)
    return f"HTTP {code}" if code else str(getattr(e, "reason", None) or e)
