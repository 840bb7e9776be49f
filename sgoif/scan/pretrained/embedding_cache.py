"""Features of images on disk, by the content of what the network saw: an image is embedded once, whatever it is called.

Two files grow together: `rows.bin` with the features as float16, and `index.bin` with a record for each row: the sha256
of the image's pixels and a checksum of the row. Rows are on the disk before their records, so a kill in between leaves
rows without records, which the next writer cuts off. Several scans may write at once: each holds the lock for a block.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from pathlib import Path

import numpy as np

from sgoif.utils.files import file_lock

RECORD = np.dtype([("key", "V32"), ("checksum", "<u4")])
FEATURE = np.dtype("<f2")


def cache_root() -> Path:
    """Return the folder of the caches of this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sgoif" / "embeddings"


def pixel_key(pixels: np.ndarray) -> bytes:
    """Return the identity of an image as a network sees it, 32 bytes."""
    return hashlib.sha256(np.ascontiguousarray(pixels).data).digest()


class EmbeddingCache:
    """Features by image, of one network at one size.

    Attributes:
        dim: Features of an image.
    """

    def __init__(self, folder: Path, dim: int) -> None:
        """Open a cache, or make an empty one.

        Args:
            folder: Where it is; its name holds everything that the features depend on beside the image.
            dim: Features of an image.
        """
        self.dim = dim
        self._rows, self._index, self._lock = folder / "rows.bin", folder / "index.bin", folder / ".lock"
        folder.mkdir(parents=True, exist_ok=True)
        with file_lock(self._lock):
            self._rows.touch()
            self._index.touch()
        records = np.fromfile(self._index, RECORD, count=self._complete())
        self._known = {bytes(key): (i, int(checksum)) for i, (key, checksum) in enumerate(records)}

    def get(self, key: bytes) -> np.ndarray | None:
        """Return the features of an image, float16, shape [dim]; None if they are not here, or damaged."""
        if key not in self._known:
            return None
        i, checksum = self._known[key]
        row = np.fromfile(self._rows, FEATURE, count=self.dim, offset=i * self.dim * FEATURE.itemsize)
        return row if len(row) == self.dim and zlib.crc32(row.data) == checksum else None

    def add(self, keys: list[bytes], rows: np.ndarray) -> None:
        """Add images.

        Args:
            keys: Their identities, n of them.
            rows: Their features, float16, shape [n, dim].
        """
        records = np.zeros(len(keys), RECORD)
        for i, key in enumerate(keys):
            records[i] = (key, zlib.crc32(np.ascontiguousarray(rows[i]).data))
        with file_lock(self._lock):
            first = self._complete()  # another scan may have added rows meanwhile
            _append(self._rows, first * self.dim * FEATURE.itemsize, rows.astype(FEATURE).tobytes())
            _append(self._index, first * RECORD.itemsize, records.tobytes())
        for i, key in enumerate(keys, first):
            self._known[key] = (i, int(records["checksum"][i - first]))

    def _complete(self) -> int:
        """Return the number of rows that have a record."""
        rows = self._rows.stat().st_size // (self.dim * FEATURE.itemsize)
        return min(rows, self._index.stat().st_size // RECORD.itemsize)


def _append(path: Path, start: int, data: bytes) -> None:
    """Cuts a file off at `start`, writes `data` there, and waits until it is on the disk."""
    with open(path, "rb+") as f:
        f.truncate(start)
        f.seek(start)
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
