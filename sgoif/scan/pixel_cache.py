"""The decoded images of a scan: one file of bytes that training maps into memory.

The file is written in place and a note beside it says which images are done, so an interrupted scan decodes only the
rest. No more than a few blocks of images are in memory at a time.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.scan.decode import Unreadable, decode_square, inspect_header, white_level
from sgoif.scan.progress import Progress
from sgoif.scan.sources.image_listing import Listing
from sgoif.training.images import ImageSet
from sgoif.utils.files import load_npz, save_npz

BLOCK = 256  # images between two notes of what is done
MAX_THREADS = 8
MOMENT_IMAGES = 2000  # images that mean and deviation are computed from
T = TypeVar("T")


def survey_headers(listing: Listing, progress: Progress) -> tuple[list[int], int, bool]:
    """Read the headers of all images; files that are not images are added to `listing.left_out`.

    Images of more than eight bits a pixel get one range: `listing.white` is set, and `listing.open` keeps to it.

    Returns:
        Positions of the images, their median shorter side in pixels, and whether all of them are grey.
    """
    rows, sides, all_grey, top = [], [], True, 0.0
    for i, result in map_in_order(lambda i: inspect_header(listing.open, i), 0, len(listing)):
        if isinstance(result, Unreadable):
            listing.left_out.append((listing.names[i], str(result)))
        else:
            side, grey, largest = result
            rows.append(i)
            sides.append(side)
            all_grey &= grey
            top = max(top, largest)
        progress(i + 1, len(listing))
    if top:
        listing.keep_to(white_level(top))
    return rows, int(np.median(sides)) if sides else 0, all_grey


def decode_all(
    listing: Listing, folder: Path, size: int, channels: int, progress: Progress
) -> tuple[np.ndarray, list[int]]:
    """Decode the images into a file, or those that an earlier call has not decoded yet.

    Images that cannot be decoded are added to `listing.left_out`.

    Args:
        listing: The images.
        folder: Folder of the file and the note of what is done.
        size: Side in pixels.
        channels: 1 for grey, 3 for colour.
        progress: Called after each image.

    Returns:
        The pixels as uint8 mapped from disk, shape [N, size, size, channels], and the positions that were decoded.
    """
    notes = folder / "decoded.npz"
    pixels, done, failed = _open_pixels(folder / "pixels.npy", notes, (len(listing), size, size, channels))
    for first in range(done, len(listing), BLOCK):
        last = min(first + BLOCK, len(listing))
        for i, result in map_in_order(lambda i: decode_square(listing.open, i, size, channels), first, last):
            if isinstance(result, Unreadable):
                failed[str(i)] = str(result)
            else:
                pixels[i] = result
            progress(i + 1, len(listing))
        pixels.flush()
        save_npz(notes, done=np.array(last), failed=np.array(json.dumps(failed)))
    listing.left_out += [(listing.names[int(i)], reason) for i, reason in failed.items()]
    return pixels, [i for i in range(len(listing)) if str(i) not in failed]


def _open_pixels(path: Path, notes: Path, shape: tuple[int, ...]) -> tuple[np.memmap, int, dict[str, str]]:
    """Return the mapped file, the number of images done, and the reasons of those that failed, by position."""
    if path.is_file() and notes.is_file():
        saved = load_npz(notes)
        pixels = np.lib.format.open_memmap(path, mode="r+")
        return pixels, int(saved["done"]), json.loads(str(saved["failed"]))
    pixels = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
    with open(path, "rb+") as f:  # a full disk is an error now; later, in mapped memory, it would kill the process
        os.posix_fallocate(f.fileno(), 0, os.path.getsize(path))
    return pixels, 0, {}


def map_in_order(work: Callable[[int], T], first: int, last: int) -> Iterator[tuple[int, T | Unreadable]]:
    """Yield (i, work(i) or the `Unreadable` that it raised) for first <= i < last, in order, from several threads."""

    def guarded(i: int) -> T | Unreadable:
        try:
            return work(i)
        except Unreadable as e:
            return e

    with warnings.catch_warnings(), ThreadPoolExecutor(min(os.cpu_count() or 1, MAX_THREADS)) as pool:
        warnings.simplefilter("ignore")  # of image decoders: what matters is whether there are pixels
        for start in range(first, last, BLOCK):
            yield from enumerate(pool.map(guarded, range(start, min(start + BLOCK, last))), start)


def channel_moments(pixels: np.ndarray, rows: np.ndarray) -> tuple[list[float], list[float]]:
    """Compute mean and deviation of each channel in 0..1, over at most `MOMENT_IMAGES` evenly spaced images.

    Args:
        pixels: uint8, shape [N, size, size, channels].
        rows: Positions of the images that count.
    """
    chosen = rows[np.linspace(0, len(rows) - 1, min(len(rows), MOMENT_IMAGES)).round().astype(int)]
    sums = np.zeros((2, pixels.shape[3]))
    for part in np.array_split(chosen, max(len(chosen) // BLOCK, 1)):
        x = pixels[part].reshape(-1, pixels.shape[3]) / 255.0
        sums += [x.sum(0), (x * x).sum(0)]
    mean, square_mean = sums / (len(chosen) * pixels.shape[1] * pixels.shape[2])
    return mean.tolist(), np.sqrt(np.maximum(square_mean - mean**2, 1e-6)).tolist()


class MappedImages(ImageSet):
    """An `ImageSet` whose bytes stay on disk: batches are gathered there, then moved to the device and augmented.

    Args:
        pixels: uint8, shape [N, size, size, channels], mapped from disk.
        rows: Positions of the images of this set in `pixels`.
        mean: Mean of each channel in 0..1.
        std: Deviation of each channel in 0..1.
        device: Where batches go.
    """

    def __init__(
        self, pixels: np.ndarray, rows: np.ndarray, mean: Sequence[float], std: Sequence[float], device: torch.device
    ):
        super().__init__(np.zeros((0, *pixels.shape[1:]), np.uint8), mean, std, device)
        self.mapped = pixels
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, index: Tensor, shift: Tensor | None = None, flip: Tensor | None = None, pad: int = 0) -> Tensor:
        """Return normalised images as `ImageSet.batch` does; the border is reflected around each image."""
        x = torch.from_numpy(self.mapped[self.rows[index.cpu().numpy()]]).to(self.device)
        if shift is None and flip is None:
            return self.normalise(x)
        wide = F.pad(x.permute(0, 3, 1, 2).float(), (pad,) * 4, mode="reflect").permute(0, 2, 3, 1)
        return self._windows(wide, torch.arange(len(x), device=self.device), shift, flip, 0)
