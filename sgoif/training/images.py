"""Images as networks see them, and the minibatches of an epoch.

An `ImageSource` is either an `ImageSet`, whose images live on the device as bytes (nothing is decoded, copied or
augmented on the host during training), or a `StreamedSet` (`stream.py`), whose images are decoded from files a few
batches ahead. What an epoch looks like (order, shifts, flips) is a function of (seed, epoch) alone and is drawn on the
CPU, so it is the same on every device and after every resume.
"""

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.backend.collectives import size
from sgoif.errors import UserError
from sgoif.training.distributed import rank


def mix_seed(*parts: int | str) -> int:
    """One 63-bit seed from several numbers or names; the same on every machine."""
    import hashlib

    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


class ImageSource:
    """Images by number; `batch` gives normalised floats [n, C, H, W] (channels-last in memory)."""

    size: int
    channels: int

    def __init__(self, mean, std, device: torch.device | str = "cpu"):
        self.device = torch.device(device)
        self.mean, self.std = tuple(mean), tuple(std)
        scale = 255.0 * torch.tensor(self.std, device=self.device)
        self._mul = (1.0 / scale).view(1, -1, 1, 1)
        self._add = (-255.0 * torch.tensor(self.mean, device=self.device) / scale).view(1, -1, 1, 1)

    def __len__(self) -> int:
        raise NotImplementedError

    def subset(self, index) -> "ImageSource":
        """The images at `index` as a source of their own."""
        raise NotImplementedError

    def batch(self, index: Tensor, shift: Tensor | None = None, flip: Tensor | None = None, pad: int = 0) -> Tensor:
        """Normalised images; `shift` [n, 2] in 0 … 2*pad moves each image, `flip` [n] mirrors it."""
        raise NotImplementedError

    def passes(self, parts: Iterable[Tensor]) -> Iterator[Tensor]:
        """`batch(part)` for one part after the other."""
        return map(self.batch, parts)

    def fetched(self, parts: Iterable[Tensor]) -> Iterator[Tensor | None]:
        """What has to be brought in for each part (numbers on the host) before it can be cut: here nothing."""
        return (None for _ in parts)

    def normalise(self, pixels: Tensor) -> Tensor:
        """uint8 [n, H, W, C] -> float32 [n, C, H, W]."""
        return pixels.permute(0, 3, 1, 2).to(torch.float32).mul_(self._mul).add_(self._add)

    def denormalise(self, x: Tensor) -> Tensor:
        """float [n, C, H, W] as given by `batch` -> values in [0, 1]."""
        return (x - self._add) / self._mul / 255.0

    def _cut(self, source: Tensor, index: Tensor, shift: Tensor | None, flip: Tensor | None, corner: int) -> Tensor:
        """Windows of `size` from the images source[index], at `corner` + shift, mirrored where `flip`."""
        span = torch.arange(self.size, device=self.device)
        cols = span.expand(len(index), -1)
        if flip is not None:
            cols = torch.where(flip[:, None], self.size - 1 - cols, cols)
        rows = span.expand(len(index), -1)
        if shift is not None:
            rows, cols = rows + shift[:, :1], cols + shift[:, 1:]
        if corner:
            rows, cols = rows + corner, cols + corner
        return self.normalise(source[index[:, None, None], rows[:, :, None], cols[:, None, :]])


class ImageSet(ImageSource):
    """uint8 images [N, H, W, C] on a device."""

    def __init__(self, images: np.ndarray, mean, std, device: torch.device | str = "cpu"):
        super().__init__(mean, std, device)
        if images.dtype != np.uint8:
            raise TypeError(f"images must be uint8, not {images.dtype}")
        if images.ndim == 3:
            images = images[..., None]
        self.pixels = torch.from_numpy(np.require(images, requirements=["C", "W"])).to(self.device)
        self._padded: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def channels(self) -> int:
        return self.pixels.shape[3]

    @property
    def size(self) -> int:
        return self.pixels.shape[1]

    def subset(self, index) -> "ImageSet":
        return self.like(self.pixels[torch.as_tensor(index, device=self.device)])

    def like(self, pixels: Tensor) -> "ImageSet":
        """Other uint8 pixels [n, H, W, C] with this set's normalisation."""
        other = ImageSet.__new__(ImageSet)
        other.__dict__.update(self.__dict__)
        other.pixels, other._padded = pixels, {}
        return other

    def batch(self, index: Tensor, shift: Tensor | None = None, flip: Tensor | None = None, pad: int = 0) -> Tensor:
        if shift is None and flip is None:
            return self.normalise(self.pixels[index])
        return self._cut(self._pad(pad), index, shift, flip, 0)

    def _pad(self, pad: int) -> Tensor:
        if pad not in self._padded:
            x = self.pixels.permute(0, 3, 1, 2)
            # reflection is not implemented for bytes; halves hold 0 … 255 exactly
            padded = torch.cat([F.pad(c.float(), (pad,) * 4, mode="reflect").to(torch.uint8) for c in x.split(8192)])
            self._padded[pad] = padded.permute(0, 2, 3, 1).contiguous()
        return self._padded[pad]


