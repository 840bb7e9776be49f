"""Confident Learning against cleanlab 2.9: thresholds, joint, masks of all five rules, rankings."""

import warnings

import numpy as np
import pytest
from cleanlab.count import compute_confident_joint, get_confident_thresholds
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.noisy import confident_learning as cl
from sgoif.bench.evaluation.metrics import detection
from sgoif.bench.methods.confident_joint import round_rows
from sgoif.errors import UserError
from tests.helpers.digit_tasks import noisy_task

FILTERS = {
    "argmax": "predicted_neq_given",
    "confident": "confident_learning",
    "prune_by_class": "prune_by_class",
    "prune_by_noise_rate": "prune_by_noise_rate",
    "both": "both",
}


def made_up(seed: int, n: int = 300, k: int = 5, sharpness: float = 1.0, noise: float = 0.3):
    """Probabilities of a network that is right more often than not, and labels of which `noise` are wrong."""
    rng = np.random.default_rng(seed)
    true = rng.integers(k, size=n)
    p = rng.dirichlet(np.full(k, 0.5), size=n) + sharpness * rng.random((n, 1)) * np.eye(k)[true]
    labels = np.where(rng.random(n) < noise, rng.integers(k, size=n), true)
    return p / p.sum(axis=1, keepdims=True), labels


def agree(p, labels):
    """Every quantity of the method equals cleanlab's."""
    np.testing.assert_allclose(cl.thresholds(p, labels), get_confident_thresholds(labels, p), rtol=1e-12)
    raw = compute_confident_joint(labels, p, calibrate=False)
    np.testing.assert_array_equal(cl.confident_joint(p, labels), raw)
    joint, ours = compute_confident_joint(labels, p), cl.calibrate(raw, labels)
    exact = raw / raw.sum(axis=1, keepdims=True) * np.bincount(labels, minlength=len(raw))[:, None]
    tied = np.isclose(np.diff(np.sort(exact % 1, axis=1), axis=1), 0, atol=1e-9).any(axis=1)
    np.testing.assert_array_equal(ours[~tied], joint[~tied])
    # of two equal remainders either may be rounded up: then both results must be equally close to the exact counts
    np.testing.assert_array_equal(ours.sum(axis=1), joint.sum(axis=1))
    np.testing.assert_allclose(np.sort(np.abs(ours - exact)), np.sort(np.abs(joint - exact)), atol=1e-9)
    for rule, mask in cl.prune_masks(p, labels, joint).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # cleanlab says which classes are too small to prune
            theirs = find_label_issues(labels, p, filter_by=FILTERS[rule], n_jobs=1)
        np.testing.assert_array_equal(mask, theirs, err_msg=rule)


def same_ranking(suspicion, quality):
    """Higher suspicion wherever quality is lower (both may round differently in the last digits)."""
    order = np.argsort(quality)
    assert np.all(np.diff(suspicion[order]) <= 1e-12 * (1 + np.abs(suspicion).max()))


@pytest.fixture(scope="module")
def digits_oof():
    task, wrong = noisy_task(n_train=600, plain=False, folds=True)
    return task, wrong


@pytest.mark.parametrize("seed,k,noise", [(0, 5, 0.3), (1, 2, 0.2), (2, 10, 0.6), (3, 3, 0.0)])
def test_made_up_probabilities(seed, k, noise):
    agree(*made_up(seed, k=k, noise=noise))


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(20, 200),
    k=st.integers(2, 7),
    sharpness=st.floats(0, 5),
    noise=st.floats(0, 0.9),
)
@settings(max_examples=60, deadline=None)
def test_any_probabilities(seed, n, k, sharpness, noise):
    p, labels = made_up(seed, n, k, sharpness, noise)
    labels[:k] = np.arange(k)  # cleanlab's filters want every class to occur
    agree(p, labels)


def test_a_class_called_all_wrong_keeps_an_example():
    p, labels = made_up(7, n=60, k=3)
    n = np.bincount(labels)
    joint = np.diag(n)
    joint[0] = [0, n[0] - 2, 2]
    masks = cl.prune_masks(p, labels, joint)
    for rule in ("prune_by_class", "prune_by_noise_rate", "both"):
        theirs = find_label_issues(labels, p, confident_joint=joint, filter_by=rule, n_jobs=1)
        np.testing.assert_array_equal(masks[rule], theirs)
    assert 0 < masks["prune_by_class"].sum() < n[0]


