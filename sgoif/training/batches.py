"""The minibatches of an epoch.

What an epoch looks like (order, shifts, flips) is a function of (seed, epoch) alone and is drawn on the CPU, so it is
the same on every device and after every resume.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sgoif.backend.collectives import size
from sgoif.errors import UserError
from sgoif.training.distributed import rank
from sgoif.training.images import ImageSource
from sgoif.training.seeds import torch_generator

PER_EXAMPLE_FIELDS = ("index", "labels", "shift", "flip", "prefetched")  # of `Batch`: one row per example, or None


@dataclass
class Batch:
    """The examples of one step. Images are gathered, augmented and normalised when `x` is first read.

    Attributes:
        images: The source of the images.
        index: Positions in the training set, shape [n].
        labels: Labels, possibly noisy, shape [n].
        shift: Start of each image's window, shape [n, 2], or None (see `ImageSource.batch`).
        flip: Which images are mirrored, shape [n], or None.
        pad: Pixels around the images that windows may reach into.
        prefetched: Pixels that a streamed source has decoded for these examples, or None.
        extra: Tensors that a method has drawn on the host for this step.
    """

    images: ImageSource
    index: Tensor
    labels: Tensor
    shift: Tensor | None = None
    flip: Tensor | None = None
    pad: int = 0
    prefetched: Tensor | None = None
    extra: tuple[Tensor, ...] = ()

    @functools.cached_property
    def x(self) -> Tensor:
        """Normalised images, shape [n, C, H, W]."""
        if self.prefetched is not None:
            return self.images.crop(self.prefetched, self.shift, self.flip, self.pad)
        return self.images.batch(self.index, self.shift, self.flip, self.pad)

    def tensors(self) -> list[Tensor]:
        """Return every tensor that differs from step to step, in a fixed order."""
        return [*self._per_example().values(), *self.extra]

    def _per_example(self) -> dict[str, Any]:
        """The tensors with one row per example that this batch has, by name."""
        values = {name: getattr(self, name) for name in PER_EXAMPLE_FIELDS}
        return {name: value for name, value in values.items() if value is not None}

    def clone(self) -> Batch:
        """Return a copy of the batch in memory of its own."""
        copies = {name: value.clone() for name, value in self._per_example().items()}
        return replace(self, **copies, extra=tuple(t.clone() for t in self.extra))

    def concatenate(self, other: Batch) -> Batch:
        """Return these examples followed by those of another batch of the same images, without `extra`."""
        theirs = other._per_example()
        both: dict[str, Any] = {name: torch.cat((value, theirs[name])) for name, value in self._per_example().items()}
        return replace(self, **both, extra=())

    def with_extra(self, *values: Tensor) -> Batch:
        """Copy `values`, drawn on the host, to the device as `extra`, and return the batch itself."""
        device = self.labels.device
        if device.type == "cuda":  # a copy out of pageable memory would wait for the steps before it
            values = tuple(v if v.is_cuda else v.pin_memory() for v in values)
        self.extra = tuple(v.to(device, non_blocking=True) for v in values)
        return self


class Batches:
    """Minibatches of a training set. The last short batch is dropped unless it is the only one.

    Attributes:
        indices: Positions in the training set that are trained on, shape [m].
        batch_size: Examples of a batch, over all processes together; at most m.
    """

    def __init__(
        self,
        images: ImageSource,
        labels: Tensor,
        batch_size: int,
        seed: int,
        indices: Sequence[int] | np.ndarray | Tensor | None = None,
        shift: int = 0,
        flip: bool = False,
    ) -> None:
        """Choose the examples that are trained on.

        Args:
            images: The training images, N of them.
            labels: Labels, possibly noisy, shape [N].
            batch_size: Examples of a batch.
            seed: Seed of order and augmentation.
            indices: Positions to train on, shape [m]; None for all.
            shift: Augmentation: random translation by up to so many pixels.
            flip: Augmentation: random horizontal flip.

        Raises:
            ValueError: If `indices` is empty.
            UserError: If a batch cannot be divided evenly among the processes.
        """
        self.images = images
        self.labels = labels.to(images.device)
        self.seed = seed
        self.shift = shift
        self.flip = flip
        self.indices = torch.arange(len(images)) if indices is None else torch.as_tensor(indices).cpu()
        if len(self.indices) == 0:
            raise ValueError("no training examples left: every one was removed")
        self.batch_size = min(batch_size, len(self.indices))
        if self.batch_size % size():
            raise UserError(
                f"recipe.batch_size: {self.batch_size} examples cannot be dealt to {size()} processes evenly"
            )

    @property
    def steps(self) -> int:
        """Steps per epoch."""
        return max(len(self.indices) // self.batch_size, 1)

    def epoch(self, number: int) -> Iterator[Batch]:
        """Yield the batches of an epoch; of several processes each gets its share of every batch.

        Args:
            number: The epoch, counted from 0.
        """
        generator = torch_generator(self.seed, "epoch", number)
        n, device = self.steps * self.batch_size, self.images.device
        chosen = self.indices[torch.randperm(len(self.indices), generator=generator)[:n]]
        order = chosen.to(device, non_blocking=True)
        shifts, flips = self._augmentation(n, generator)
        labels = self.labels[order]
        shares = [
            slice(start + rank(), start + self.batch_size, size())  # with one process: the whole batch
            for start in range(0, n, self.batch_size)
        ]
        prefetched = self.images.prefetch([chosen[share] for share in shares])
        for share, pixels in zip(shares, prefetched, strict=True):
            shift = None if shifts is None else shifts[share]
            flip = None if flips is None else flips[share]
            yield Batch(self.images, order[share], labels[share], shift, flip, self.shift, pixels)

    def _augmentation(self, n: int, generator: torch.Generator) -> tuple[Tensor | None, Tensor | None]:
        """Random shifts [n, 2] and flips [n] on the device; None for what the recipe does not use."""
        device = self.images.device
        shifts = flips = None
        if self.shift:
            shifts = torch.randint(0, 2 * self.shift + 1, (n, 2), generator=generator).to(device, non_blocking=True)
        if self.flip:
            flips = (torch.rand(n, generator=generator) < 0.5).to(device, non_blocking=True)
        return shifts, flips
