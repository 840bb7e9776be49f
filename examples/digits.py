"""Shared by the examples: the data, a small network, and a training loop watched by `OnlineInfluence`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgoif import InfluenceConfig, OnlineInfluence

CLASSES, EPOCHS, BATCH, RATE = 10, 10, 64, 0.1


@functools.cache
def digits(n_train: int = 1200) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(train images `[N, 1, 8, 8]` in 0 … 1, their labels, test images, their labels), in a fixed shuffled order."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    x = (torch.tensor(pixels, dtype=torch.float32) / 16).view(-1, 1, 8, 8)[order]
    y = torch.tensor(labels)[order]
    return x[:n_train], y[:n_train], x[n_train:], y[n_train:]


def flip_labels(labels: Tensor, rate: float, seed: int) -> tuple[Tensor, Tensor]:
    """Symmetric noise: (noisy labels, which of them are wrong)."""
    generator = torch.Generator().manual_seed(1000 + seed)
    wrong = torch.rand(len(labels), generator=generator) < rate
    other = (labels + torch.randint(1, CLASSES, labels.shape, generator=generator)) % CLASSES
    return torch.where(wrong, other, labels), wrong


def network(seed: int) -> nn.Module:
    """Two convolutions, 64 features, a linear head; about 40,000 parameters."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(),
            nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, CLASSES),
        )  # fmt: skip


def batches(x: Tensor, y: Tensor, order: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """(index, x, y) of the examples in `order` (default: all of them as they lie)."""
    for index in (torch.arange(len(y)) if order is None else order).split(BATCH):
        yield index, x[index], y[index]


@dataclass
class Training:
    """One ordinary training run.

    Attributes:
        x: Images, shape [N, 1, 8, 8].
        y: Labels, shape [N].
        seed: Seed of the weights and of the order of the examples.
        keep: Positions of the examples to train on; None for all.
        config: Settings of the influence.
        epochs: Number of epochs.
    """

    x: Tensor
    y: Tensor
    seed: int
    keep: Tensor | None = None
    config: InfluenceConfig | None = None
    epochs: int = EPOCHS

    def run(
        self,
        weights: Callable[[Tensor], Tensor] | None = None,
        each_epoch: Callable[[OnlineInfluence], None] | None = None,
    ) -> tuple[nn.Module, OnlineInfluence]:
        """Train and return the network and what watched it.

        Args:
            weights: Gives the weights [n] of the losses from the positions of the examples.
            each_epoch: Called after every epoch.
        """
        model = network(self.seed)
        with OnlineInfluence(model, len(self.y), CLASSES, self.config, total_steps=self.steps) as influence:
            self._train(model, influence, weights, each_epoch)
        return model.eval(), influence

    def run_unwatched(self) -> nn.Module:
        """Train and return the network, bit by bit that of `run`, sooner."""
        model = network(self.seed)
        self._train(model)
        return model.eval()

    @property
    def kept(self) -> Tensor:
        return torch.arange(len(self.y)) if self.keep is None else self.keep

    @property
    def steps(self) -> int:
        return self.epochs * -(-len(self.kept) // BATCH)

    def _train(
        self,
        model: nn.Module,
        influence: OnlineInfluence | None = None,
        weights: Callable[[Tensor], Tensor] | None = None,
        each_epoch: Callable[[OnlineInfluence], None] | None = None,
    ) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9, weight_decay=5e-4)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=self.steps)
        generator = torch.Generator().manual_seed(self.seed)
        for _ in range(self.epochs):
            model.train()
            for index, x, y in batches(self.x, self.y, self.kept[torch.randperm(len(self.kept), generator=generator)]):
                with influence.watch(index, y) if influence else contextlib.nullcontext():
                    logits = model(x)
                    losses = F.cross_entropy(logits, y, reduction="none")
                    (losses if weights is None else weights(index) * losses).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
                if influence:
                    influence.step(optimizer)
            if influence:
                influence.end_epoch()
                if each_epoch is not None:
                    each_epoch(influence)


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of right predictions."""
    return (model(x).argmax(1) == y).float().mean().item()
