"""Reads the shared plain run: ordinary training on the labels, recorded for methods that post-process it.

`sgoif.bench.methods.plain_training` runs it. Shapes: N training images, M test images, K classes, d features, E epochs.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sgoif.bench.methods.robust.visits import FIELDS, Visits
from sgoif.errors import UserError
from sgoif.training.models import Network, build_network
from sgoif.training.recipe import Recipe
from sgoif.utils.files import load_npz


class NotRecorded(ValueError):
    """A method reads what the recipe told the plain run not to keep; its cell ends as a typed failure."""


@dataclass
class PlainRun:
    """A finished plain run, read lazily from its folder.

    Attributes:
        directory: Folder of the cell, with `arrays.npz` and `checkpoints/`.
        recipe: Recipe that it was trained with.
        n_classes: Number of classes K.
        channels: Channels of the images.
        size: Height and width of the images.
        device: Where tensors and networks are put.
    """

    directory: Path
    recipe: Recipe
    n_classes: int
    channels: int
    size: int
    device: torch.device

    def __post_init__(self) -> None:
        self._arrays: dict[str, np.ndarray] | None = None

    def _array(self, name: str) -> Tensor:
        if self._arrays is None:
            self._arrays = load_npz(self.directory / "arrays.npz")
        return torch.from_numpy(self._arrays[name]).to(self.device).float()

    def _recorded(self, name: str) -> Tensor:
        if self.recipe.record == "nothing":
            raise NotRecorded(f"the plain run wrote down no {name}: recipe.record is nothing")
        return self._array(name)

    @property
    def visits(self) -> Visits:
        """Margins, losses and errors of every visit during training: augmented images, training mode.

        **NaN where an example sat out an epoch**: the last short batch of an epoch is dropped, so that in every epoch
        a few examples, drawn at random, are not seen. A comparison with NaN is False; use `isfinite()` to tell "not
        seen" from "below zero".
        """
        return Visits(*(self._array(name) for name in FIELDS))

    @property
    def logits(self) -> Tensor:
        """Logits of the training images after the last epoch, shape [N, K]: eval mode, no augmentation."""
        return self._recorded("logits")

    @property
    def features(self) -> Tensor:
        """Penultimate features of the training images after the last epoch, shape [N, d]."""
        return self._recorded("features")

    @property
    def test_logits(self) -> Tensor:
        """Logits of the test images after the last epoch, shape [M, K]."""
        return self._array("test_logits")

    @property
    def checkpoint_epochs(self) -> list[int]:
        """Epochs after which the network was kept, counted from 0; the last one is among them."""
        return self.recipe.checkpoint_epochs()

    def learning_rate(self, epoch: int) -> float:
        """Return the mean learning rate of an epoch."""
        rates = self._array("epoch_lr")
        return float(rates[epoch])

    def network(self, epoch: int | None = None) -> Network:
        """Return the network after an epoch, in eval mode.

        Args:
            epoch: One of `checkpoint_epochs`; default the last.

        Raises:
            UserError: If there is no checkpoint of this network after that epoch.
        """
        epoch = self.checkpoint_epochs[-1] if epoch is None else epoch
        net = build_network(self.recipe.model, self.n_classes, self.channels, self.size)
        path = self.directory / "checkpoints" / f"epoch{epoch}.pt"
        try:
            net.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        except (RuntimeError, pickle.UnpicklingError, EOFError, FileNotFoundError, TypeError) as e:
            raise UserError(f"{path} is not a checkpoint of this network ({type(e).__name__})") from None
        net = net.to(device=self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        return net.eval()
