"""Images that stay on disk: decoded a few batches ahead by worker threads, cropped and mirrored on the device.

Decoding and resizing are torch operators, which release the interpreter's lock, so threads suffice. In memory at any
time: `AHEAD` batches. An image that cannot be decoded becomes a grey one, is named on stderr and counted.
"""

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sgoif.errors import UserError
from sgoif.training.images import ImageSource

AHEAD = 4  # batches in the making
GREY = 128


def decoded(path: str, size: int, channels: int) -> Tensor:
    """uint8 [size, size, C]: shorter side to `size` (bilinear, antialiased), then the centre square."""
    from torchvision.io import ImageReadMode, decode_image, read_file
    from torchvision.transforms.v2 import functional as F

    mode = ImageReadMode.RGB if channels == 3 else ImageReadMode.GRAY
    image = decode_image(read_file(path), mode)
    if image.dtype == torch.uint16:
        image = (image.to(torch.int32) >> 8).to(torch.uint8)
    if image.shape[1:] != (size, size):
        image = F.center_crop(F.resize(image, [size], antialias=True), [size, size])
    return image.permute(1, 2, 0)


class Unreadable:
    """The images that could not be decoded, by path; shared by a source and its subsets."""

    def __init__(self):
        self.paths: dict[str, str] = {}

    def add(self, path: str, error: Exception) -> None:
        if path not in self.paths:
            self.paths[path] = " ".join(str(error).split())[:120]
            print(f"cannot decode {path}: {self.paths[path]}; a grey image stands for it", file=sys.stderr, flush=True)


class StreamedSet(ImageSource):
    """Image files under `tree`, given as `paths` [N] (bytes), seen at `size` with `margin` pixels around for crops."""

    def __init__(
        self,
        tree: Path,
        paths: np.ndarray,
        size: int,
        channels: int,
        margin: int,
        mean,
        std,
        device: torch.device | str = "cpu",
        workers: int = 1,
    ):
        super().__init__(mean, std, device)
        self.tree, self.paths, self.size, self.channels, self.margin = tree, paths, size, channels, margin
        self.unreadable = Unreadable()
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="decode")
        self.workers = workers

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def pixels(self) -> Tensor:
        raise RuntimeError("this method needs all images in memory at once, and these are streamed from disk")

    def subset(self, index) -> "StreamedSet":
        other = StreamedSet.__new__(StreamedSet)
        other.__dict__.update(self.__dict__)
        other.paths = self.paths[np.asarray(torch.as_tensor(index).cpu())]
        return other

    def batch(self, index: Tensor, shift: Tensor | None = None, flip: Tensor | None = None, pad: int = 0) -> Tensor:
        return self.cut(next(self.fetched([index])), shift, flip, pad)

    def passes(self, parts: Iterable[Tensor]) -> Iterator[Tensor]:
        return map(self.cut, self.fetched(parts))

    def cut(self, fetched: Tensor, shift: Tensor | None = None, flip: Tensor | None = None, pad: int = 0) -> Tensor:
        """Normalised images from what was fetched: the centre, or the window that `shift` in 0 … 2*pad moves."""
        if pad > self.margin:
            raise UserError(f"recipe.shift: {pad} is more than the {self.margin} pixels around a streamed image")
        corner = self.margin - (pad if shift is not None else 0)
        return self._cut(fetched, torch.arange(len(fetched), device=self.device), shift, flip, corner)

    def fetched(self, parts: Iterable[Tensor]) -> Iterator[Tensor]:
        """uint8 [n, P, P, C] of each part on the device, in order, P = size + 2 margin; the next ones are in work."""
        parts, waiting = iter(parts), deque()
        try:
            for part in islice(parts, AHEAD):
                waiting.append(self._start(part))
            while waiting:
                pixels, jobs = waiting.popleft()
                for job in jobs:
                    job.result()
                for part in islice(parts, 1):
                    waiting.append(self._start(part))
                yield pixels.to(self.device, non_blocking=True)
        finally:
            for _, jobs in waiting:
                for job in jobs:
                    job.cancel()

    def _start(self, part: Tensor) -> tuple[Tensor, list[Future]]:
        numbers, side = part.tolist(), self.size + 2 * self.margin
        pinned = self.device.type == "cuda"
        pixels = torch.empty(len(numbers), side, side, self.channels, dtype=torch.uint8, pin_memory=pinned)
        share = -(-len(numbers) // self.workers)
        jobs = [
            self._pool.submit(self._fill, pixels[lo : lo + share], numbers[lo : lo + share])
            for lo in range(0, len(numbers), share)
        ]
        return pixels, jobs

    def _fill(self, pixels: Tensor, numbers: list[int]) -> None:
        for row, number in zip(pixels, numbers, strict=True):
            path = str(self.tree / self.paths[number].decode(errors="surrogateescape"))
            try:
                row.copy_(decoded(path, pixels.shape[1], self.channels))
            except (RuntimeError, OSError) as e:
                self.unreadable.add(path, e)
                row.fill_(GREY)


def in_memory(source: StreamedSet) -> np.ndarray:
    """uint8 [N, size, size(, 3)]: a whole streamed set, decoded once; for small sizes."""
    out = np.empty((len(source), source.size, source.size, source.channels), np.uint8)
    m, at = source.margin, 0
    for part in source.fetched(torch.arange(len(source)).split(1024)):
        inner = part[:, m : part.shape[1] - m, m : part.shape[2] - m]
        out[at : at + len(part)] = inner.cpu().numpy()
        at += len(part)
    return out if source.channels == 3 else out[..., 0]
