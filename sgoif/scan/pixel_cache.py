"""Every picture is decoded once, into one file of bytes that training maps into memory.

The file is written in place and remembers which pictures are done, so an interrupted scan decodes the rest only; no
more than a few blocks of pictures are in memory at a time.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.scan.decode import Unreadable, look, square
from sgoif.scan.sources.image_list import Listing
from sgoif.training.images import ImageSet
from sgoif.utils.files import load_npz, save_npz

BLOCK = 256  # pictures between two notes of what is done
Tell = Callable[[int, int], None]  # (done, of how many)


def survey(listing: Listing, tell: Tell) -> tuple[list[int], int, bool]:
    """From the headers: (positions that can be opened, median shorter side, are all grey). The rest is left out."""
    rows, sides, grey = [], [], True
    for i, result in _each(len(listing), lambda i: look(listing.open, i)):
        if isinstance(result, Unreadable):
            listing.left_out.append((listing.names[i], str(result)))
        else:
            rows.append(i)
            sides.append(result[0])
            grey &= result[1]
        tell(i + 1, len(listing))
    return rows, int(np.median(sides)) if sides else 0, grey


def decode(listing: Listing, folder: Path, size: int, channels: int, tell: Tell) -> tuple[np.ndarray, list[int]]:
    """(pixels uint8 [N, size, size, channels] mapped from disk, positions that could be decoded)."""
    shape = (len(listing), size, size, channels)
    path, notes = folder / "pixels.npy", folder / "decoded.npz"
    done, failed = 0, {}
    if path.is_file() and notes.is_file():
        saved = load_npz(notes)
        done, failed = int(saved["done"]), json.loads(str(saved["failed"]))
        pixels = np.lib.format.open_memmap(path, mode="r+")
    else:
        pixels = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
        with open(path, "rb+") as f:  # a full disk is told now; later, in mapped memory, it would kill the process
            os.posix_fallocate(f.fileno(), 0, os.path.getsize(path))
    for first in range(done, len(listing), BLOCK):
        last = min(first + BLOCK, len(listing))
        for i, result in _each(last, lambda i: square(listing.open, i, size, channels), first):
            if isinstance(result, Unreadable):
                failed[str(i)] = str(result)
            else:
                pixels[i] = result
            tell(i + 1, len(listing))
        pixels.flush()
        save_npz(notes, done=np.array(last), failed=np.array(json.dumps(failed)))
    listing.left_out += [(listing.names[int(i)], reason) for i, reason in failed.items()]
    return pixels, [i for i in range(len(listing)) if str(i) not in failed]


def _each(last: int, work: Callable, first: int = 0) -> Iterator[tuple[int, object]]:
    """(i, work(i) or its `Unreadable`) for first <= i < last, in order, on all cores, `BLOCK` at a time."""

    def guarded(i: int):
        try:
            return work(i)
        except Unreadable as e:
            return e

    with warnings.catch_warnings(), ThreadPoolExecutor(min(os.cpu_count() or 1, 8)) as pool:
        warnings.simplefilter("ignore")  # of image decoders: what matters is whether there are pixels
        for lo in range(first, last, BLOCK):
            yield from enumerate(pool.map(guarded, range(lo, min(lo + BLOCK, last))), lo)


def moments(pixels: np.ndarray, rows: np.ndarray) -> tuple[list[float], list[float]]:
    """Mean and deviation of each channel over at most 2,000 evenly spaced pictures, in 0 … 1."""
    chosen = rows[np.linspace(0, len(rows) - 1, min(len(rows), 2000)).round().astype(int)]
    total = np.zeros((2, pixels.shape[3]))
    for part in np.array_split(chosen, max(len(chosen) // BLOCK, 1)):
        x = pixels[part].reshape(-1, pixels.shape[3]) / 255.0
        total += [x.sum(0), (x * x).sum(0)]
    mean, square_mean = total / (len(chosen) * pixels.shape[1] * pixels.shape[2])
    return mean.tolist(), np.sqrt(np.maximum(square_mean - mean**2, 1e-6)).tolist()


class MappedImages(ImageSet):
    """An `ImageSet` whose bytes stay on disk: batches are gathered there, and moved and augmented on the device."""

    def __init__(self, pixels: np.ndarray, rows: np.ndarray, mean, std, device: torch.device):
        super().__init__(np.zeros((0, *pixels.shape[1:]), np.uint8), mean, std, device)
        self.mapped, self.rows = pixels, rows

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, index: Tensor, shift: Tensor | None = None, flip: Tensor | None = None, pad: int = 0) -> Tensor:
        """As `ImageSet.batch`; the border is reflected around each picture of the batch."""
        x = self.normalise(torch.from_numpy(self.mapped[self.rows[index.cpu().numpy()]]).to(self.device))
        if flip is not None:
            x = torch.where(flip[:, None, None, None], x.flip(3), x)
        if shift is not None:
            span = torch.arange(self.size, device=self.device)
            wide = F.pad(x, (pad,) * 4, mode="reflect").permute(0, 2, 3, 1)
            n = torch.arange(len(x), device=self.device)[:, None, None]
            rows, columns = span + shift[:, :1], span + shift[:, 1:]
            x = wide[n, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
        return x
