"""DivideMix: division, targets and loss against the formulas of the paper and of its program, and on digits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from baselines.noisy import dividemix
from baselines.noisy.dividemix import DivideMix, clean_probability, divided, other_view, semi_loss, sharpen
from sgoif.bench.methods.robust.peer_networks import Peers
from sgoif.bench.methods.tasks import NoiseFacts
from tests.helpers.digit_tasks import RECIPE, noisy_task
from tests.parity.trainers import check_behaviour


def test_the_smaller_component_is_clean_whatever_the_scale():
    rng = np.random.default_rng(0)
    losses = np.concatenate([rng.normal(0.2, 0.1, 300), rng.normal(3.0, 0.4, 100)])
    w = clean_probability(losses, seed=1)
    assert (w[:300] > 0.5).mean() > 0.98 and (w[300:] < 0.5).mean() > 0.98
    np.testing.assert_allclose(clean_probability(7 + 5 * losses, seed=1), w, atol=1e-6)


def test_sharpening_squares_at_half_temperature():
    p = torch.tensor([[0.6, 0.3, 0.1]])
    torch.testing.assert_close(sharpen(p, 0.5), torch.tensor([[0.36, 0.09, 0.01]]) / 0.46)
    torch.testing.assert_close(sharpen(p, 1.0), p)


def test_loss_by_hand():
    """p = (3/4, 1/4) labelled (1, 0), p = (1/2, 1/2) unlabelled with target (3/4, 1/4); K = 2."""
    logits = torch.tensor([[3.0, 1.0], [1.0, 1.0]]).log()
    targets = torch.tensor([[1.0, 0.0], [0.75, 0.25]])
    mean = np.array([5 / 8, 3 / 8])
    expected = -np.log(0.75) + 25 * 0.0625 + (0.5 * np.log(0.5 / mean)).sum()
    assert semi_loss(logits, targets, 1, torch.tensor(25.0)).item() == pytest.approx(expected, rel=1e-5)


def test_targets_of_labelled_and_unlabelled_images(monkeypatch):
    """Labels are refined by the own network, guesses are the mean of both; both are sharpened."""
    task, _ = noisy_task(plain=False, n_train=64)
    peers = Peers(task, task.batches())
    said = {id(peers.first): 0.2, id(peers.second): 0.6}

    def probabilities(learner, x, training):
        assert training == (learner is peers.first), "the other network is in eval mode"
        p = torch.full((len(x), 10), (1 - said[id(learner)]) / 9)
        p[:, 3] = said[id(learner)]
        return p

    monkeypatch.setattr(dividemix, "probabilities", probabilities)
    batch = next(iter(task.batches(batch_size=4).epoch(0)))
    targets = DivideMix()._targets(peers.first, peers.second, 4 * [batch], torch.tensor([1.0, 1.0, 0.5, 0.0]))
    assert targets.shape == (16, 10) and torch.equal(targets[:4], targets[4:8])
    labels = F.one_hot(batch.labels, 10).float()
    torch.testing.assert_close(targets[:2], labels[:2])
    own = probabilities(peers.first, batch.x, True)
    torch.testing.assert_close(targets[2:3], sharpen(0.5 * labels[2:3] + 0.5 * own[:1], 0.5))
    torch.testing.assert_close(targets[3:4], sharpen(own[:1], 0.5))
    guess = (own + probabilities(peers.second, batch.x, False)) / 2
    torch.testing.assert_close(targets[8:12], sharpen(guess, 0.5))


def test_a_second_view_is_of_the_same_images():
    task, _ = noisy_task(plain=False, n_train=256)
    batch = next(iter(task.batches().epoch(0)))
    other = other_view(batch, np.random.default_rng(0))
    assert torch.equal(other.index, batch.index) and not torch.equal(other.shift, batch.shift)
    assert other.shift.min() == 0 and other.shift.max() == 2 and not torch.equal(other.x, batch.x)


def test_a_division_without_two_sides_is_none():
    assert not divided(None, 0.5) and not divided(torch.ones(9), 0.5) and not divided(torch.zeros(9), 0.5)
    assert divided(torch.tensor([0.9, 0.8, 0.1, 0.2]), 0.5)


def test_networks_exchange_their_divisions(monkeypatch):
    """The first network trains on what the second one's losses say, and the other way round."""
    task, _ = noisy_task(plain=False, n_train=128, recipe=replace(RECIPE, epochs=4))
    task.noise = NoiseFacts(0.2, "symmetric")
    split = iter(torch.tensor([0.9, 0.1]).repeat_interleave(64).numpy() for _ in range(8))
    marks = [np.roll(next(split), i) for i in range(8)]
    handed, given = iter(marks), []
    monkeypatch.setattr(dividemix, "clean_probability", lambda losses, seed: next(handed))
    mixmatch = DivideMix._mixmatch
    monkeypatch.setattr(DivideMix, "_mixmatch", lambda self, *a: given.append((a[2], a[4], a[6])) or mixmatch(self, *a))
    DivideMix(warmup=0.5, weight=25.0).detect(task)
    assert [number for number, _, _ in given] == [0, 1, 0, 1]
    np.testing.assert_allclose(given[0][1], marks[3], rtol=1e-6)  # of the second network, after epoch 1
    np.testing.assert_allclose(given[1][1], marks[2], rtol=1e-6)
    assert [weight for *_, weight in given] == [0.0, 0.0, 25.0, 25.0]  # the ramp: 16 of 300 epochs


