"""Examples unlike the rest, by the shift sentinel: a foreign picture has no right label among the classes.

The examples are put into `FOLDS` parts at random, and each part is scored by a sentinel that has not seen it. The
greatest scores of ordinary data fall off no slower than exponentially. So with the quantile u above which a share
`TAIL` of the scores lies

    P(score > s) = TAIL exp(-(s - u) / b),        b = (median of the scores above u, minus u) / log 2,

which a few outliers hardly change. Examples with N P(score > s) <= `CHANCE` are beyond chance: of data without an
outlier one example is expected there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sgoif.applications import Activations, ShiftSentinel

FOLDS = 4  # two to learn from, one to calibrate on, one to score
TAIL = 0.05  # share of the scores that their fall is read from
CHANCE = 1.0  # ordinary examples that are expected beyond chance
LEAST_EXAMPLES = 200  # with fewer there is no telling what is usual
LISTED = 20  # examples at least, so that there is something to look at


@dataclass(frozen=True)
class Outliers:
    """Examples that are unlike the rest.

    Attributes:
        examples: Positions, the farthest first: those beyond chance, and at least `LISTED`.
        beyond_chance: How many of them, from the first on, chance does not explain.
    """

    examples: list[int]
    beyond_chance: int


def find_outliers(features: Tensor, logits: Tensor, labels: np.ndarray) -> Outliers:
    """Find the examples that are unlike the rest.

    Args:
        features: Inputs of the classification layer, shape [N, d].
        logits: Outputs of the network, shape [N, C].
        labels: Labels, shape [N].

    Returns:
        The farthest examples; none where there are fewer than `LEAST_EXAMPLES`.
    """
    if len(labels) < LEAST_EXAMPLES:
        return Outliers([], 0)
    scores = outlier_scores(features, logits, labels)
    order = np.argsort(-scores, kind="stable")
    beyond = int((scores >= _farthest_by_chance(scores)).sum())
    return Outliers(order[: max(beyond, LISTED)].tolist(), beyond)


def _farthest_by_chance(scores: np.ndarray) -> float:
    """Return the score that `CHANCE` of the examples would reach if none of them were an outlier."""
    start = np.quantile(scores, 1 - TAIL)
    fall = (np.quantile(scores, 1 - TAIL / 2) - start) / np.log(2)
    return float(start + fall * np.log(len(scores) * TAIL / CHANCE))


def outlier_scores(features: Tensor, logits: Tensor, labels: np.ndarray) -> np.ndarray:
    """Scores every example by sentinels that have not seen it (see `find_outliers`), shape [N]; higher = farther."""
    rows, outputs, given = features.float().cpu(), logits.float().cpu(), torch.from_numpy(labels)
    order = torch.randperm(len(given), generator=torch.Generator().manual_seed(0))
    folds = order.chunk(FOLDS)

    def passes(part: Tensor) -> Activations:
        return Activations([], rows[part], outputs[part])

    scores = torch.empty(len(given))
    for number, part in enumerate(folds):
        held_back = (number + 1) % FOLDS
        sentinel = ShiftSentinel(outputs.shape[1])
        for other in range(FOLDS):
            if other not in (number, held_back):
                sentinel.observe(passes(folds[other]), given[folds[other]])
        sentinel.calibrate([passes(folds[held_back])])
        scores[part] = sentinel.score(passes(part))
    return scores.numpy()
