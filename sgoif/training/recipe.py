"""A training recipe: network, optimiser, schedule, augmentation, precision. One frozen record, checked by field."""

import math
from dataclasses import dataclass, fields

from sgoif.errors import UserError

OPTIMIZERS = ("sgd", "adam")
SCHEDULES = ("onecycle", "cosine", "step", "constant")
PRECISIONS = ("float32", "bfloat16")
RECORDS = ("end", "nothing")


@dataclass(frozen=True)
class Recipe:
    """How a network is trained. The same recipe serves every method of a dataset, so that only the method differs."""

    model: str = "small_cnn"
    epochs: int = 16
    batch_size: int = 128
    optimizer: str = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4
    schedule: str = "onecycle"
    warmup: float = 0.2  # onecycle: share of the steps spent rising
    milestones: tuple[float, ...] = (0.5, 0.75)  # step: shares of training after which lr *= gamma
    gamma: float = 0.1
    shift: int = 0  # augmentation: random translation in pixels (reflected border)
    flip: bool = False  # augmentation: random horizontal flip
    precision: str = "float32"
    graph: bool = True  # on a GPU: run the training step as one CUDA graph
    compile: bool = False
    checkpoints: int = 5  # how many evenly spaced checkpoints a plain run keeps
    record: str = "end"  # whether a plain run writes down logits and features of the training images

    def __post_init__(self):
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
    def from_dict(cls, values: dict) -> "Recipe":
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise UserError(f"recipe.{unknown[0]}: no such setting; there are: {', '.join(sorted(known))}")
        return cls(**values)

    def lr_at(self, step: int, total: int) -> float:
        """Learning rate of step 0 … total-1; a pure function, so resuming needs no scheduler state."""
        t = (step + 1) / max(total, 1)
        if self.schedule == "onecycle":  # straight up, straight down to almost 0
            return self.lr * (t / self.warmup if t <= self.warmup else max((1 - t) / (1 - self.warmup), 1e-4))
        if self.schedule == "cosine":
            return self.lr * max(0.5 * (1 + math.cos(math.pi * step / max(total, 1))), 1e-5)
        if self.schedule == "step":
            return self.lr * self.gamma ** sum(step >= m * total for m in self.milestones)
        return self.lr

    def checkpoint_epochs(self) -> list[int]:
        """Epochs (counted from 0) after which a plain run keeps its weights; the last one is always among them."""
        n = min(self.checkpoints, self.epochs)
        return sorted({round((i + 1) * self.epochs / n) - 1 for i in range(n)})
