"""Classes and noise matrix by heads that have not seen the example."""

import numpy as np
import pytest
import torch

from sgoif.errors import InfluenceError
from sgoif.label_noise import held_out_classes
from sgoif.label_noise.held_out_classes import FOLDS, PENALTIES, draw_folds, fit_held_out_classes, log_odds_of

NOISE = torch.tensor([[0.7, 0.3, 0.0], [0.0, 1.0, 0.0], [0.1, 0.1, 0.8]])


def draw(noise, n=600, distance=3.0, seed=0):
    """Three classes of points, and labels drawn by a noise matrix."""
    rng = np.random.default_rng(seed)
    true = np.arange(n) % 3
    features = rng.normal(size=(n, 8)) + distance * np.eye(3, 8)[true]
    labels = np.array([rng.choice(3, p=noise[c].numpy() / float(noise[c].sum())) for c in true])
    return torch.from_numpy(features).float(), torch.from_numpy(labels), labels != true


def fit(features, labels, fold=None):
    fold = torch.from_numpy(draw_folds(labels.numpy(), 0)) if fold is None else fold
    classes = fit_held_out_classes(features, labels, fold, 3)
    return classes, classes.posterior(classes.logits(features, fold), labels)


@pytest.fixture(scope="module")
def noisy():
    features, labels, wrong = draw(NOISE)
    return (*fit(features, labels), labels, wrong)


def test_the_noise_matrix_and_the_number_of_wrong_labels_are_found(noisy):
    classes, posterior, labels, wrong = noisy
    assert torch.allclose(classes.transition.float(), NOISE, atol=0.08)
    assert torch.allclose(posterior.sum(1), torch.ones(len(labels), dtype=torch.float64))
    probability = log_odds_of(posterior, labels).sigmoid().numpy()
    assert abs(probability.sum() - wrong.sum()) < 0.15 * wrong.sum()
    assert wrong[probability > 0.5].mean() > 0.85
    assert wrong[probability < 0.1].mean() < 0.05


def test_clean_labels_stay_unsuspected_where_classes_overlap():
    features, labels, _ = draw(torch.eye(3), distance=1.5)
    _, posterior = fit(features, labels)
    assert (posterior.argmax(1) == labels).double().mean() > 0.97
    assert float(log_odds_of(posterior, labels).sigmoid().mean()) < 0.03


def test_a_head_does_not_see_the_labels_of_its_own_fold():
    """Labels of one fold are changed: only the noise matrix, which all share, may tell."""
    features, labels, _ = draw(NOISE)
    fold = torch.from_numpy(draw_folds(labels.numpy(), 0))
    changed = torch.where(fold == 0, (labels + 1) % 3, labels)
    before, after = (fit_held_out_classes(features, given, fold, 3) for given in (labels, changed))
    moved = [(before.weight - after.weight).view(8, FOLDS, 3)[:, k].norm() for k in range(FOLDS)]
    assert moved[0] < 0.75 * min(moved[1:])


def test_folds_hold_every_label_alike():
    labels = np.repeat([0, 1, 2], [50, 25, 10])
    fold = draw_folds(labels, 3)
    for label, size in ((0, 10), (1, 5), (2, 2)):
        assert np.bincount(fold[labels == label], minlength=FOLDS).tolist() == [size] * FOLDS
    assert not np.array_equal(fold, draw_folds(labels, 4))


def test_log_odds_follow_the_posterior():
    posterior = torch.tensor([[0.9, 0.1], [0.2, 0.8], [1.0, 0.0]], dtype=torch.float64)
    found = log_odds_of(posterior, torch.tensor([0, 0, 0])).sigmoid()
    assert torch.allclose(found, torch.tensor([0.1, 0.8, 0.0], dtype=torch.float64), atol=1e-3)


def test_what_does_not_fit_is_refused():
    features, labels, _ = draw(NOISE, n=30)
    with pytest.raises(InfluenceError, match=r"expected \[n, d\]"):
        fit(features[:-1], labels)
    with pytest.raises(InfluenceError, match="one fold"):
        fit(features, labels, torch.zeros(30, dtype=torch.long))


def test_many_classes_in_few_features_get_a_smaller_penalty():
    rng = np.random.default_rng(0)
    true = np.repeat(np.arange(40), 12)
    features = torch.from_numpy(1.5 * rng.normal(size=(40, 16))[true] + rng.normal(size=(len(true), 16))).float()
    labels = np.where(rng.random(len(true)) < 0.2, rng.integers(0, 40, len(true)), true)
    fold = torch.from_numpy(draw_folds(labels, 0))
    given, wrong = torch.from_numpy(labels), torch.from_numpy(labels != true)
    classes = fit_held_out_classes(features, given, fold, 40)
    assert classes.penalty < min(PENALTIES)
    odds, count = log_odds_of(classes.posterior(classes.logits(features, fold), given), given), int(wrong.sum())
    assert float(wrong[odds.argsort(descending=True)[:count]].float().mean()) > 0.9
    assert abs(float(odds.sigmoid().sum()) - count) < 0.2 * count


@pytest.mark.parametrize(("most", "expected"), [(10**9, 1), (0, 2)], ids=["small", "large"])
def test_one_thread_computes_a_small_fit_and_the_others_come_back(monkeypatch, most, expected):
    features, labels, _ = draw(NOISE, n=60)
    used, before = [], torch.get_num_threads()
    fit_heads = held_out_classes._Fit._fit_heads
    monkeypatch.setattr(held_out_classes, "ONE_THREAD", most)
    monkeypatch.setattr(
        held_out_classes._Fit,
        "_fit_heads",
        lambda self, steps: used.append(torch.get_num_threads()) or fit_heads(self, steps),
    )
    torch.set_num_threads(2)
    try:
        fit(features, labels)
        assert set(used) == {expected}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_the_slope_of_the_heads_is_that_of_their_objective(monkeypatch):
    features, labels, _ = draw(NOISE, n=60)
    fold, slopes = torch.from_numpy(draw_folds(labels.numpy(), 0)), []

    class OneStep:
        def __init__(self, parameters, **_):
            self.parameters = parameters

        def step(self, closure):
            slopes.append((closure(), *(p.grad for p in self.parameters)))

    part = held_out_classes._Fit.start(features, labels, fold, 3, penalty=0.03)
    generator = torch.Generator().manual_seed(0)
    part.weight, part.bias = torch.randn(15, 8, generator=generator), torch.randn(15, generator=generator)
    monkeypatch.setattr(torch.optim, "LBFGS", OneStep)
    part._fit_heads(steps=1)

    weight, bias = (value.clone().requires_grad_() for value in part.heads())
    predicted = (features @ weight + bias).view(60, FOLDS, 3).softmax(2)
    of_label = (predicted * part.transition.T[labels].float().unsqueeze(1)).sum(2).log()
    seen = fold.unsqueeze(1) != torch.arange(FOLDS)
    objective = 0.03 * weight.square().sum() - (of_label * seen / seen.sum(0)).sum()
    objective.backward()
    ((found, of_weight, of_bias),) = slopes
    torch.testing.assert_close(found, objective.detach())
    part.weight, part.bias = of_weight, of_bias
    for slope, expected in zip(part.heads(), (weight.grad, bias.grad), strict=True):
        torch.testing.assert_close(slope, expected)