PARTS = ("index", "labels", "shift", "flip", "fetched")  # of a batch: one row per example


@dataclass
class Batch:
    """Examples of one step. The images are gathered, augmented and normalised when `x` is first asked for."""

    images: ImageSource
    index: Tensor  # [n] positions in the training set
    labels: Tensor  # [n] given labels
    shift: Tensor | None = None  # [n, 2]
    flip: Tensor | None = None  # [n]
    pad: int = 0
    fetched: Tensor | None = None  # what a streamed source has brought in for these examples
    extra: tuple[Tensor, ...] = ()  # what a method drew on the host for this step

    @functools.cached_property
    def x(self) -> Tensor:
        """[n, C, H, W]"""
        if self.fetched is not None:
            return self.images.cut(self.fetched, self.shift, self.flip, self.pad)
        return self.images.batch(self.index, self.shift, self.flip, self.pad)

    def tensors(self) -> list[Tensor]:
        """Everything that differs from step to step."""
        own = [t for name in PARTS if (t := getattr(self, name)) is not None]
        return [*own, *self.extra]

    def clone(self) -> "Batch":
        """The same examples in memory of their own."""
        copies = {name: None if (t := getattr(self, name)) is None else t.clone() for name in PARTS}
        return Batch(self.images, pad=self.pad, extra=tuple(t.clone() for t in self.extra), **copies)

    def join(self, other: "Batch") -> "Batch":
        """These examples followed by those of another batch of the same images."""
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in PARTS}
        both = {name: None if pair[0] is None else torch.cat(pair) for name, pair in pairs.items()}
        return Batch(self.images, pad=self.pad, **both)

    def bring(self, *values: Tensor) -> "Batch":
        """The same batch with `values`, drawn on the host, beside it on the device as `extra`."""
        device = self.labels.device
        if device.type == "cuda":  # a copy out of ordinary memory would wait for the steps before it
            values = tuple(v if v.is_cuda else v.pin_memory() for v in values)
        self.extra = tuple(v.to(device, non_blocking=True) for v in values)
        return self


class Batches:
    """Minibatches of a training set. The last short batch is dropped unless it is the only one."""

    def __init__(
        self,
        images: ImageSource,
        labels: Tensor,
        batch_size: int,
        seed: int,
        indices=None,
        shift: int = 0,
        flip: bool = False,
    ):
        self.images, self.labels = images, labels.to(images.device)
        self.seed, self.shift, self.flip = seed, shift, flip
        everything = torch.arange(len(images)) if indices is None else torch.as_tensor(indices).cpu()
        if len(everything) == 0:
            raise ValueError("no training examples left: every one was removed")
        self.indices = everything
        self.batch_size = min(batch_size, len(everything))
        if self.batch_size % size():
            raise UserError(
                f"recipe.batch_size: {self.batch_size} examples cannot be dealt to {size()} processes evenly"
            )

    @property
    def steps(self) -> int:
        """Steps per epoch."""
        return max(len(self.indices) // self.batch_size, 1)

    def epoch(self, number: int) -> Iterator[Batch]:
        g = torch.Generator().manual_seed(mix_seed(self.seed, "epoch", number))
        n, device = self.steps * self.batch_size, self.images.device
        chosen = self.indices[torch.randperm(len(self.indices), generator=g)[:n]]
        order = chosen.to(device, non_blocking=True)
        shifts = flips = None
        if self.shift:
            shifts = torch.randint(0, 2 * self.shift + 1, (n, 2), generator=g).to(device, non_blocking=True)
        if self.flip:
            flips = (torch.rand(n, generator=g) < 0.5).to(device, non_blocking=True)
        labels = self.labels[order]
        # one process takes every example of a batch; of several, each takes one of as many
        mine = [chosen[lo + rank() : lo + self.batch_size : size()] for lo in range(0, n, self.batch_size)]
        for step, fetched in enumerate(self.images.fetched(mine)):
            part = slice(step * self.batch_size + rank(), (step + 1) * self.batch_size, size())
            shift = None if shifts is None else shifts[part]
            flip = None if flips is None else flips[part]
            yield Batch(self.images, order[part], labels[part], shift, flip, self.shift, fetched)
