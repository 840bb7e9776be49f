"""INCV: the noise-rate equation against brute force, the selection against cleanlab, the discard rule by hand."""

import contextlib
import functools
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters

from baselines.noisy.incv import INCV, _Best, _epochs, _forever, scored_epochs
from sgoif.bench.methods.tasks import NoiseFacts
from sgoif.errors import UserError
from sgoif.training.learner import Learner
from sgoif.training.seeds import numpy_generator
from tests.helpers.digit_tasks import RECIPE, noisy_task
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
    detection = INCV(iterations=1, pattern="symmetric", score="selection").detect(task)
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


class Watched:
    """Stands for the two networks of stage 2 and writes down what each step is given."""

    def __init__(self, task, batches, epochs=None, **changes):
        self.epochs, self.steps = epochs, []

    def stepper(self, forward):
        return lambda batch: self.steps.append((len(batch.labels), len(batch.extra[0])))

    def state_dict(self):
        return {}


@pytest.mark.parametrize(
    ("n_selected", "n_rest", "rate", "pattern", "joining"),
    [
        (100, 10, 0.5, "symmetric", 6),  # ⌊10 / 100 of a batch of 64⌋
        (100, 80, 0.5, "symmetric", 32),  # at most half a batch
        (100, 80, 0.5, "asymmetric", 32),
        (128, 80, 0.7, "symmetric", 32),
        (100, 0, 0.5, "symmetric", 0),
    ],
)
def test_second_stage_by_the_formula(monkeypatch, n_selected, n_rest, rate, pattern, joining):
    """n = round(B (1 - ε_S min(1, e / T_k))) of every minibatch; the rest joins late."""
    monkeypatch.setattr("baselines.noisy.incv.Peers", Watched)
    task, _ = noisy_task(plain=False, n_train=200, recipe=replace(RECIPE, epochs=10, batch_size=64))
    place = np.arange(200)
    method = INCV(pattern=pattern, ramp=0.5)
    rest = (place >= n_selected) & (place < n_selected + n_rest)
    peers = method._second_stage(task, place < n_selected, rest, rate)
    steps = task.batches(np.arange(n_selected)).steps
    epochs = round(10 * task.batches().steps / steps)  # as many steps as the recipe's, whatever is selected
    assert peers.epochs == epochs and len(peers.steps) == epochs * steps
    noise = method.noise_of_selected(rate, 1 if pattern == "asymmetric" else 9)
    warm = (0.4 if pattern == "asymmetric" or rate > 0.6 else 0.2) * epochs
    for epoch in range(epochs):
        expected = 64 + joining * (epoch > warm), round(64 * (1 - noise * min(1, epoch / (0.5 * epochs))))
        assert set(peers.steps[epoch * steps : (epoch + 1) * steps]) == {expected}, epoch


def second_stage(epochs: int = 4):
    """Both networks after stage 2: every epoch keeps another number of examples, and candidates join."""
    recipe = replace(RECIPE, model="tiny_cnn", epochs=epochs, batch_size=64, lr=0.02)
    task, _ = noisy_task(plain=False, n_train=256, recipe=recipe)
    place = np.arange(256)
    return INCV(pattern="symmetric", ramp=1.0)._second_stage(task, place < 192, place >= 192, 0.6)