def test_digits_probabilities(digits_oof):
    task, _ = digits_oof
    agree(cl.out_of_fold(task), task.labels.numpy())


def test_a_class_without_examples_is_out_of_reach():
    p, labels = made_up(4)
    labels[labels == 3] = 0
    assert cl.thresholds(p, labels)[3] == 2.0
    assert cl.calibrate(cl.confident_joint(p, labels), labels)[3].sum() == 0


def test_a_threshold_is_never_nothing():
    """A class whose examples all have probability 0 of it: cleanlab's lower bound, 2e-6."""
    p, labels = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]), np.array([0, 1, 1])
    assert cl.thresholds(p, labels).tolist() == [1.0, 2e-6]
    assert cl.confident_guess(p, labels).tolist() == [0, 0, 0]


def test_rounding_keeps_row_sums_and_moves_nothing_by_one():
    x = np.random.default_rng(0).dirichlet(np.ones(7), size=50) * np.arange(50)[:, None]
    whole = round_rows(x)
    np.testing.assert_array_equal(whole.sum(axis=1), np.arange(50))
    assert np.abs(whole - x).max() < 1


@pytest.mark.parametrize("source", ["made up", "digits"])
def test_rankings(source, digits_oof):
    p, labels = made_up(5) if source == "made up" else (cl.out_of_fold(digits_oof[0]), digits_oof[0].labels.numpy())
    for method, ours in [
        ("self_confidence", lambda p: 1 - cl.self_confidence(p, labels)),
        ("normalized_margin", lambda p: cl.margin(p, labels)),
        ("confidence_weighted_entropy", lambda p: cl.weighted_entropy(p, labels)),
    ]:
        same_ranking(ours(p), get_label_quality_scores(labels, p, method=method))
        if method != "confidence_weighted_entropy":  # cleanlab does not adjust this one
            quality = get_label_quality_scores(labels, p, method=method, adjust_pred_probs=True)
            same_ranking(ours(cl.adjusted(p, labels)), quality)
            scale = 1 if method == "self_confidence" else 2
            np.testing.assert_allclose(ours(cl.adjusted(p, labels)), 1 - scale * quality, atol=1e-12)


def test_a_transposed_joint_would_be_noticed():
    p, labels = made_up(6, noise=0.5)
    joint = compute_confident_joint(labels, p, calibrate=False)
    assert (joint != joint.T).any()
    assert (cl.confident_joint(p, labels) != joint.T).any()


def test_detects_wrong_digits(digits_oof):
    task, wrong = digits_oof
    found = cl.ConfidentLearning().detect(task)
    assert detection(found.scores, wrong)["auroc"] > 0.95
    for scores in found.variants.values():
        assert detection(scores, wrong)["auroc"] > 0.9
    assert wrong[found.remove].mean() > 0.7 and found.remove[wrong].mean() > 0.7
    assert abs(found.extras["noise_rate"] - wrong.mean()) < 0.1
    assert found.extras["pruned_both"] <= min(found.extras["pruned_prune_by_class"], found.remove.sum())
    other = cl.ConfidentLearning(prune="both").detect(task)
    assert other.remove.sum() == found.extras["pruned_both"]


def test_class_weights_are_cleanlabs(digits_oof):
    """1 / P(given k | true k), by which `CleanLearning` weighs the examples it keeps, from the same joint."""
    from cleanlab.count import estimate_py_and_noise_matrices_from_probabilities

    task, _ = digits_oof
    p, labels = cl.out_of_fold(task), task.labels.numpy()
    _, noise_matrix, *_ = estimate_py_and_noise_matrices_from_probabilities(labels, p)
    found = cl.ConfidentLearning().detect(task).class_weights
    np.testing.assert_allclose(found, 1 / np.diag(noise_matrix), rtol=0.05)  # theirs is not rounded to whole examples
    joint = np.array([[8, 3], [2, 6]])
    np.testing.assert_allclose(cl.class_weights(joint), [10 / 8, 9 / 6])


def test_reads_the_shared_folds_instead_of_training(digits_oof):
    task, _ = digits_oof
    task.folds, kept = np.full_like(task.folds, 0.1), task.folds
    try:
        assert np.ptp(cl.ConfidentLearning().detect(task).scores) < 1e-12
    finally:
        task.folds = kept


def test_bad_rule_is_refused():
    with pytest.raises(UserError, match=r"params\.confident_learning\.prune"):
        cl.ConfidentLearning(prune="PBC")
