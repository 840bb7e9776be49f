"""INCV: the noise-rate equation against brute force, the selection against cleanlab, the discard rule by hand."""

import numpy as np
import pytest

from baselines.noisy.incv import INCV
from sgoif.errors import UserError
from sgoif.training.seeds import numpy_generator
from tests.helpers.digit_tasks import noisy_task
from tests.parity.trainers import check_behaviour


@pytest.mark.parametrize("n_classes", [2, 10, 100])
@pytest.mark.parametrize("agreement", [1.0, 0.93, 0.66, 0.507])
def test_noise_rate_against_stepping_upwards(agreement, n_classes):
    rate = 0.001
    while (1 - rate) ** 2 + rate**2 / (n_classes - 1) > agreement:
        rate += 0.001
    assert INCV.noise_rate(agreement, n_classes) == pytest.approx(rate, abs=1e-9)


def test_noise_rate_undoes_its_equation():
    for rate in (0.1, 0.35, 0.7):
        assert INCV.noise_rate((1 - rate) ** 2 + rate**2 / 9, 10) == pytest.approx(rate, abs=0.0011)
    assert INCV.noise_rate(0.01, 10) == 0.9  # below chance: no solution, the least informative rate


def test_discard_rule():
    losses = np.array([0.1, 5.0, 0.2, 3.0, 4.0, 0.3])
    assert INCV.discard(losses, 3, 0.4).tolist() == [1, 4]  # ⌊0.4 / 0.6 · 3⌋ = 2
    assert INCV.discard(losses, 2, 0.9).tolist() == [1, 4, 3, 5]  # the ratio is at most 2
    assert INCV.discard(losses, 3, 0.1).tolist() == []  # ⌊0.33⌋: not the whole half


def test_noise_of_the_selected():
    assert INCV.noise_of_selected(0.5, 9) == pytest.approx(0.1)  # the paper's CIFAR-10 case: 50 % leaves 10 %
    assert INCV.noise_of_selected(0.5, 1) == pytest.approx(0.5)


def test_when_the_best_epoch_predicts():
    def which(rate, **params):
        return [INCV(**params).by_best_epoch(i, rate) for i in range(4)]

    assert which(0.2) == [True] * 4
    assert which(0.5) == [True, True, False, False]
    assert which(0.7) == which(0.2, pattern="asymmetric") == [True, False, False, False]


def test_one_iteration_selects_what_cleanlab_agrees_with(monkeypatch):
    """On the same held-out probabilities, the selection is the complement of cleanlab's `find_predicted_neq_given`."""
    from cleanlab.filter import find_predicted_neq_given

    task, _ = noisy_task(plain=False, n_train=300)
    fitted = np.zeros((300, 10))
    trained = []

    def held_out(self, task, train, held, best, phase):
        logits = numpy_generator(phase).normal(size=(len(held), 10)).astype(np.float32)
        logits[np.arange(len(held)), task.labels.numpy()[held]] += 1.5
        fitted[held] = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        trained.append((set(train.tolist()), set(held.tolist())))
        return logits

    monkeypatch.setattr(INCV, "_held_out", held_out)
    detection = INCV(iterations=1).detect(task)
    assert np.array_equal(detection.remove, find_predicted_neq_given(task.labels.numpy(), fitted))
    assert 0.2 < detection.remove.mean() < 0.8
    expected = -np.log(fitted[np.arange(300), task.labels.numpy()])
    assert np.allclose(detection.variants["oof_loss"], expected, atol=1e-4)
    assert trained[0] == trained[1][::-1]  # the halves change roles
    assert trained[0][0] | trained[0][1] == set(range(300))
    assert not trained[0][0] & trained[0][1]
    kept, left = detection.scores[~detection.remove], detection.scores[detection.remove]
    assert kept.max() < left.min()


def test_later_iterations_train_on_what_was_selected(monkeypatch):
    task, _ = noisy_task(plain=False, n_train=200)
    calls = []

    def held_out(self, task, train, held, best, phase):
        calls.append((set(train.tolist()), set(held.tolist())))
        logits = numpy_generator(phase).normal(size=(len(held), 10)).astype(np.float32)
        logits[np.arange(len(held)), task.labels.numpy()[held]] += 1.0
        return logits

    monkeypatch.setattr(INCV, "_held_out", held_out)
    detection = INCV(iterations=2, pattern="asymmetric").detect(task)
    first, second = calls[0][1] | calls[1][1], calls[2][1] | calls[3][1]
    selected_first = first - second  # asymmetric: nothing is discarded, so what left the candidates was selected
    assert selected_first
    assert selected_first <= calls[2][0] and selected_first <= calls[3][0]
    assert not detection.remove[sorted(selected_first)].any()
    assert detection.extras["discarded"] == 0.0


def test_bad_pattern_is_named():
    with pytest.raises(UserError, match=r"params\.incv\.pattern"):
        INCV(pattern="sym")


def test_on_digits():
    detection = check_behaviour(INCV())
    assert 0.25 < detection.extras["noise_rate"] < 0.5
    assert 0.4 < detection.extras["selected"] < 0.75
