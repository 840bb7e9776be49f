"""Removal rules: against scikit-learn's mixture, and at the edges."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.mixture import GaussianMixture

from sgoif.bench.methods.score_threshold import at_most, by_mixture, fit_two_gaussians, otsu


def two_groups(n0=800, n1=200, gap=5.0, seed=0):
    rng = np.random.default_rng(seed)
    return np.r_[rng.normal(0, 1, n0), rng.normal(gap, 1, n1)], np.r_[np.zeros(n0, bool), np.ones(n1, bool)]


@pytest.mark.parametrize("n1,gap", [(200, 5.0), (100, 3.5), (900, 4.0)])
def test_same_mixture_as_scikit_learn(n1, gap):
    x, _ = two_groups(n1=n1, gap=gap)
    x = (x - x.mean()) / x.std()
    theirs = GaussianMixture(2, covariance_type="tied", tol=1e-9, max_iter=1000, random_state=0).fit(x[:, None])
    order = np.argsort(theirs.means_[:, 0])
    weight, mean, variance = fit_two_gaussians(x, max_steps=1000, tolerance=1e-12)
    np.testing.assert_allclose(mean, theirs.means_[order, 0], atol=2e-3)
    np.testing.assert_allclose(weight, theirs.weights_[order], atol=2e-3)
    np.testing.assert_allclose(variance, theirs.covariances_[0, 0], rtol=1e-2)


def test_finds_the_suspicious_group_whatever_the_units():
    scores, suspicious = two_groups()
    units = np.exp(scores)
    assert (by_mixture(units) == suspicious).mean() > 0.9
    np.testing.assert_array_equal(by_mixture(units), by_mixture(1e-6 * units))


def test_one_group_removes_nothing():
    roots = np.random.default_rng(1).normal(size=2000)
    assert not by_mixture(np.sign(roots) * roots**2).any()


@pytest.mark.parametrize("scores", [np.zeros(50), np.full(50, 3.1), np.array([0.0, 1.0]), np.array([])])
def test_scores_that_say_nothing_remove_nothing(scores):
    assert not by_mixture(scores).any()


@given(arrays(np.float64, st.integers(1, 200), elements=st.floats(-1e6, 1e6)))
@settings(max_examples=100, deadline=None)
def test_the_top_of_the_ranking_and_never_everything(scores):
    remove = by_mixture(scores)
    assert remove.sum() <= 0.95 * len(scores)
    if remove.any():
        assert scores[remove].min() >= scores[~remove].max()


def test_at_most_gives_back_the_least_suspicious():
    scores = np.arange(100.0)
    kept = at_most(np.ones(100, bool), scores)
    np.testing.assert_array_equal(np.flatnonzero(~kept), np.arange(5))
    mask = scores > 50
    assert at_most(mask, scores) is mask


def test_otsu_is_the_best_split():
    x = np.random.default_rng(2).gamma(1.0, size=60)
    within = {t: np.var(x[x <= t]) * (x <= t).sum() + np.var(x[x > t]) * (x > t).sum() for t in np.sort(x)[:-1]}
    assert otsu(x) == min(within, key=within.get)
