"""The training recipe: network, optimiser, learning-rate schedule, augmentation, precision."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from sgoif.errors import UserError

OPTIMIZERS = ("sgd", "adam", "adamw")
SCHEDULES = ("onecycle", "cosine", "step", "constant")
PRECISIONS = ("float32", "bfloat16")
RECORDS = ("end", "nothing")
START_KEYS = ("weights", "frozen")


@dataclass(frozen=True)
class Start:
    """Weights that training starts from.

    Attributes:
        weights: Name of the weights.
        frozen: Whether the backbone keeps them, so that only the last layer is trained.
        file: Where they lie on this machine, as `start.weights_of` numbers them; None until a run has found them.
    """

    weights: str
    frozen: bool = False
    file: Path | None = None

    @classmethod
    def from_dict(cls, values: Any) -> Start:
        """Make a start from its fields in a configuration.

        Raises:
            UserError: If a field is missing, unknown or of another type.
        """
        if (
            not isinstance(values, Mapping)
            or set(values) - set(START_KEYS)
            or not isinstance(values.get("weights"), str)
        ):
            raise UserError(f"recipe.start: expected {{weights: <name>, frozen: true or false}}, got {values!r}")
        if not isinstance(values.get("frozen", False), bool):
            raise UserError(f"recipe.start.frozen: expected true or false, got {values['frozen']!r}")
        return cls(values["weights"], values.get("frozen", False))

    def at(self, file: Path) -> Start:
        """Return the same start with the file of its weights."""
        return replace(self, file=file)


@dataclass(frozen=True)
class Recipe:
    """How a network is trained. All methods share the recipe of a dataset, so that only the method differs.

    Attributes:
        model: A name of `models.MODELS`, `timm:<name>`, or `timm:<name>@<pixels>` (images are scaled first).
        start: Weights that training starts from; None: random ones. In a configuration {weights: <name>, frozen: true}.
        epochs: Number of epochs.
        batch_size: Examples of a step.
        optimizer: "sgd", "adam" (weight decay added to the gradient) or "adamw" (apart from it).
        lr: Peak learning rate.
        momentum: Momentum of SGD.
        nesterov: Whether SGD uses Nesterov momentum.
        weight_decay: Weight decay.
        decay_norms: Whether norms and biases are decayed too.
        schedule: "onecycle", "cosine", "step" or "constant".
        warmup: For "onecycle": share of the steps in which the learning rate rises.
        milestones: For "step": shares of training after which the learning rate is multiplied by `gamma`.
        gamma: For "step": that factor.
        shift: Augmentation: random translation in pixels (reflected border).
        flip: Augmentation: random horizontal flip.
        precision: "float32" or "bfloat16" (on a GPU).
        graph: On a GPU: whether the training step is one CUDA graph.
        compile: On a GPU: whether the network is compiled.
        checkpoints: How many evenly spaced checkpoints a plain run keeps.
        record: "end" if a plain run saves logits and features of the training images, "nothing" if not.

    Raises:
        UserError: If a value is not allowed; the message names the field.
    """

    model: str = "small_cnn"
    start: Start | None = None
    epochs: int = 16
    batch_size: int = 128
    optimizer: str = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4
    decay_norms: bool = False
    schedule: str = "onecycle"
    warmup: float = 0.2
    milestones: tuple[float, ...] = (0.5, 0.75)
    gamma: float = 0.1
    shift: int = 0
    flip: bool = False
    precision: str = "float32"
    graph: bool = True
    compile: bool = False
    checkpoints: int = 5
    record: str = "end"

    def __post_init__(self) -> None:
        object.__setattr__(self, "milestones", tuple(self.milestones))
        one_of = {"optimizer": OPTIMIZERS, "schedule": SCHEDULES, "precision": PRECISIONS, "record": RECORDS}
        for name, allowed in one_of.items():
            if getattr(self, name) not in allowed:
                raise UserError(f"recipe.{name}: {getattr(self, name)!r} is not one of {', '.join(allowed)}")
        for name in ("epochs", "batch_size", "checkpoints"):
            if getattr(self, name) < 1:
                raise UserError(f"recipe.{name}: must be at least 1, not {getattr(self, name)}")
        for name in ("lr", "gamma"):
            if not getattr(self, name) > 0:
                raise UserError(f"recipe.{name}: must be above 0, not {getattr(self, name)}")
        for name in ("weight_decay", "shift"):
            if getattr(self, name) < 0:
                raise UserError(f"recipe.{name}: must not be negative, not {getattr(self, name)}")
        if not 0 < self.warmup < 1:
            raise UserError(f"recipe.warmup: a share between 0 and 1, not {self.warmup}")
        if not 0 <= self.momentum < 1:
            raise UserError(f"recipe.momentum: must be in [0, 1), not {self.momentum}")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Recipe:
        """Make a recipe from the fields of a configuration.

        Raises:
            UserError: If there is no such field, or a value is not allowed.
        """
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise UserError(f"recipe.{unknown[0]}: no such setting; there are: {', '.join(sorted(known))}")
        start = values.get("start")
        return cls(**{**values, "start": None if start is None else Start.from_dict(start)})

    def lr_at(self, step: int, total: int) -> float:
        """Return the learning rate of a step; a pure function, so resuming needs no scheduler state.

        Args:
            step: The step, 0 to total - 1.
            total: Number of steps of the whole training.
        """
        t = (step + 1) / max(total, 1)
        if self.schedule == "onecycle":  # linear up to `lr`, then linear down to almost 0
            return self.lr * (t / self.warmup if t <= self.warmup else max((1 - t) / (1 - self.warmup), 1e-4))
        if self.schedule == "cosine":
            return self.lr * max(0.5 * (1 + math.cos(math.pi * step / max(total, 1))), 1e-5)
        if self.schedule == "step":
            passed = sum(step >= m * total for m in self.milestones)
            return self.lr * float(self.gamma**passed)
        return self.lr

    def checkpoint_epochs(self) -> list[int]:
        """Return the epochs (counted from 0) after which a plain run keeps its weights; the last is among them."""
        n = min(self.checkpoints, self.epochs)
        return sorted({round((i + 1) * self.epochs / n) - 1 for i in range(n)})
