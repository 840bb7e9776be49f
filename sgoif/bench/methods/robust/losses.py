"""Losses to train with instead of cross-entropy, each a small object that may keep a state for every example.

    loss = make_loss("elr", n_examples, n_classes, device)
    for epoch in session.epochs(epochs, learner, loss):
        loss.begin_epoch(epoch, epochs)
        ...  loss(logits, labels, index)              # a number, to be minimised
    loss.scores(labels)                               # what its state says of each label, {name: [N]}

`robust.training.train_with_loss` trains with one of them, and so does SG-OIF while it watches (`params.sgoif.loss`).
Losses are captured as CUDA graphs, so that they must not depend on values of tensors on the host; numbers that change
between epochs are tensors that are changed in place. Shapes: N training examples, K classes, n examples of a step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.errors import UserError

MANY_CLASSES = 50  # from here on the published values for CIFAR-100 are the defaults, below those for CIFAR-10


def label_probabilities(logits: Tensor, labels: Tensor) -> Tensor:
    """Return p_y, shape [n], of logits [n, K]."""
    return logits.softmax(1).gather(1, labels[:, None]).squeeze(1)


class TrainingLoss:
    """Base class: cross-entropy, without any state."""

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        """Prepare for an epoch, counted from 0, of so many."""

    def __call__(self, logits: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        """Return the loss of a step, and update the state of its examples.

        Args:
            logits: Shape [n, K], float32, with gradients.
            labels: Noisy labels, shape [n].
            index: Positions in the training set, shape [n].
        """
        return F.cross_entropy(logits, labels)

    def scores(self, labels: Tensor) -> dict[str, Tensor]:
        """Return scores that the state holds, shape [N] each, higher = more suspicious.

        Args:
            labels: Noisy labels of all training examples, shape [N].
        """
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state of `state_dict`."""


class GeneralizedCrossEntropy(TrainingLoss):
    """(1 - p_y^q) / q: cross-entropy for q -> 0, the mean absolute error for q = 1."""

    def __init__(self, q: float = 0.7) -> None:
        """Set q in (0, 1]."""
        self.q = q

    def __call__(self, logits: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        """Return the mean of (1 - p_y^q) / q; see `TrainingLoss`."""
        log_p = -F.cross_entropy(logits, labels, reduction="none")
        return (-torch.expm1(self.q * log_p) / self.q).mean()


class SymmetricCrossEntropy(TrainingLoss):
    """alpha CE + beta RCE with RCE = -A (1 - p_y), divided by alpha + beta if `normalised`."""

    def __init__(
        self, alpha: float, beta: float = 1.0, log_zero: float = math.log(1e-4), normalised: bool = True
    ) -> None:
        """Set the weights of both terms, A, and whether the sum of the weights is divided out."""
        total = alpha + beta if normalised else 1.0
        self.alpha, self.beta, self.log_zero = alpha / total, beta / total, log_zero

    @staticmethod
    def default_alpha(n_classes: int) -> float:
        """Return the published weight of cross-entropy: 0.1 on CIFAR-10, 6 on CIFAR-100."""
        return 6.0 if n_classes >= MANY_CLASSES else 0.1

    def __call__(self, logits: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        """Return the mean of both terms; see `TrainingLoss`."""
        forward = F.cross_entropy(logits, labels)
        reverse = -self.log_zero * (1 - label_probabilities(logits, labels)).mean()
        return self.alpha * forward + self.beta * reverse


class EarlyLearningRegularisation(TrainingLoss):
    """CE + lambda log(1 - <t, p>), with t the running mean of the example's own predictions.

    The regulariser pulls predictions towards what the network said of the example early, before it memorised a wrong
    label: t <- beta t + (1 - beta) p.
    """

    SMALLEST = 1e-4  # predictions are kept this far from 0 and 1

    def __init__(
        self,
        n_examples: int,
        n_classes: int,
        device: torch.device,
        weight: float | None = None,
        decay: float | None = None,
    ) -> None:
        """Begin with targets of 0.

        Args:
            n_examples: Number of training examples N.
            n_classes: Number of classes K.
            device: Where the targets lie.
            weight: lambda; None: 3 below 50 classes, 7 from 50 on, as published for CIFAR-10 and CIFAR-100.
            decay: beta; None: 0.7 below 50 classes, 0.9 from 50 on.
        """
        many = n_classes >= MANY_CLASSES
        self.weight = (7.0 if many else 3.0) if weight is None else weight
        self.decay = (0.9 if many else 0.7) if decay is None else decay
        self.targets = torch.zeros(n_examples, n_classes, device=device)

    def __call__(self, logits: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        """Update the targets of the examples and return the mean loss; see `TrainingLoss`."""
        p = logits.softmax(1).clamp(self.SMALLEST, 1 - self.SMALLEST)
        said = p.detach() / p.detach().sum(1, keepdim=True)
        targets = self.decay * self.targets[index] + (1 - self.decay) * said
        self.targets.index_copy_(0, index, targets)
        return F.cross_entropy(logits, labels) + self.weight * torch.log(1 - (targets * p).sum(1)).mean()

    def scores(self, labels: Tensor) -> dict[str, Tensor]:
        """Return `target`: one minus the label's share of the target; see `TrainingLoss`."""
        share = self.targets.gather(1, labels[:, None]).squeeze(1) / self.targets.sum(1).clamp(min=1e-12)
        return {"target": 1 - share}

    def state_dict(self) -> dict[str, Any]:
        return {"targets": self.targets}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state of `state_dict`."""
        self.targets.copy_(state["targets"])


LOSSES: dict[str, Callable[[int, int, torch.device], TrainingLoss]] = {
    "cross_entropy": lambda n, k, device: TrainingLoss(),
    "gce": lambda n, k, device: GeneralizedCrossEntropy(),
    "sce": lambda n, k, device: SymmetricCrossEntropy(SymmetricCrossEntropy.default_alpha(k)),
    "elr": EarlyLearningRegularisation,
}


def make_loss(name: str, n_examples: int, n_classes: int, device: torch.device) -> TrainingLoss:
    """Make a loss with its published hyper-parameters.

    Args:
        name: One of `LOSSES`.
        n_examples: Number of training examples N.
        n_classes: Number of classes K.
        device: Where its state lies.

    Raises:
        UserError: If there is no such loss.
    """
    if name not in LOSSES:
        raise UserError(f"loss: one of {', '.join(LOSSES)}, not {name!r}")
    return LOSSES[name](n_examples, n_classes, device)
