"""Unlearning prioritisation: which training examples to forget first, so that certain predictions change.

The training examples are ordered by their influence on the target predictions (`influence_on_predictions`). To first
order, training without the first n of them raises the targets' mean loss by the sum of their effects over N, which is
more than training without any other n. The real effect shows only after retraining.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor, nn

from sgoif.applications.prediction_influence import influence_on_predictions
from sgoif.config import InfluenceConfig


@dataclass(frozen=True)
class Priority:
    """An order of forgetting.

    Attributes:
        influence: Influence on the target predictions, shape [N]; positive examples support them.
        order: Positions of the training examples, most supporting first, shape [N].
    """

    influence: Tensor
    order: Tensor


def prioritise(
    model: nn.Module,
    train: Iterable[tuple[Tensor, Tensor, Tensor]],
    n_examples: int,
    targets: Iterable[tuple[Tensor, Tensor]],
    config: InfluenceConfig | None = None,
) -> Priority:
    """Order the training examples so that forgetting the first ones changes the target predictions most.

    Args:
        model: The trained network.
        train: Training batches (index, x, y); they are read twice, so no generator.
        n_examples: Size N of the training set.
        targets: Batches (x, y) of inputs and the predictions that are to change; no generator.
        config: Settings of the influence.

    Returns:
        The influence of every training example, and the order.

    Raises:
        InfluenceError: If a generator is passed, or no scoring direction could be certified.
    """
    influence = influence_on_predictions(model, train, n_examples, targets, config)
    return Priority(influence, influence.argsort(descending=True, stable=True))
