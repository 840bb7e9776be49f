"""Metrics against hand-computed values, invariances and simulated tie-breaking."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgoif.bench.evaluation import metrics
from sgoif.errors import UserError

few = settings(max_examples=25, deadline=None)


@st.composite
def scored(draw, smallest=3, largest=260):
    """Scores with many ties, and a truth that has both kinds."""
    n = draw(st.integers(smallest, largest))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scores = rng.integers(0, draw(st.sampled_from([2, 5, 1000])), n).astype(float)
    wrong = rng.random(n) < draw(st.sampled_from([0.1, 0.5, 0.9]))
    wrong[:2] = [True, False]
    return scores, wrong


@pytest.mark.parametrize(
    "n,percent,k", [(1, 1, 1), (100, 1, 1), (101, 1, 2), (700, 1, 7), (100, 7, 7), (50000, 1, 500)]
)
def test_top_count_is_an_exact_ceiling(n, percent, k):
    assert metrics.top_count(n, percent) == k


def test_by_hand():
    # N = 200, so K = 2: one sure wrong label on top, then a tie of four of which one is wrong: 1 + 1/4 hits
    scores = np.zeros(200)
    scores[0], scores[1:5] = 9, 5
    wrong = np.zeros(200, bool)
    wrong[[0, 1, 150, 151]] = True
    out = metrics.detection(scores, wrong)
    assert out["p_at_1"] == pytest.approx(1.25 / 2)
    assert out["recall_at_1"] == pytest.approx(1.25 / 4)
    # Recall@5%: K = 10: both top ones, then 5 of the 195 zeros, of which 2 are wrong
    assert out["recall_at_5"] == pytest.approx((2 + 5 * 2 / 195) / 4)
    # AP over distinct thresholds: R 1/4 at P 1, +1/4 at P 2/5, +2/4 at P 4/200
    assert out["auc_pr"] == pytest.approx(0.25 * 1 + 0.25 * 0.4 + 0.5 * 0.02)
    # AUROC over 4 x 196 pairs: 9 beats all; 5 beats 193 and ties 3; the zeros lose to 3 and tie 193 each
    assert out["auroc"] == pytest.approx((196 + 193 + 1.5 + 2 * 96.5) / (4 * 196))


@few
@given(scored())
def test_monotone_transforms_and_permutations_change_nothing(case):
    scores, wrong = case
    base = metrics.detection(scores, wrong)
    order = np.random.default_rng(0).permutation(scores.size)
    for other in (
        metrics.detection(np.exp(scores / 100), wrong),
        metrics.detection(3 * scores - 7, wrong),
        metrics.detection(scores[order], wrong[order]),
    ):
        assert other == pytest.approx(base)


@few
@given(scored(), st.integers(1, 50))
def test_expected_hits_is_the_mean_over_random_tie_breaking(case, k):
    scores, wrong = case
    k = min(k, scores.size)
    rng = np.random.default_rng(1)
    hits = [wrong[np.lexsort((rng.random(scores.size), -scores))[:k]].sum() for _ in range(400)]
    error = np.std(hits) / math.sqrt(len(hits))
    assert metrics.expected_hits(scores, wrong, k) == pytest.approx(np.mean(hits), abs=5 * error + 1e-9)


def test_a_constant_score_is_exactly_as_good_as_chance():
    wrong = np.arange(1000) % 5 == 0
    out = metrics.detection(np.ones(1000), wrong)
    assert (out["p_at_1"], out["auc_pr"], out["auroc"]) == pytest.approx((0.2, 0.2, 0.5))
    assert out["recall_at_10"] == pytest.approx(0.1) and out["r_precision"] == pytest.approx(0.2)


def test_r_precision_counts_as_many_as_are_wrong():
    """Three wrong labels: the top three hold two of them."""
    wrong = np.array([True, False, True, False, True, False])
    assert metrics.detection(np.array([6.0, 5, 4, 3, 2, 1]), wrong)["r_precision"] == pytest.approx(2 / 3)


@few
@given(scored())
def test_reversing_the_score_reverses_the_auroc(case):
    scores, wrong = case
    assert metrics.detection(-scores, wrong)["auroc"] == pytest.approx(1 - metrics.detection(scores, wrong)["auroc"])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_scores_that_are_not_finite_are_refused_by_name(bad):
    scores = np.array([1.0, bad, 2.0])
    with pytest.raises(UserError, match="variant:early: 1 of 3 values are NaN or infinite"):
        metrics.detection(scores, np.array([True, False, False]), "variant:early")
    with pytest.raises(UserError, match="ood:svhn"):
        metrics.ood(np.zeros(3), scores, "ood:svhn")
    with pytest.raises(UserError, match="epoch_scores"):
        metrics.top_tau(np.stack([scores, scores]))
    with pytest.raises(UserError, match="test_logits"):
        metrics.accuracy(scores[:, None], np.zeros(3))


def test_shapes_and_one_sided_truths_are_refused():
    with pytest.raises(UserError, match=r"shape \(3,\) does not fit"):
        metrics.detection(np.zeros(3), np.array([True, False]))
    with pytest.raises(UserError, match="nothing to rank"):
        metrics.detection(np.zeros(3), np.zeros(3, bool))
    with pytest.raises(UserError, match="remove"):
        metrics.removal(np.zeros(3, bool), np.zeros(2, bool))


def test_top_tau_of_a_stable_a_reversed_and_a_changing_top():
    rising = np.arange(500.0)  # K = 5
    assert metrics.top_tau(np.stack([rising, rising * 2, rising + 1])) == pytest.approx(1)
    assert metrics.top_tau(np.stack([rising, -rising])) == pytest.approx(-1)  # union of the two ends
    swapped = rising.copy()
    swapped[[498, 499]] = swapped[[499, 498]]  # one of the 10 pairs of the top five is discordant
    assert metrics.top_tau(np.stack([rising, swapped])) == pytest.approx(0.8)
    assert metrics.top_tau(np.stack([rising, swapped, swapped])) == pytest.approx(0.9)  # mean over adjacent pairs
    outside = rising.copy()
    outside[:400] = outside[:400][::-1]  # nothing below the top counts
    assert metrics.top_tau(np.stack([rising, outside])) == pytest.approx(1)


def test_top_tau_without_an_order_is_undefined():
    assert math.isnan(metrics.top_tau(np.ones((3, 50))))
    assert math.isnan(metrics.top_tau(np.arange(50.0)[None]))


def test_removal_by_hand():
    wrong = np.array([1, 1, 1, 1, 0, 0], bool)
    out = metrics.removal(np.array([1, 1, 0, 0, 1, 0], bool), wrong)
    assert out == pytest.approx(
        {"removal_precision": 2 / 3, "removal_recall": 0.5, "removal_f1": 4 / 7, "removal_count_error": -0.25}
    )
    assert metrics.removal(np.zeros(6, bool), wrong)["removal_f1"] == 0


def test_ood_by_hand():
    # OOD scores 5, 4, 2 against ID 3, 2, 1, 0: 9 of 12 pairs won outright, 2 vs 2 tied, 2 vs 3 lost
    out = metrics.ood(np.array([3, 2, 1, 0]), np.array([5, 4, 2]))
    assert out["auroc"] == pytest.approx((4 + 4 + 2 + 0.5) / 12)
    assert out["fpr95"] == pytest.approx(2 / 4)  # all three OOD are found at threshold 2: ID 3 and 2 are above
    assert out["aupr_out_ap"] == pytest.approx(1 / 3 + 1 / 3 + 1 / 3 * 3 / 5)
    # PR points (R, P): (0, 1) (1/3, 1) (2/3, 1) (2/3, 2/3) (1, 3/5)
    assert out["aupr_out_trapezoid"] == pytest.approx(2 / 3 + 1 / 3 * (2 / 3 + 3 / 5) / 2)
    # ID positive, score reversed: 0, 1 first, then the tie of 2 (ID) and 2 (OOD), then 3
    assert out["aupr_in_ap"] == pytest.approx(1 / 4 + 1 / 4 + 1 / 4 * 3 / 4 + 1 / 4 * 4 / 5)


def test_fpr95_takes_the_first_threshold_that_reaches_95_percent():
    ood = np.arange(100.0)  # 95 of 100 are found at threshold 5
    for id_score, expected in ((5.0, 1.0), (4.9, 0.0)):
        assert metrics.ood(np.full(10, id_score), ood)["fpr95"] == expected
    # equal steps on both sides are collinear on the ROC curve, and must not be skipped
    assert metrics.ood(np.arange(100.0), np.arange(100.0))["fpr95"] == pytest.approx(0.95)


@few
@given(st.integers(0, 2**32 - 1))
def test_ood_is_invariant_and_symmetric(seed):
    rng = np.random.default_rng(seed)
    inside, outside = rng.integers(0, 20, 60).astype(float), rng.integers(5, 25, 35).astype(float)
    base = metrics.ood(inside, outside)
    assert metrics.ood(rng.permutation(inside) * 2 + 1, np.sort(outside) * 2 + 1) == pytest.approx(base)
    # swap the roles and the sign: what was OUT is now IN
    swapped = metrics.ood(-outside, -inside)
    assert swapped["auroc"] == pytest.approx(base["auroc"])
    assert swapped["aupr_in_ap"] == pytest.approx(base["aupr_out_ap"])
    assert swapped["aupr_out_trapezoid"] == pytest.approx(base["aupr_in_trapezoid"])


def test_means_over_sets_are_unweighted():
    per_set = {s: dict.fromkeys(metrics.OOD_METRICS, v) for s, v in (("a", 0.9), ("b", 0.5), ("c", 0.7))}
    out = metrics.ood_means(per_set, ["a"], ["b", "c"])
    assert [out[g]["auroc"] for g in ("near", "far", "overall")] == pytest.approx([0.9, 0.6, 0.7])
    assert set(metrics.ood_means(per_set, ["a"], [])) == {"near", "overall"}


def test_accuracy():
    assert metrics.accuracy(np.eye(3)[[0, 1, 2, 2]], np.array([0, 1, 2, 0])) == 0.75
