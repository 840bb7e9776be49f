"""Images as networks see them: normalised batches from memory or from files.

An `ImageSource` is either an `ImageSet`, whose images lie on the device as bytes (nothing is decoded, copied or
augmented on the host during training), or a `StreamedSet` (`streaming.py`), whose images are decoded from files a few
batches ahead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

PAD_CHUNK = 8192  # images that are padded at once


class ImageSource(ABC):
    """Images by number, as normalised floats [n, C, H, W] (channels-last in memory).

    Attributes:
        device: Where batches are made.
        mean: Mean of each channel, of pixel values in [0, 1].
        std: Standard deviation of each channel.
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float], device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self.mean = tuple(mean)
        self.std = tuple(std)
        scale = 255.0 * torch.tensor(self.std, device=self.device)
        self._multiplier = (1.0 / scale).view(1, -1, 1, 1)
        self._offset = (-255.0 * torch.tensor(self.mean, device=self.device) / scale).view(1, -1, 1, 1)

    @property
    @abstractmethod
    def size(self) -> int:
        """Height and width of the images in pixels."""

    @property
    @abstractmethod
    def channels(self) -> int:
        """Number of channels: 1 (grey) or 3 (RGB)."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def subset(self, index: Sequence[int] | np.ndarray | Tensor) -> ImageSource:
        """Return the images at `index`, shape [m], as a source of their own."""

    @abstractmethod
    def batch(self, index: Tensor, shift: Tensor | None = None, flip: Tensor | None = None, pad: int = 0) -> Tensor:
        """Return normalised, optionally augmented images.

        Args:
            index: Numbers of the images, shape [n].
            shift: Row and column in 0 ... 2 * pad at which each window starts, shape [n, 2].
            flip: Which images are mirrored, bool, shape [n].
            pad: Pixels around the images that windows may reach into.

        Returns:
            float32 images, shape [n, C, size, size].
        """

    def iter_batches(self, parts: Iterable[Tensor]) -> Iterator[Tensor]:
        """Yield `batch(part)` for one part after the other."""
        return map(self.batch, parts)

    def prefetch(self, parts: Iterable[Tensor]) -> Iterator[Tensor | None]:
        """Yield the pixels that `crop` needs for each part, or None if `batch` needs nothing beforehand.

        Args:
            parts: Numbers of images on the host, shape [n] each.
        """
        return (None for _ in parts)

    def crop(self, pixels: Tensor, shift: Tensor | None = None, flip: Tensor | None = None, pad: int = 0) -> Tensor:
        """Return the normalised images of prefetched pixels; `shift`, `flip` and `pad` as in `batch`."""
        raise NotImplementedError(f"{type(self).__name__} prefetches nothing")

    def normalise(self, pixels: Tensor) -> Tensor:
        """Turn uint8 pixels [n, H, W, C] into normalised float32 images [n, C, H, W]."""
        return pixels.permute(0, 3, 1, 2).to(torch.float32).mul_(self._multiplier).add_(self._offset)

    def denormalise(self, x: Tensor) -> Tensor:
        """Turn images of `batch`, shape [n, C, H, W], into values in [0, 1]."""
        return (x - self._offset) / self._multiplier / 255.0

    def _windows(self, pixels: Tensor, index: Tensor, shift: Tensor | None, flip: Tensor | None, corner: int) -> Tensor:
        """Normalised windows of `size` from pixels[index], at `corner` + shift, mirrored where `flip`."""
        span = torch.arange(self.size, device=self.device)
        columns = span.expand(len(index), -1)
        if flip is not None:
            columns = torch.where(flip[:, None], self.size - 1 - columns, columns)
        rows = span.expand(len(index), -1)
        if shift is not None:
            rows, columns = rows + shift[:, :1], columns + shift[:, 1:]
        if corner:
            rows, columns = rows + corner, columns + corner
        return self.normalise(pixels[index[:, None, None], rows[:, :, None], columns[:, None, :]])


class ImageSet(ImageSource):
    """uint8 images on a device.

    Attributes:
        pixels: uint8, shape [N, H, W, C].
    """

    def __init__(
        self,
        images: np.ndarray | Tensor,
        mean: Sequence[float],
        std: Sequence[float],
        device: torch.device | str = "cpu",
    ) -> None:
        """Copy the images to the device.

        Args:
            images: uint8, shape [N, H, W] (grey) or [N, H, W, C].
            mean: Mean of each channel, of pixel values in [0, 1].
            std: Standard deviation of each channel.
            device: Where the images lie and batches are made.

        Raises:
            TypeError: If the images are not uint8.
        """
        super().__init__(mean, std, device)
        if images.dtype not in (np.uint8, torch.uint8):
            raise TypeError(f"images must be uint8, not {images.dtype}")
        if images.ndim == 3:
            images = images[..., None]
        if isinstance(images, np.ndarray):
            images = torch.from_numpy(np.require(images, requirements=["C", "W"]))
        self.pixels = images.to(self.device)
        self._padded: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def channels(self) -> int:
        return self.pixels.shape[3]

    @property
    def size(self) -> int:
        return self.pixels.shape[1]

    def subset(self, index: Sequence[int] | np.ndarray | Tensor) -> ImageSet:
        return self.with_pixels(self.pixels[torch.as_tensor(index, device=self.device)])

    def with_pixels(self, pixels: Tensor) -> ImageSet:
        """Return other uint8 pixels, shape [n, H, W, C], as a set with the same normalisation."""
        return ImageSet(pixels, self.mean, self.std, self.device)

    def batch(self, index: Tensor, shift: Tensor | None = None, flip: Tensor | None = None, pad: int = 0) -> Tensor:
        if shift is None and flip is None:
            return self.normalise(self.pixels[index])
        return self._windows(self._reflection_padded(pad), index, shift, flip, 0)

    def _reflection_padded(self, pad: int) -> Tensor:
        """All images with a reflected border of `pad` pixels, made once."""
        if pad not in self._padded:
            x = self.pixels.permute(0, 3, 1, 2)
            # reflection is not implemented for bytes; floats hold 0 … 255 exactly
            parts = x.split(PAD_CHUNK)
            chunks = [F.pad(part.float(), (pad,) * 4, mode="reflect").to(torch.uint8) for part in parts]
            self._padded[pad] = torch.cat(chunks).permute(0, 2, 3, 1).contiguous()
        return self._padded[pad]