BACKENDS = [
    "aot_eager_decomp_partition",  # traces and derives as on a GPU, but writes no kernels
    pytest.param("inductor", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_compiled_second_stage_is_the_eager_one(backend, monkeypatch):
    """One compilation serves every number of chosen examples; losses, batch norms and weights stay what they were."""
    monkeypatch.setattr(Learner, "forward_context", lambda self: contextlib.nullcontext())
    eager, sizes = second_stage(), set()
    torch._dynamo.reset()
    graphs = counters["stats"]["unique_graphs"]
    compiled = functools.partial(torch.compile, backend=backend)

    def watched(backbone, **options):
        function = compiled(backbone, **options)

        def call(x):
            sizes.add(len(x))
            return function(x)

        return call

    monkeypatch.setattr(torch, "compile", watched)
    monkeypatch.setattr("sgoif.training.learner.uses_compile", lambda recipe, device: True)
    peers = second_stage()
    assert len(sizes) >= 4 and counters["stats"]["unique_graphs"] == graphs + 1
    for ours, theirs in ((peers.first, eager.first), (peers.second, eager.second)):
        assert ours.steps_done == theirs.steps_done
        torch.testing.assert_close(ours.net.state_dict(), theirs.net.state_dict(), rtol=1e-3, atol=1e-4)


def test_a_fit_has_its_share_of_the_steps_or_the_least_of_them():
    task, _ = noisy_task(plain=False, n_train=1024)  # 8 epochs of 8 steps
    whole, half = task.batches(), task.batches(np.arange(512))
    assert _epochs(task, whole) == 8 and _epochs(task, half) == 16
    assert _epochs(task, half, 0.5) == 8 and _epochs(task, half, 0.25, 40) == 10
    assert _epochs(task, half, 0.25, 1000) == 16  # never longer than the recipe
    assert _epochs(task, whole, 1e-9) == 1


@pytest.mark.parametrize(("best", "looked", "kept"), [(True, [0, 1, 2, 3], 2), (False, [3], 3)])
def test_held_out_examples_are_predicted_by_the_best_or_the_last_epoch(best, looked, kept, monkeypatch):
    """Two of four held-out examples are predicted as labelled in epoch 1, three in epoch 2, none later."""
    task, _ = noisy_task(plain=False, n_train=68, recipe=replace(RECIPE, epochs=8, batch_size=16))
    held, right = np.arange(4), [0, 2, 3, 0]
    epochs, session_epochs, seen = [], task.session.epochs, []

    def counted(n, *stateful, **options):
        for epoch in session_epochs(n, *stateful, **options):
            epochs.append(epoch)
            yield epoch

    def predicted(net, indices):
        seen.append(epochs[-1])
        y = task.labels[indices]
        answers = torch.where(torch.arange(4) < right[epochs[-1]], y, (y + 1) % 10)
        return torch.nn.functional.one_hot(answers, 10).float() + epochs[-1], None

    monkeypatch.setattr(task.session, "epochs", counted)
    monkeypatch.setattr(type(task), "predict", lambda self, net, indices=None: predicted(net, indices))
    method = INCV(fit=0.5, least_steps=1)
    logits = method._held_out(task, np.arange(4, 68), held, best, "phase")
    assert epochs == [0, 1, 2, 3] and seen == looked and logits.min() == kept


def test_the_best_epoch_is_the_first_of_equals():
    best = _Best()
    for number, accuracy in enumerate((0.0, 0.4, 0.4, 0.3)):
        best.offer(accuracy, torch.tensor([number]))
    assert (best.accuracy, best.logits.item()) == (0.4, 1)
    copy = _Best()
    copy.load_state_dict(best.state_dict())
    assert (copy.accuracy, copy.logits.item()) == (0.4, 1)


def test_batches_without_end_repeat_none_and_follow_the_epoch():
    task, _ = noisy_task(plain=False, n_train=128)
    batches = task.batches(np.arange(128), batch_size=64)

    def first(epoch, count=6):
        return torch.stack([batch.index for batch in islice(_forever(batches, epoch), count)])

    assert torch.equal(first(3), first(3)) and not torch.equal(first(3), first(4))
    assert (first(3).view(3, 128).sort(1).values == torch.arange(128)).all()  # every lap shows every image once
    assert not torch.equal(first(3)[:2], first(3)[2:4])


def test_the_last_half_is_scored_up_to_the_last_epoch():
    assert scored_epochs(16) == {9, 11, 13, 15} and scored_epochs(80) == {49, 59, 69, 79}
    assert scored_epochs(1) == {0}


def test_bad_pattern_is_named():
    with pytest.raises(UserError, match=r"params\.incv\.pattern"):
        INCV(pattern="sym")


def test_the_pattern_is_what_is_told(monkeypatch):
    """The released program is told; without discarding, nothing leaves the candidates but by selection."""
    monkeypatch.setattr(
        INCV,
        "_held_out",
        lambda self, task, train, held, best, phase: np.eye(10, dtype=np.float32)[
            numpy_generator(phase).integers(0, 10, len(held))
        ],
    )
    found = {}
    for pattern in ("symmetric", "asymmetric"):
        task, _ = noisy_task(plain=False, n_train=200, recipe=replace(RECIPE, epochs=2))
        task.noise = NoiseFacts(0.3, pattern)
        found[pattern] = INCV(iterations=1).detect(task).extras["discarded"]
    assert found["asymmetric"] == 0.0 < found["symmetric"]
    task.noise = None
    with pytest.raises(UserError, match="incv asks for the noise rate"):
        INCV().detect(task)


@pytest.mark.slow
def test_on_digits():
    detection = check_behaviour(INCV(pattern="symmetric"))
    assert 0.25 < detection.extras["noise_rate"] < 0.5
    assert 0.4 < detection.extras["selected"] < 0.75
