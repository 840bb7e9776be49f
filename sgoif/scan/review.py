"""How many labels are wrong, and how many are left after a part was reviewed.

The probabilities of a scan may be off as a whole. So the probability that a label is wrong is taken as

    logit q_i = a logit p_i + b,        log a ~ N(log SLOPE, SLOPE_SD^2),  b ~ N(0, SHIFT_SD^2),

with the scan's probability p_i. Before any decision the prior of a and b gives the interval of the number of wrong
labels. Every label that a person has judged makes a and b better known (Bayes' rule on a grid), and with them the
number that is left. A review goes down the ranking, so the latest decisions say most about what is left: a decision
counts half as much as one `HALF_LIFE` decisions later. `page/estimate.js` does the same in the browser.

SLOPE is below 1 because the probabilities are too near 0 and 1. The constants were chosen by eye on six scans (five
of digits, one of photographs) whose wrong labels were known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SLOPE = 0.8
SLOPE_SD = 0.3
SHIFT_SD = 0.7
HALF_LIFE = 60  # decisions
GRID = 31  # values of a and of b
REACH = 3.0  # of the grid, in standard deviations
LEAST_PROBABILITY = 1e-4  # no label is right or wrong for certain before a person has seen it
MOST_PROBABILITY = 0.98
BINS = 100  # of probabilities, by their logits
NORMAL_QUANTILE = 1.645  # of 95%: intervals hold 90%
LAST = 40  # decisions that the sentence tells of, and examples that it looks ahead


@dataclass(frozen=True)
class Expected:
    """An estimated number of wrong labels.

    Attributes:
        count: The median over what is not known of a and b.
        low: Lower end of its 90% interval.
        high: Upper end of its 90% interval.
    """

    count: float
    low: float
    high: float


def expected_wrong(
    probability: np.ndarray, judged: Sequence[float] | np.ndarray = (), wrong: Sequence[bool] | np.ndarray = ()
) -> Expected:
    """Estimates how many labels of some examples are wrong.

    Args:
        probability: The scan's probabilities that the labels are wrong, shape [n].
        judged: The scan's probabilities of examples that a person has judged, in that order, shape [m].
        wrong: Whether their labels were wrong, shape [m].

    Returns:
        The expected number of wrong labels among the n examples.
    """
    slope, shift, weight = _posterior(np.asarray(judged, float), np.asarray(wrong, bool))
    values, counts = bin_probabilities(np.asarray(probability, float))
    if len(values) == 0:
        return Expected(0.0, 0.0, 0.0)
    q = _sigmoid(slope[:, None] * _logit(values) + shift[:, None])  # [grid, bins]
    means = q @ counts
    chance = NORMAL_QUANTILE * np.sqrt(float(weight @ ((q * (1 - q)) @ counts)))
    order = np.argsort(means, kind="stable")
    places = np.searchsorted(np.cumsum(weight[order]), (0.05, 0.5, 0.95))
    low, middle, high = means[order][np.minimum(places, len(means) - 1)].tolist()
    below, above = float(np.hypot(middle - low, chance)), float(np.hypot(high - middle, chance))
    return Expected(middle, max(middle - below, 0.0), min(middle + above, float(counts.sum())))


def _posterior(judged: np.ndarray, wrong: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the slopes, the shifts and the weights of the grid's points after the judged examples."""
    steps = np.linspace(-REACH, REACH, GRID)
    a, b = (g.ravel() for g in np.meshgrid(steps, steps, indexing="ij"))
    slope = SLOPE * np.exp(SLOPE_SD * a)
    shift = SHIFT_SD * b
    log_weight = -(a**2 + b**2) / 2
    logits = slope[:, None] * _logit(judged) + shift[:, None]
    recency = 0.5 ** (np.arange(len(judged))[::-1] / HALF_LIFE)
    log_weight = log_weight - np.log1p(np.exp(np.where(wrong, -logits, logits))) @ recency  # logits are below 30
    weight = np.exp(log_weight - log_weight.max())
    return slope, shift, weight / weight.sum()


def bin_probabilities(probability: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Group probabilities into at most `BINS` values of equal width in their logits.

    Args:
        probability: Shape [n].

    Returns:
        The mean probability of every group that is not empty, and how many it has, shape [bins] each.
    """
    p = np.clip(probability, LEAST_PROBABILITY, MOST_PROBABILITY)
    low, high = _logit(np.array([0.0, 1.0]))
    place = np.minimum(((_logit(p) - low) / (high - low) * BINS).astype(int), BINS - 1)
    counts = np.bincount(place, minlength=BINS).astype(float)
    sums = np.bincount(place, weights=p, minlength=BINS)
    used = counts > 0
    return sums[used] / counts[used], counts[used]


def _logit(p: np.ndarray) -> np.ndarray:
    p = np.clip(p, LEAST_PROBABILITY, MOST_PROBABILITY)
    return np.asarray(np.log(p / (1 - p)))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def round_count(count: float) -> int:
    """Round an estimated number: to the nearest ten from 100 on, to two digits from 1,000 on."""
    whole = round(count)
    return whole if whole < 100 else round(whole, -max(len(str(whole)) - 2, 1))


def summary_sentence(probability: np.ndarray, shown: np.ndarray) -> str:
    """Return how many labels are wrong, and how many of those that the page shows.

    Args:
        probability: Probability that each label is wrong, shape [N].
        shown: Positions of the examples that are shown, shape [n].
    """
    every, here = expected_wrong(probability), expected_wrong(probability[shown])
    low, high = round_count(every.low), round_count(every.high)
    return (
        f"About {round_count(every.count):,} of {len(probability):,} labels are wrong ({low:,} to {high:,}); "
        f"of the {len(shown):,} shown about {round_count(here.count):,} are."
    )
