"""The probability that a label is wrong: the one place where a scan takes it from the result of a training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from sgoif import InfluenceResult


def wrong_probability(result: InfluenceResult) -> np.ndarray:
    """Return the probability that each label is wrong, falling with the rank of the example.

    It is the isotonic regression of the class model's probabilities on the order of the suspicion: the decreasing
    sequence nearest to them. Their sum, the expected number of wrong labels, stays as it is. Examples that were never
    visited do not count: they come last and have the probability 0.

    Args:
        result: Scores of N examples, with log-odds.

    Returns:
        Probabilities in the order of the examples, shape [N].
    """
    from sklearn.isotonic import isotonic_regression

    if result.log_odds is None:
        raise ValueError("the result has no log-odds: train with InfluenceConfig(memory=True)")
    order = result.suspicion.argsort(descending=True, stable=True).numpy()
    order = order[result.visited.numpy()[order]]
    by_rank = result.log_odds.double().sigmoid().numpy()[order]
    probability = np.zeros(len(result.visited))
    if len(order) == 0:
        return probability
    probability[order] = isotonic_regression(by_rank, y_min=0, y_max=1, increasing=False)
    return probability