@pytest.mark.parametrize(
    ("n_classes", "rate", "pattern", "weight"),
    [
        (10, 0.2, "symmetric", 0.0),
        (10, 0.5, "symmetric", 25.0),
        (10, 0.7, "symmetric", 25.0),
        (10, 0.4, "asymmetric", 0.0),
        (100, 0.2, "symmetric", 25.0),
        (100, 0.5, "symmetric", 150.0),
        (100, 0.4, "asymmetric", 150.0),
    ],
)
def test_the_weight_of_the_unlabelled_is_the_published_one(n_classes, rate, pattern, weight):
    assert dividemix.published_weight(n_classes, NoiseFacts(rate, pattern)) == weight


def test_the_published_weight_is_used_unless_another_is_given(monkeypatch):
    task, _ = noisy_task(plain=False, n_train=128, recipe=replace(RECIPE, epochs=2))
    task.noise = NoiseFacts(0.5, "symmetric")
    division = torch.tensor([0.9, 0.1]).repeat_interleave(64).numpy()
    monkeypatch.setattr(dividemix, "clean_probability", lambda losses, seed: division)
    monkeypatch.setattr(DivideMix, "_mixmatch", lambda self, *a: None)
    assert DivideMix(warmup=0.5).detect(task).extras["weight"] == 25.0
    assert DivideMix(warmup=0.5, weight=3.0).detect(task).extras["weight"] == 3.0


def test_a_step_mixes_half_a_batch_of_each_side_in_two_views_each(monkeypatch):
    """64 labelled and 64 unlabelled images, batches of 32: 2 x (16 + 16) images a step, as many steps as an epoch."""
    task, _ = noisy_task(plain=False, n_train=128, recipe=replace(RECIPE, batch_size=32))
    peers, sizes = Peers(task, task.batches()), []
    monkeypatch.setattr(DivideMix, "_targets", lambda self, own, other, views, clean: torch.zeros(64, 10))
    clean = torch.tensor([0.9, 0.1]).repeat_interleave(64)
    DivideMix()._mixmatch(task, peers, 0, lambda x: sizes.append(len(x.extra[0])), clean, 1, 1.0)
    assert sizes == [64] * task.batches().steps


@pytest.mark.slow
def test_on_digits():
    detection = check_behaviour(DivideMix(pattern="symmetric", weight=25.0))
    assert 0.3 < detection.remove.mean() < 0.5
