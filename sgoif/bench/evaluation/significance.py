"""Tests which differences are significant: means, paired tests, Holm's correction, average ranks.

Pure functions of plain numbers. Tests are one-sided unless they say otherwise: is the best better than this one?
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

ALPHA = 0.05
SMALLEST_WILCOXON = 6  # fewer pairs cannot reach a small p with signed ranks: then the paired t-test is used


def mean_std(values: Sequence[float]) -> tuple[float, float | None]:
    """Return mean and sample standard deviation (n - 1); the deviation of one value is unknown, hence None."""
    array = np.asarray(values, dtype=np.float64)
    return float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else None


def t_factor(n: int) -> float:
    """Return the factor from a standard deviation of n values to half the width of their mean's 95% interval."""
    from scipy.stats import t

    return float(t.ppf(1 - ALPHA / 2, n - 1)) / math.sqrt(n)


def paired_p(better: Sequence[float], worse: Sequence[float]) -> float:
    """Return the p-value of "`better` is larger than `worse`" over paired values.

    Below `SMALLEST_WILCOXON` pairs it is the paired t-test, from there on the exact Wilcoxon signed-rank test. One pair
    gives 1. If all of a few pairs differ by the same amount, as shares of few examples may, the t-test would give 0;
    the sign test is used instead.

    Args:
        better: Values of one method by seed or setting.
        worse: Values of the other, in the same order.
    """
    difference = np.asarray(better, dtype=np.float64) - np.asarray(worse, dtype=np.float64)
    n = len(difference)
    if n < 2 or not difference.any():
        return 1.0
    if n >= SMALLEST_WILCOXON:
        return signed_rank_p(difference)
    spread = difference.std(ddof=1)
    if spread <= 1e-12 * np.abs(difference).max():
        return 0.5**n if difference.mean() > 0 else 1.0
    from scipy.stats import t

    return float(t.sf(difference.mean() / (spread / math.sqrt(n)), df=n - 1))


def signed_rank_p(difference: np.ndarray) -> float:
    """Return the exact p-value of Wilcoxon's signed-rank test of "the differences are positive"; zeros are dropped.

    Under the null hypothesis each rank is in the sum W+ with probability 1/2. The distribution of W+ is built by adding
    one rank after the other; ranks are doubled, so that the half ranks of ties are whole numbers too. (scipy permutes
    where there are ties, which takes a second for each test.)

    Args:
        difference: Paired differences, shape [n].
    """
    difference = difference[difference != 0]
    size = np.abs(difference)
    doubled = (size[:, None] > size).sum(1) * 2 + (size[:, None] == size).sum(1) + 1  # twice the mean rank
    chance = np.zeros(int(doubled.sum()) + 1)  # chance[w] = P(2 W+ = w)
    chance[0] = 1.0
    for rank in doubled:
        moved = np.zeros_like(chance)
        moved[rank:] = chance[:-rank]
        chance = (chance + moved) / 2
    return float(min(1.0, chance[int(doubled[difference > 0].sum()) :].sum()))


def difference_p(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the two-sided p-value of "the pairs differ": twice the smaller one-sided p, at most 1."""
    return min(1.0, 2 * min(paired_p(ours, theirs), paired_p(theirs, ours)))


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return Holm's step-down adjusted p-values, which bound the error probability of a whole family of tests."""
    adjusted = {}
    running = 0.0
    for i, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        running = max(running, min(1.0, (len(p_values) - i) * p))
        adjusted[name] = running
    return {name: adjusted[name] for name in p_values}


def not_worse(
    values: Mapping[str, Mapping[object, float]], higher_is_better: bool = True, alpha: float = ALPHA
) -> tuple[str | None, set[str]]:
    """Find the best method and those that are not significantly worse.

    The best has the best mean. Every other one is compared with it on the pairs that both have, Holm-corrected over all
    comparisons; with fewer than two common pairs it does not count as not worse.

    Args:
        values: For each name its values by pair (seed or setting).
        higher_is_better: Direction of the metric.
        alpha: Level of significance.

    Returns:
        The best name, None if there are no values, and the names that are not significantly worse.
    """
    values = {name: v for name, v in values.items() if v}
    if not values:
        return None, set()
    sign = 1.0 if higher_is_better else -1.0
    best = max(values, key=lambda name: sign * float(np.mean(list(values[name].values()))))
    p_values = {}
    for name in values:
        pairs = [p for p in values[best] if p in values[name]]
        if name != best and len(pairs) > 1:
            p_values[name] = paired_p([sign * values[best][p] for p in pairs], [sign * values[name][p] for p in pairs])
    return best, {name for name, p in holm(p_values).items() if p > alpha}


def mean_ranks(values: Mapping[str, Sequence[float]], higher_is_better: bool = True) -> dict[str, float]:
    """Return the mean rank of each name over the columns; 1 is best, ties share their mean rank.

    Args:
        values: For each name its values, one for each column.
        higher_is_better: Direction of the metric.
    """
    from scipy.stats import rankdata

    table = np.asarray([values[name] for name in values], dtype=np.float64)  # [names, columns]
    ranks = rankdata(-table if higher_is_better else table, axis=0)
    return dict(zip(values, ranks.mean(axis=1).tolist(), strict=True))


def friedman_p(values: Mapping[str, Sequence[float]]) -> float:
    """Return the p-value of "all names rank alike" (Friedman); 1 with fewer than three names or two columns."""
    columns = list(values.values())
    if len(columns) < 3 or len(columns[0]) < 2:
        return 1.0
    from scipy.stats import friedmanchisquare

    p = float(friedmanchisquare(*columns).pvalue)
    return 1.0 if math.isnan(p) else p


def critical_difference(n_names: int, n_columns: int, alpha: float = ALPHA) -> float:
    """Return the critical difference of average ranks (Nemenyi; Demsar 2006): q * sqrt(k (k + 1) / (6 N)).

    q is the studentised range over k names with infinite degrees of freedom, divided by sqrt(2); N is the number of
    columns.
    """
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(1 - alpha, n_names, np.inf)) / math.sqrt(2)
    return q * math.sqrt(n_names * (n_names + 1) / (6 * n_columns))
