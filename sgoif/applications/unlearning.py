"""Unlearning prioritisation: what to forget first, if certain predictions are to change.

The training examples are ordered by how much they support the target predictions (`towards.support`). To first order,
training without the first n of them raises the targets' mean loss by the sum of their effects over N, more than
training without any other n. How much really happens only a retraining tells.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor, nn

from sgoif.applications.prediction_influence import support
from sgoif.config import InfluenceConfig


@dataclass(frozen=True)
class Priority:
    """`support` `[N]` in data-set order (positive = holds the predictions up), `order` `[N]` positions, most first."""

    support: Tensor
    order: Tensor


def prioritise(
    model: nn.Module,
    train: Iterable[tuple[Tensor, Tensor, Tensor]],
    n_examples: int,
    targets: Iterable[tuple[Tensor, Tensor]],
    config: InfluenceConfig | None = None,
) -> Priority:
    """Order in which to forget training examples so that the predictions `targets`, batches (x, y), change most."""
    effect = support(model, train, n_examples, targets, config)
    return Priority(effect, effect.argsort(descending=True, stable=True))
