"""Tests of the tests: against scipy, published constants and cases that can be reasoned out."""

import numpy as np
import pytest
import scipy.stats

from sgoif.bench.evaluation import significance


def test_mean_std_uses_n_minus_one_and_does_not_invent_a_spread():
    assert significance.mean_std([1, 2, 3]) == (2.0, 1.0)
    assert significance.mean_std([0.5]) == (0.5, None)


def test_few_pairs_use_the_t_test_and_many_the_signed_ranks():
    rng = np.random.default_rng(0)
    for n, reference in (
        (4, lambda a, b: scipy.stats.ttest_rel(a, b, alternative="greater").pvalue),
        (12, lambda a, b: scipy.stats.wilcoxon(a - b, alternative="greater").pvalue),
    ):
        a, b = rng.normal(1, 1, n), rng.normal(0, 1, n)
        assert significance.paired_p(a, b) == pytest.approx(reference(a, b))


@pytest.mark.parametrize("n", [6, 9, 12])
def test_signed_ranks_with_ties_and_zeros_are_those_of_all_sign_flips(n):
    rng = np.random.default_rng(n)
    difference = rng.integers(-3, 6, n).astype(float)
    kept = difference[difference != 0]
    ranks = scipy.stats.rankdata(np.abs(kept))
    flips = (np.arange(2 ** len(kept))[:, None] >> np.arange(len(kept))) & 1
    reference = (flips @ ranks >= ranks[kept > 0].sum() - 1e-9).mean()
    assert significance.signed_rank_p(difference) == pytest.approx(reference)


def test_degenerate_pairs():
    assert significance.paired_p([0.9], [0.1]) == 1.0
    assert significance.paired_p([0.9, 0.8], [0.9, 0.8]) == 1.0
    assert significance.paired_p([0.9, 0.8, 0.7], [0.8, 0.7, 0.6]) == 0.125  # the sign test: no spread is no certainty
    assert significance.paired_p([0.8, 0.7, 0.6], [0.9, 0.8, 0.7]) == 1.0


def test_holm_by_hand():
    adjusted = significance.holm({"a": 0.01, "b": 0.04, "c": 0.03})
    assert adjusted == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})
    assert list(adjusted) == ["a", "b", "c"]


def test_not_worse_pairs_by_seed():
    base = {s: 0.9 + 0.01 * s for s in range(5)}
    near = {0: 0.91, 1: 0.90, 2: 0.93, 3: 0.91, 4: 0.94}
    shifted = {s: v - 0.02 - 0.0005 * (s % 2) for s, v in base.items()}  # small, but the same in every seed
    best, close = significance.not_worse({"base": base, "near": near, "shifted": shifted})
    assert (best, close) == ("base", {"near"})
    best, close = significance.not_worse({"base": base, "near": near, "shifted": shifted}, higher_is_better=False)
    assert best == "shifted" and "base" not in close


def test_one_seed_marks_the_best_only_and_nothing_marks_nothing():
    assert significance.not_worse({"a": {0: 0.9}, "b": {0: 0.9}}) == ("a", set())
    assert significance.not_worse({"a": {}}) == (None, set())


def test_ranks_share_ties_and_sum_to_a_constant():
    ranks = significance.mean_ranks({"a": [0.9, 0.9], "b": [0.9, 0.1], "c": [0.1, 0.5]})
    assert ranks == {"a": 1.25, "b": 2.25, "c": 2.5}
    assert significance.mean_ranks({"a": [1.0], "b": [2.0]}, higher_is_better=False) == {"a": 1.0, "b": 2.0}


@pytest.mark.parametrize("k,q", [(2, 1.960), (5, 2.728), (10, 3.164)])  # Demsar 2006, Table 5(a), alpha 0.05
def test_critical_difference_matches_the_published_constants(k, q):
    assert significance.critical_difference(k, 14) == pytest.approx(q * (k * (k + 1) / (6 * 14)) ** 0.5, rel=1e-3)


def test_friedman_sees_a_consistent_order_and_refuses_too_little():
    rng = np.random.default_rng(0)
    noise = [rng.normal(0, 0.1, 10) for _ in range(3)]
    assert significance.friedman_p({str(i): i + v for i, v in enumerate(noise)}) < 0.001
    assert significance.friedman_p({"a": [1, 2], "b": [2, 1]}) == 1.0


def test_a_difference_is_two_sided():
    low, high = [0.1, 0.2, 0.35], [0.5, 0.61, 0.7]
    assert significance.difference_p(low, high) == significance.difference_p(high, low)
    assert significance.difference_p(low, high) == pytest.approx(2 * significance.paired_p(high, low))
    assert significance.difference_p(low, low) == 1.0 and significance.difference_p([0.1], [0.9]) == 1.0
