"""JSON in a gzip file: small, and the same bytes for the same value wherever zlib is the same."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_bytes

LEVEL = 9


def pack_text(text: str) -> bytes:
    """Return a text as the bytes of a gzip file without name and date."""
    return gzip.compress(text.encode(), LEVEL, mtime=0)


def write_packed_json(path: Path | str, value: Any) -> bool:
    """Write a value as compressed JSON with sorted keys, unless the file holds exactly that already.

    Returns:
        Whether something was written.

    Raises:
        ValueError: If `value` contains NaN or infinity, which JSON does not have.
    """
    text = json.dumps(value, sort_keys=True, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return atomic_write_bytes(path, pack_text(text))


def read_packed_json(path: Path | str, made_by: str) -> Any:
    """Read a file of `write_packed_json`.

    Args:
        path: The file.
        made_by: What writes it, e.g. "`make published`", for the error.

    Raises:
        UserError: If the file is missing, cut off, damaged (gzip has a checksum) or no JSON.
    """
    try:
        return json.loads(gzip.decompress(Path(path).read_bytes()))
    except FileNotFoundError:
        raise UserError(f"there is no file {path}; {made_by} writes it") from None
    except (OSError, EOFError, zlib.error, ValueError) as e:
        raise UserError(f"{path} is damaged or no compressed JSON ({e}); get it again from where it came") from None
