"""Weighted means over the visits of every training example: predictions, class influences and margins.

A network that has not learnt yet predicts the same for all examples. One that has memorised the labels predicts them,
right or wrong. In between its predictions say what it thinks of the labels, and they do so the more, the more
the ratios q differ between examples: the probability of the label over the largest one. The ratio is free of how sure
the network is at all, which depends on the noise. Of two such steps the later one knows more, in the first
`LEARNING_EPOCHS` of training. So all visits of a step in epoch t, counted from 1 and with fractions, have the weight

    w = min(t, 30)^(3/2) var(q)^2

with the variance over the examples of the step. It needs no score window: it is small at the start and vanishes once
the labels are memorised, however long the training is.

The variance of a step speaks for the training set only if the batch does. Where the loader does not shuffle, all labels
of a batch may be wrong, and their ratios all small until they are memorised. So a step whose positions span less than a
quarter of the training set has the variance over all steps that are added with it, those since the last check.

The margin of a visit is the largest other logit minus the label's. The class influence of a visit says how the scoring
direction would move each logit (`ScoredBatch.class_influence`); only scope "head" has one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sgoif.backend import collectives
from sgoif.backend.linalg import margins_of, zero_rows_unless

VARIANCE_POWER = 2.0  # in the weight of a step
EPOCH_POWER = 1.5
LEARNING_EPOCHS = 30.0  # a later step counts more than an earlier one, up to here
SPANNED = 0.25  # of the positions; a batch of eight random examples spans less once in two thousand steps
MIN_LARGEST = 1e-12  # largest probability of rows that do not count, which are 0
MIN_STEP_VARIANCE = 1e-6  # so that steps count where all examples have the same ratio
STATE = ("labels", "predictions", "class_influence", "margin", "weight")


@dataclass(frozen=True)
class PredictedVisits:
    """One visit of each of n examples.

    Attributes:
        index: Positions in the training set, shape [n].
        valid: Which visits count, shape [n].
        logits: Model outputs, shape [n, C].
        predicted: Their probabilities, shape [n, C].
        labels: Labels, shape [n].
        class_influence: Influence on each logit, shape [n, C], or None.
    """

    index: Tensor
    valid: Tensor
    logits: Tensor
    predicted: Tensor
    labels: Tensor
    class_influence: Tensor | None = None


@dataclass(frozen=True)
class PredictionMeans:
    """Weighted means over all visits, on the device.

    Attributes:
        predictions: Predicted probabilities, shape [N, C]; uniform where never visited.
        labels: Labels, shape [N]; -1 where never visited.
        margin: Margins, shape [N]; 0 where never visited.
        class_influence: Influences on each logit, shape [N, C], or None if there were none.
    """

    predictions: Tensor
    labels: Tensor
    margin: Tensor
    class_influence: Tensor | None


class PredictionStatistics:
    """Adds visits to weighted sums and reads their means."""

    def __init__(
        self, n_examples: int, n_classes: int, device: torch.device, dtype: torch.dtype, class_influence: bool
    ) -> None:
        """Start without any visit.

        Args:
            n_examples: Size N of the training set.
            n_classes: Number of classes C.
            device: Device of the sums.
            dtype: Precision of the sums.
            class_influence: Whether the visits have class influences.
        """
        self.predictions = torch.zeros(n_examples, n_classes, device=device, dtype=dtype)
        self.class_influence = torch.zeros(n_examples if class_influence else 0, n_classes, device=device, dtype=dtype)
        self.margin = torch.zeros(n_examples, device=device, dtype=dtype)
        self.weight = torch.zeros(n_examples, device=device, dtype=dtype)
        self.labels = torch.full((n_examples,), -1, device=device)

    def add(self, visits: PredictedVisits, place: Tensor, steps: range, epoch_steps: int) -> None:
        """Add one visit of each example.

        Args:
            visits: The visits.
            place: Which of the `steps` each visit belongs to, counted from 0, shape [n].
            steps: The steps that the visits come from; the first of the training is 0.
            epoch_steps: Number of steps in an epoch.
        """
        index, valid, labels = visits.index, visits.valid, visits.labels.unsqueeze(1)
        logits, predicted = zero_rows_unless(valid, visits.logits, visits.predicted)
        ratio = predicted.gather(1, labels)[:, 0] / predicted.amax(1).clamp(min=MIN_LARGEST)
        local = spans(index, valid, place, len(steps)) < SPANNED * len(self.weight)
        weight = step_weights(ratio, valid, place, steps, epoch_steps, local)[place] * valid
        margin = margins_of(logits, visits.labels)
        self.predictions.index_add_(0, index, predicted * weight.unsqueeze(1))
        self.margin.index_add_(0, index, margin * weight)
        self.weight.index_add_(0, index, weight)
        self.labels.index_copy_(0, index, visits.labels)
        if visits.class_influence is not None:
            (influence,) = zero_rows_unless(valid, visits.class_influence.to(weight.dtype))
            self.class_influence.index_add_(0, index, influence * weight.unsqueeze(1))

    def read(self) -> PredictionMeans:
        """Return the weighted means, of all processes together."""
        sums = {name: getattr(self, name).clone() for name in STATE}
        labels = sums.pop("labels")
        collectives.sum_(*sums.values())
        collectives.max_(labels)
        weight = sums["weight"]
        visited = weight > 0
        scale = torch.where(visited, 1 / torch.where(visited, weight, 1), 0).unsqueeze(1)
        uniform = 1 / self.predictions.shape[1]
        return PredictionMeans(
            predictions=torch.where(visited.unsqueeze(1), sums["predictions"] * scale, uniform),
            labels=torch.where(visited, labels, -1),
            margin=sums["margin"] * scale[:, 0],
            class_influence=sums["class_influence"] * scale if len(self.class_influence) else None,
        )

    def state_dict(self) -> dict[str, Tensor]:
        """Return a copy of everything that a resumed run needs."""
        return {name: getattr(self, name).clone() for name in STATE}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from a state that `state_dict` returned; it is copied."""
        for name in STATE:
            getattr(self, name).copy_(state[name])


