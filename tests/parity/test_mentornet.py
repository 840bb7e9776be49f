"""MentorNet: the predefined curriculum and the moving percentile by hand; the learned mentor on a planted table."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from baselines.noisy.mentornet import Mentor, MentorModel, MentorNet
from sgoif.bench.methods.tasks import NoiseFacts
from sgoif.errors import UserError
from tests.helpers.digit_tasks import RECIPE, noisy_task
from tests.parity.trainers import check_behaviour


@pytest.mark.parametrize(
    ("percent", "expected"),
    [
        (0, [1, 1, 1, 1, 1]),
        (18, [1, 1, 1, 1, 1]),
        (19, [1, 1, 0, 0, 0]),
        (89, [1, 1, 0, 0, 0]),
        (90, [1, 1, 0.75, 0.5, 0]),
        (99, [1, 1, 0.75, 0.5, 0]),
    ],
)
def test_predefined_curriculum(percent, expected):
    difference = torch.tensor([-2.0, 0.0, 0.25, 0.5, 3.0])
    assert MentorNet.predefined(difference, percent).tolist() == expected


def test_gamma_stretches_the_late_weights():
    assert MentorNet.predefined(torch.tensor([0.5]), 95, gamma=2.0).item() == 0.75


def test_moving_percentile():
    """Losses 0 … 10: the 70th percentile is 7. Then, from the average 3.5, all 1s: (3.5 + 1) / 2."""
    mentor = Mentor(MentorNet.Params(), seed=0, device="cpu")
    mentor.weigh(torch.arange(11.0), 0, learning=True)
    assert mentor.average.item() == pytest.approx(3.5)
    mentor.weigh(torch.ones(4), 0, learning=True)
    assert mentor.average.item() == pytest.approx(2.25)
    weights = mentor.weigh(torch.tensor([2.0, 2.5]), 50)  # the scoring pass does not move it
    assert mentor.average.item() == pytest.approx(2.25)
    assert weights.tolist() == [1, 0]


def test_percentile_is_the_nearest_quantile():
    g = torch.Generator().manual_seed(0)
    for n in (1, 2, 3, 5, 6, 16, 100, 101, 128, 511, 512, 1000):
        losses = torch.rand(n, generator=g)
        for percentile in (0.05, 0.25, 0.5, 0.7, 0.75, 0.9):
            found = MentorNet.moving_percentile(torch.zeros(()), losses, percentile, 0.0)
            assert torch.equal(found, losses.quantile(percentile, interpolation="nearest")), (n, percentile)


def test_the_mentor_reads_the_last_cell_state_of_its_lstm():
    """As released: the first state of TensorFlow's `BasicLSTMCell` is the cell's, not the output."""
    model, seen = MentorModel(0), []
    model.hidden.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    losses, difference = torch.tensor([0.1, 2.0]), torch.tensor([-0.5, 1.5])
    model(losses, difference, torch.tensor([0.0, 50.0]))
    _, (output, cell) = model.lstm(torch.stack([losses, difference], 1)[:, None])
    assert torch.equal(seen[0][:, :2], torch.cat([*cell], 1)) and not torch.allclose(cell, output)


def test_example_dropout():
    torch.manual_seed(0)
    for percent, dropped in ((0, 50), (16, 50), (17, 5), (99, 5)):
        first, second = MentorNet.dropped(100, percent), MentorNet.dropped(100, percent)
        assert first.sum() == second.sum() == dropped
        assert not torch.equal(first, second)


def planted(n: int, seed: int) -> torch.Tensor:
    """Right labels have losses around 0.5, wrong ones around 3."""
    g = torch.Generator().manual_seed(seed)
    right = (torch.rand(n, generator=g) < 0.6).float()
    loss = torch.where(right > 0, 0.5, 3.0) + 0.4 * torch.randn(n, generator=g)
    return torch.stack([loss, loss - 1.5, torch.full((n,), 20.0), right], 1)


def test_learned_mentor_separates_a_planted_case():
    model = MentorModel(0)
    model.learn(planted(400, 1), steps=200, seed=0)
    loss, difference, percent, right = planted(200, 2).unbind(1)
    with torch.no_grad():
        weight = model(loss, difference, percent).sigmoid()
    assert ((weight > 0.5) == (right > 0)).float().mean() > 0.97
    assert weight[right > 0].mean() > 0.9
    assert weight[right == 0].mean() < 0.1


@pytest.mark.parametrize(("rows", "size"), [(400, 32), (20, 20)])
def test_a_mentor_learns_in_batches_of_32_at_most(rows, size, monkeypatch):
    sizes, plain = [], torch.nn.functional.binary_cross_entropy_with_logits

    def watched(logits, right):
        sizes.append(len(right))
        return plain(logits, right)

    monkeypatch.setattr(torch.nn.functional, "binary_cross_entropy_with_logits", watched)
    MentorModel(0).learn(planted(rows, 1), steps=3, seed=0)
    assert sizes == [size] * 3


def test_mentor_resumes():
    """What is saved is all there is: a mentor loaded from it weighs the same."""
    params = MentorNet.Params(mentor="data_driven", mentor_steps=20)
    mentor, copy = (Mentor(params, seed=0, device="cpu") for _ in range(2))
    losses = torch.arange(8.0)
    assert mentor.weigh(losses, 10, learning=True).tolist() == [1] * 8  # burn-in
    mentor.watch(torch.arange(-4, 4), losses, 10, torch.tensor([True, False, False, True]))
    assert mentor.table[:, 0].tolist() == [4, 5, 6, 7]
    assert mentor.table[:, 3].tolist() == [1, 0, 0, 1]
    mentor.learn_if_due(20)
    assert mentor.learned_at == -1
    mentor.learn_if_due(21)
    assert (mentor.learned_at, mentor.clock.item(), len(mentor.table)) == (21, 10, 0)
    copy.load_state_dict(mentor.state_dict())
    assert torch.equal(copy.weigh(losses, 50), mentor.weigh(losses, 50))


def test_a_mentor_is_learned_again_late_and_its_clock_stands_still_between():
    params = MentorNet.Params(mentor="data_driven", mentor_steps=5)
    mentor, losses = Mentor(params, seed=0, device="cpu"), torch.arange(6.0)
    right = torch.tensor([True, False])

    def see(percent):
        mentor.watch(torch.arange(-4, 2), losses, percent, right)

    see(15)
    mentor.learn_if_due(30)
    assert (mentor.learned_at, mentor.clock.item()) == (21, 15)
    with torch.no_grad():
        expected = mentor.net(losses, losses - mentor.average, torch.full((6,), 15)).sigmoid()
        early = mentor.net(losses, losses - mentor.average, torch.full((6,), 7)).sigmoid()
    assert torch.equal(mentor.weigh(losses, 60), expected) and torch.equal(mentor.weigh(losses, 7), early)
    assert not torch.equal(early, expected)
    see(40)
    mentor.learn_if_due(74)
    assert (mentor.learned_at, len(mentor.table)) == (21, 2)
    mentor.learn_if_due(75)
    assert (mentor.learned_at, mentor.clock.item(), len(mentor.table)) == (75, 40, 0)
    see(80)
    mentor.learn_if_due(99)
    assert mentor.learned_at == 75 and len(mentor.table) == 2  # there is no third time


def test_flipped_trusted_labels_reach_every_other_class():
    task, _ = noisy_task(plain=False, n_train=100)
    images, clean = task.trusted
    task.trusted = images.subset(torch.arange(100).repeat(20)), clean.repeat(20)
    batches, is_right = MentorNet(flips=0.25)._with_trusted(task)
    given = batches.labels[100:]
    assert torch.equal(batches.labels[:100], task.labels) and len(batches.images) == 2100
    assert torch.equal(is_right, given == task.trusted[1]) and abs((~is_right).float().mean() - 0.25) < 0.04
    assert set(((given - task.trusted[1]) % 10)[~is_right].tolist()) == set(range(1, 10))


def test_weights_are_those_of_the_training_steps_after_burn_in(monkeypatch):
    """Every weight that the mentor gives in a step is written down; one step per epoch, percents 0, 25, 50, 75."""
    task, _ = noisy_task(plain=False, n_train=64, recipe=replace(RECIPE, epochs=4))
    steps, weigh = [], Mentor.weigh

    def watched(self, losses, percent, learning=False):
        weights = weigh(self, losses, percent, learning)
        assert learning, "no other losses are weighed than those the percentile is of"
        steps.append((int(percent), losses.numpy(), weights.numpy()))
        return weights

    monkeypatch.setattr(Mentor, "weigh", watched)
    found = MentorNet(score="weight").detect(task)
    percents, losses, weights = zip(*steps, strict=True)
    assert percents == (0, 25, 50, 75)
    order = [next(iter(task.batches().epoch(epoch))).index.argsort().numpy() for epoch in range(4)]
    late = np.mean([losses[e][order[e]] for e in (1, 2, 3)], 0)
    weight = np.mean([weights[e][order[e]] for e in (1, 2, 3)], 0)
    assert 0 < weight.mean() < 1
    np.testing.assert_allclose(found.scores, 1 - weight + 0.001 * late / (1 + late), atol=1e-5)


def test_the_percentile_follows_the_noise_rate_that_is_told():
    """The released commands: 0.75 at 20 and 40 %, 0.5 at 80 %."""
    rates = [MentorNet.released_percentile(rate) for rate in (0.0, 0.2, 0.4, 0.6, 0.8, 0.9)]
    assert rates == pytest.approx([0.75, 0.75, 0.75, 0.625, 0.5, 0.5])
    task, _ = noisy_task(plain=False, n_train=64, recipe=replace(RECIPE, epochs=2))
    with pytest.raises(UserError, match="mentornet asks for the noise rate"):
        MentorNet(percentile=None).detect(task)
    task.noise = NoiseFacts(0.6, "symmetric")
    assert MentorNet(percentile=None).detect(task).extras["percentile"] == pytest.approx(0.625)
    assert MentorNet().detect(task).extras["percentile"] == 0.7


def test_predefined_reads_no_trusted_label():
    task, _ = noisy_task(plain=False, n_train=300)
    task.trusted = None
    assert MentorNet().detect(task).extras["trusted_labels"] == 0
    with pytest.raises(UserError, match="needs trusted labels"):
        MentorNet(mentor="data_driven").detect(task)


def test_bad_mentor_is_named():
    with pytest.raises(UserError, match=r"params\.mentornet\.mentor"):
        MentorNet(mentor="dd")


def test_on_digits():
    detection = check_behaviour(MentorNet())
    assert len(np.unique(detection.variants["weight"])) > 1100  # ties are broken
    assert detection.curves["mean_weight"][0] == 1.0


def test_data_driven_on_digits():
    detection = check_behaviour(MentorNet(mentor="data_driven"))
    assert detection.extras["trusted_labels"] == 100
