"""The number of wrong labels that are left, against simulated reviews of probabilities that are off as a whole."""

import functools

import numpy as np
import pytest

from sgoif.scan import review
from sgoif.scan.review import bin_probabilities, expected_wrong, round_count, summary_sentence


def simulated(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The scan's probabilities of 3,000 labels, most probable first, and whether each is wrong."""
    rng = np.random.default_rng(seed)
    logit = np.sort(np.where(rng.random(3000) < 0.08, rng.normal(2, 1.5, 3000), rng.normal(-6, 1.5, 3000)))[::-1]
    slope, shift = review.SLOPE * np.exp(rng.normal(0, review.SLOPE_SD)), rng.normal(0, review.SHIFT_SD)
    wrong = rng.random(3000) < 1 / (1 + np.exp(-(slope * logit.clip(None, 3.9) + shift)))
    return 1 / (1 + np.exp(-logit)), wrong


@functools.cache
def reviews():
    """(probabilities, which are wrong) of a hundred scans."""
    return [simulated(seed) for seed in range(100)]


@functools.cache
def left_after(n):
    """What is expected after n decisions, and how many wrong labels are left, of every scan."""
    return [(expected_wrong(told[n:], told[:n], wrong[:n]), int(wrong[n:].sum())) for told, wrong in reviews()]


@pytest.mark.parametrize("n", [0, 40, 300])
def test_intervals_hold_the_truth_nine_times_in_ten(n):
    held = sum(expected.low <= truth <= expected.high for expected, truth in left_after(n))
    assert 80 <= held <= 99, "of a hundred; a wider interval than needed would hold all of them"


def test_decisions_make_the_number_that_is_left_better_known():
    for n, gain in ((200, 0.9), (300, 0.5)):
        learnt = np.mean([abs(expected.count - truth) for expected, truth in left_after(n)])
        told = np.mean([abs(p[n:].sum() - wrong[n:].sum()) for p, wrong in reviews()])
        assert learnt < gain * told
    widths = [np.mean([e.high - e.low for e, _ in left_after(n)]) for n in (0, 200, 300)]
    assert widths[0] > 1.1 * widths[1] > 1.5 * widths[2]


def test_labels_that_turn_out_right_lower_what_is_expected():
    told = np.linspace(0.9, 0.01, 300)
    before, none = expected_wrong(told[40:]), expected_wrong(told[40:], told[:40], [False] * 40)
    every = expected_wrong(told[40:], told[:40], [True] * 40)
    assert none.count < 0.3 * before.count < before.count < every.count
    assert 0 <= none.low <= none.count <= none.high <= 260


def test_bins_keep_number_and_sum():
    p = np.random.default_rng(0).beta(0.3, 1, 5000).clip(1e-4, 0.97)
    values, counts = bin_probabilities(p)
    assert len(values) <= review.BINS and counts.sum() == 5000 and values @ counts == pytest.approx(p.sum())
    assert expected_wrong(np.empty(0)).high == 0


def test_the_summary_tells_both_numbers():
    p = np.r_[np.full(100, 0.9), np.full(900, 0.01)]
    every, here = expected_wrong(p), expected_wrong(p[:120])
    assert 80 < here.count < every.count < 130 and every.low < 100 < every.high
    told = summary_sentence(p, np.arange(120))
    assert told == (
        f"About {round_count(every.count)} of 1,000 labels are wrong ({round_count(every.low)} to "
        f"{round_count(every.high)}); of the 120 shown about {round_count(here.count)} are."
    )


@pytest.mark.parametrize(
    ("count", "told"), [(0.4, 0), (7.6, 8), (99.4, 99), (483, 480), (9469, 9500), (123456, 120000)]
)
def test_estimates_are_told_in_two_digits(count, told):
    assert round_count(count) == told