def spans(index: Tensor, valid: Tensor, place: Tensor, n_steps: int) -> Tensor:
    """Return the largest less the smallest position of each step, over the examples of all processes, shape [n_steps].

    Args:
        index: Positions in the training set, shape [n].
        valid: Which visits count, shape [n].
        place: Step of each visit, counted from 0, shape [n].
        n_steps: Number of steps.
    """
    nowhere = torch.iinfo(torch.int32).min  # far below every position
    ends = torch.stack([index, -index]).masked_fill(~valid, nowhere)
    found = ends.new_full((2, n_steps), nowhere).scatter_reduce_(1, place.expand(2, -1), ends, "amax")
    collectives.max_(found)
    return found.sum(0)


def step_weights(ratio: Tensor, valid: Tensor, place: Tensor, steps: range, epoch_steps: int, local: Tensor) -> Tensor:
    """Return the weight min(t, 30)^(3/2) var(q)^2 of each step, over the examples of all processes.

    Args:
        ratio: Predicted probability of the label at each visit, over the largest one, shape [n].
        valid: Which visits count, shape [n].
        place: Which of the `steps` each visit belongs to, counted from 0, shape [n].
        steps: The steps; the first of the training is 0.
        epoch_steps: Number of steps in an epoch.
        local: Steps that have the variance over all steps, because theirs says little, shape [len(steps)].

    Returns:
        Weights, shape [len(steps)].
    """
    counted = valid.to(ratio.dtype)
    moments = torch.stack([ratio, ratio.square(), torch.ones_like(ratio)]) * counted
    sums = moments.new_zeros(3, len(steps)).index_add_(1, place, moments)
    collectives.sum_(sums)
    variance = torch.where(local, _variance(sums.sum(1, keepdim=True)), _variance(sums))
    number = torch.arange(steps.start, steps.stop, device=variance.device, dtype=variance.dtype)
    epoch = (1 + number / max(epoch_steps, 1)).clamp(max=LEARNING_EPOCHS)
    return epoch**EPOCH_POWER * variance**VARIANCE_POWER


def _variance(sums: Tensor) -> Tensor:
    """Return the variance, not too small, from sums of values and squares and the number of values, shape [3, k]."""
    count = sums[2].clamp(min=1)
    mean, square = sums[0] / count, sums[1] / count
    return (square - mean.square()).clamp(min=MIN_STEP_VARIANCE)
