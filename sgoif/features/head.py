"""The linear head that is trained on features while `OnlineInfluence` watches.

Its recipe was chosen on tuning data (docs/lab-notebook/features.md). The learning rate is over the mean square of the
features, so it does not depend on their number or scale.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgoif.config import InfluenceConfig
from sgoif.errors import InfluenceError
from sgoif.features.arrays import FeatureArray
from sgoif.influence import OnlineInfluence
from sgoif.label_noise.projection import Projection

MOMENTUM = 0.9
WARM_UP = 0.3  # share of the steps in which the learning rate rises
FIRST_RATE = 0.04  # learning rate of the first step over its peak
KEPT_ROWS = 262_144  # projected features of so many examples are kept in memory; larger sets are read in every epoch
STEPS_OF_SMALL_SETS = 8  # steps of an epoch, at least, where there are few examples


@dataclass(frozen=True)
class HeadRecipe:
    """How the head is trained.

    Attributes:
        epochs: Passes over the examples.
        batch_size: Examples of a step.
        lr: Peak learning rate times the mean square norm of an example's features.
        weight_decay: Weight decay.
        seed: Seed of the order.

    Raises:
        InfluenceError: If a value is out of range.
    """

    epochs: int = 10
    batch_size: int = 128
    lr: float = 3.0
    weight_decay: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "seed"):
            try:
                object.__setattr__(self, name, operator.index(getattr(self, name)))
            except TypeError:
                raise InfluenceError(f"{name} = {getattr(self, name)!r}: must be a whole number") from None
        for name, least in (("epochs", 2), ("batch_size", 2), ("seed", 0)):
            if getattr(self, name) < least:
                raise InfluenceError(f"{name} = {getattr(self, name)}: must be at least {least}")
        for name in ("lr", "weight_decay"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise InfluenceError(f"{name} = {value!r}: must be a number")
        if not 0 < self.lr < math.inf:
            raise InfluenceError(f"lr = {self.lr}: must be above 0")
        if not 0 <= self.weight_decay < math.inf:
            raise InfluenceError(f"weight_decay = {self.weight_decay}: must not be negative")

    @classmethod
    def for_examples(cls, n: int, seed: int = 0) -> HeadRecipe:
        """Return the recipe for n examples; only the size of a batch depends on them."""
        largest = 128 if n <= 50_000 else 512 if n <= 200_000 else 2048
        return cls(batch_size=min(largest, max(n // STEPS_OF_SMALL_SETS, 8)), seed=seed)


@dataclass(frozen=True)
class HeadBatch:
    """A batch of the head's training, on its device.

    Attributes:
        index: Positions in the data set, shape [n].
        labels: Labels, shape [n].
        features: Projected features, shape [n, k].
        logits: Outputs of the head before the step, shape [n, C].
    """

    index: Tensor
    labels: Tensor
    features: Tensor
    logits: Tensor


class HeadTraining:
    """Trains a head on features, scored by its `influence`.

    Attributes:
        head: The linear layer.
        influence: What watches it.
        total_steps: Steps of the whole training.
        steps_done: Steps so far.
    """

    def __init__(
        self,
        features: FeatureArray,
        labels: np.ndarray,
        n_classes: int,
        projection: Projection,
        recipe: HeadRecipe,
        device: torch.device | str = "cpu",
        trusted: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        """Prepare the training.

        Args:
            features: Features of the N examples.
            labels: Their classes, shape [N].
            n_classes: Number of classes C.
            projection: What the head sees of the features.
            recipe: How to train.
            device: Where to train.
            trusted: Features [m, d] and right classes [m] of examples outside the training set, if there are any.
        """
        self.features, self.recipe, self.device = features, recipe, torch.device(device)
        self.labels = torch.from_numpy(labels)
        self.projection = projection.to(self.device)
        self._kept = self._project_all() if len(features) <= KEPT_ROWS else None
        self.head = nn.Linear(projection.width, n_classes, dtype=torch.float32).to(self.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.total_steps = recipe.epochs * math.ceil(len(features) / recipe.batch_size)
        self.steps_done = 0
        self._peak = recipe.lr / projection.mean_square
        self.optimizer = torch.optim.SGD(
            self.head.parameters(), self._peak, MOMENTUM, nesterov=True, weight_decay=recipe.weight_decay
        )
        anchors = None if trusted is None else self._anchor_data(*trusted)
        source = "stream" if anchors is None else "trusted"
        config = InfluenceConfig(source=source, keep_features=False)  # `read_held_out` has them
        self.influence = OnlineInfluence(
            self.head, len(features), n_classes, config, total_steps=self.total_steps, anchor_data=anchors
        )

    def epoch(self, epoch: int, after_pass: Callable[[HeadBatch], None] | None = None) -> None:
        """Train one epoch.

        Args:
            epoch: Its number; the order of the examples follows from it and the seed.
            after_pass: Called with every batch, before `influence` closes its step.

        Raises:
            InfluenceError: If the loss is not finite.
        """
        for index, x in self._batches(epoch):
            labels = self.labels[index].to(self.device)
            logits = self.head(x)
            loss = F.cross_entropy(logits, labels)
            for group in self.optimizer.param_groups:
                group["lr"] = self._peak * self._schedule(self.steps_done / self.total_steps)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            batch = HeadBatch(index.to(self.device), labels, x, logits.detach())
            self.influence.record_outputs(batch.index, labels, x, batch.logits)
            if after_pass is not None:
                after_pass(batch)
            self.influence.step(self.optimizer)
            self.steps_done += 1
        if not bool(torch.isfinite(loss)):
            raise InfluenceError(f"the training of the head diverged at lr = {self.recipe.lr:g}; try a tenth of it")
        self.influence.end_epoch()

    def state_dict(self) -> dict[str, object]:
        """Return what a resumed training needs, but for the state of `influence`."""
        return {"head": self.head.state_dict(), "optimizer": self.optimizer.state_dict(), "steps": self.steps_done}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Continue from what `state_dict` returned."""
        self.head.load_state_dict(state["head"])  # type: ignore[arg-type]
        self.optimizer.load_state_dict(state["optimizer"])  # type: ignore[arg-type]
        self.steps_done = int(state["steps"])  # type: ignore[call-overload]

    def projected(self) -> Tensor:
        """Return the projected features of all examples, on the host, shape [N, k]."""
        return (self._project_all() if self._kept is None else self._kept).cpu()

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the first position and the features [b, d] of every block, in order, on the host."""
        return self.features.blocks()

    @torch.no_grad()
    def project_rows(self, rows: np.ndarray) -> Tensor:
        """Return the projected features of some examples, shape [n, k], on the device.

        Args:
            rows: Their positions, shape [n].
        """
        if self._kept is not None:
            return self._kept[torch.from_numpy(rows).to(self.device)]
        projected: Tensor = self.projection(self.features.rows(rows).to(self.device))
        return projected

    def project_blocks(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the first position and the projected features [b, k] of every block, in order, on the device."""
        if self._kept is not None:
            size = self.features.block_rows
            yield from ((first, self._kept[first : first + size]) for first in range(0, len(self._kept), size))
            return
        for first, block in self.features.blocks():
            with torch.no_grad():
                yield first, self.projection(block.to(self.device))

    def _project_all(self) -> Tensor:
        with torch.no_grad():
            return torch.cat([self.projection(block.to(self.device)) for _, block in self.features.blocks()])

    def _batches(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield positions and projected features of every batch, in random order.

        A block of random rows is read at a time, in ascending order: of a mapped file no more is in memory.
        """
        order = np.random.default_rng((self.recipe.seed, epoch)).permutation(len(self.features))
        size = self.recipe.batch_size
        span = max(self.features.block_rows // size, 1) * size
        for first in range(0, len(order), span):
            rows = order[first : first + span]
            yield from zip(torch.from_numpy(rows).split(size), self.project_rows(rows).split(size), strict=True)

    @staticmethod
    def _schedule(share: float) -> float:
        """Learning rate over its peak at a share of the steps: a rise, then a fall, both along a cosine."""
        part = share / WARM_UP if share < WARM_UP else (1 - share) / (1 - WARM_UP)
        return FIRST_RATE + (1 - FIRST_RATE) * 0.5 * (1 - math.cos(math.pi * part))

    def _anchor_data(self, features: Tensor, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
        projected = self.projection(features.to(self.device))
        size = self.recipe.batch_size
        return list(zip(projected.split(size), labels.to(self.device).split(size), strict=True))
