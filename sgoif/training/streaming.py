"""Images that stay on disk: decoded a few batches ahead by worker threads, cropped and mirrored on the device.

Decoding and resizing are torch operators, which release the interpreter's lock, so threads suffice. At most
`PREFETCH_BATCHES` batches are in memory. An image that cannot be decoded is replaced by a grey one, named on stderr and
counted.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sgoif.errors import UserError
from sgoif.training.images import ImageSource

PREFETCH_BATCHES = 4  # batches being decoded at any time
DECODE_CHUNK = 1024  # images that `decode_all` decodes at once
GREY_LEVEL = 128  # of the image that replaces an unreadable one


def decode_file(path: str, size: int, channels: int) -> Tensor:
    """Decode an image file: shorter side to `size` (bilinear, antialiased), then the centre square.

    Args:
        path: A JPEG or PNG file.
        size: Height and width of the result.
        channels: 3 for RGB, 1 for grey.

    Returns:
        uint8, shape [size, size, channels].
    """
    from torchvision.io import ImageReadMode, decode_image, read_file
    from torchvision.transforms.v2 import functional as F

    mode = ImageReadMode.RGB if channels == 3 else ImageReadMode.GRAY
    image: Tensor = decode_image(read_file(path), mode)
    if image.dtype == torch.uint16:
        image = (image.to(torch.int32) >> 8).to(torch.uint8)
    if image.shape[1:] != (size, size):
        image = F.center_crop(F.resize(image, [size], antialias=True), [size, size])
    return image.permute(1, 2, 0)


class UnreadableImages:
    """The images that could not be decoded; shared by a source and its subsets.

    Attributes:
        paths: Path -> error message.
    """

    def __init__(self) -> None:
        self.paths: dict[str, str] = {}

    def add(self, path: str, error: Exception) -> None:
        """Remember a path and report it on stderr, once."""
        if path not in self.paths:
            self.paths[path] = " ".join(str(error).split())[:120]
            print(f"cannot decode {path}: {self.paths[path]}; a grey image stands for it", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class ImageFiles:
    """Image files and the size at which they are decoded.

    Attributes:
        folder: Folder that the paths are relative to.
        paths: Paths as bytes, shape [N].
        size: Height and width of the images that a network sees.
        channels: 3 for RGB, 1 for grey.
        margin: Pixels decoded around an image, for random crops.
    """

    folder: Path
    paths: np.ndarray
    size: int
    channels: int
    margin: int = 0


class StreamedSet(ImageSource):
    """Image files that are decoded when they are needed.

    Attributes:
        files: The files and their decoded size.
        workers: Number of decoding threads.
        unreadable: The images that could not be decoded so far.
    """

    def __init__(
        self,
        files: ImageFiles,
        mean: Sequence[float],
        std: Sequence[float],
        device: torch.device | str = "cpu",
        workers: int = 1,
        unreadable: UnreadableImages | None = None,
    ) -> None:
        """Prepare the decoding threads; nothing is decoded yet.

        Args:
            files: The files and their decoded size.
            mean: Mean of each channel, of pixel values in [0, 1].
            std: Standard deviation of each channel.
            device: Where batches are made.
            workers: Number of decoding threads.
            unreadable: Where images that cannot be decoded are recorded; None for a new record.
        """
        super().__init__(mean, std, device)
        self.files = files
        self.workers = workers
        self.unreadable = UnreadableImages() if unreadable is None else unreadable
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="decode")

    def __len__(self) -> int:
        return len(self.files.paths)

    @property
    def size(self) -> int:
        return self.files.size

    @property
    def channels(self) -> int:
        return self.files.channels

    @property
    def pixels(self) -> Tensor:
        """Not available: only an `ImageSet` holds all its images in memory."""
        raise RuntimeError("this method needs all images in memory at once, and these are streamed from disk")

    def subset(self, index: Sequence[int] | np.ndarray | Tensor) -> StreamedSet:
        files = replace(self.files, paths=self.files.paths[np.asarray(torch.as_tensor(index).cpu())])
        part = StreamedSet(files, self.mean, self.std, self.device, self.workers, self.unreadable)
        part._pool = self._pool  # one set of threads decodes for both
        return part

    def batch(self, index: Tensor, shift: Tensor | None = None, flip: Tensor | None = None, pad: int = 0) -> Tensor:
        return self.crop(next(self.prefetch([index])), shift, flip, pad)

    def iter_batches(self, parts: Iterable[Tensor]) -> Iterator[Tensor]:
        return map(self.crop, self.prefetch(parts))

    def crop(self, pixels: Tensor, shift: Tensor | None = None, flip: Tensor | None = None, pad: int = 0) -> Tensor:
        """Return the normalised images of prefetched pixels: their centre, or the window that `shift` moves.

        Raises:
            UserError: If `pad` exceeds the decoded margin.
        """
        margin = self.files.margin
        if pad > margin:
            raise UserError(f"recipe.shift: {pad} is more than the {margin} pixels around a streamed image")
        corner = margin - (pad if shift is not None else 0)
        return self._windows(pixels, torch.arange(len(pixels), device=self.device), shift, flip, corner)

    def prefetch(self, parts: Iterable[Tensor]) -> Iterator[Tensor]:
        """Yield the decoded pixels of each part on the device, in order, while the next parts are being decoded.

        Args:
            parts: Numbers of images on the host, shape [n] each.

        Yields:
            uint8, shape [n, P, P, C] with P = size + 2 * margin.
        """
        remaining = iter(parts)
        pending: deque[tuple[Tensor, list[Future[None]]]] = deque()
        try:
            for part in islice(remaining, PREFETCH_BATCHES):
                pending.append(self._start(part))
            while pending:
                pixels, jobs = pending.popleft()
                for job in jobs:
                    job.result()
                for part in islice(remaining, 1):
                    pending.append(self._start(part))
                yield pixels.to(self.device, non_blocking=True)
        finally:
            for _, jobs in pending:
                for job in jobs:
                    job.cancel()

    def _start(self, part: Tensor) -> tuple[Tensor, list[Future[None]]]:
        """Start decoding a part: the memory it goes to, and one job per worker."""
        numbers: list[int] = part.tolist()
        side = self.size + 2 * self.files.margin
        pinned = self.device.type == "cuda"
        pixels = torch.empty(len(numbers), side, side, self.channels, dtype=torch.uint8, pin_memory=pinned)
        share = -(-len(numbers) // self.workers)
        jobs = [
            self._pool.submit(self._decode_into, pixels[start : start + share], numbers[start : start + share])
            for start in range(0, len(numbers), share)
        ]
        return pixels, jobs

    def _decode_into(self, pixels: Tensor, numbers: list[int]) -> None:
        for row, number in zip(pixels, numbers, strict=True):
            path = str(self.files.folder / self.files.paths[number].decode(errors="surrogateescape"))
            try:
                row.copy_(decode_file(path, pixels.shape[1], self.channels))
            except (RuntimeError, OSError) as e:
                self.unreadable.add(path, e)
                row.fill_(GREY_LEVEL)


def decode_all(source: StreamedSet) -> np.ndarray:
    """Decode a whole streamed set into memory; for small images.

    Returns:
        uint8, shape [N, size, size, 3], or [N, size, size] for grey images.
    """
    out = np.empty((len(source), source.size, source.size, source.channels), np.uint8)
    margin, start = source.files.margin, 0
    parts = torch.arange(len(source)).split(DECODE_CHUNK)
    for part in source.prefetch(parts):
        inner = part[:, margin : part.shape[1] - margin, margin : part.shape[2] - margin]
        out[start : start + len(part)] = inner.cpu().numpy()
        start += len(part)
    return out if source.channels == 3 else out[..., 0]
