"""Co-teaching: selection, exchange and schedule by hand and against the formulas of the released code."""

from itertools import cycle

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from baselines.noisy import coteaching
from baselines.noisy.coteaching import TOLD, CoTeaching
from sgoif.bench.methods.robust.peer_networks import Peers, among, exchange, mean_loss
from sgoif.bench.methods.robust.training import History
from sgoif.bench.methods.robust.visits import measure
from sgoif.bench.methods.tasks import NoiseFacts
from sgoif.errors import UserError
from tests.helpers.digit_tasks import noisy_task
from tests.parity.trainers import check_behaviour


def test_the_first_of_an_order():
    order = torch.tensor([3.0, 1.0, 2.0, 0.5, 1.0]).argsort(stable=True)
    assert among(order, torch.tensor(2)).tolist() == [False, True, False, True, False]  # of equals, the earlier
    assert among(order, torch.tensor(5)).all()


def test_something_is_always_kept():
    assert CoTeaching.kept(4, 0.9) == 1


def test_each_network_is_trained_on_the_others_choice():
    """The first finds example 0 easy, the second example 1: they swap."""
    y = torch.tensor([0, 0, 0])
    first = torch.tensor([[5.0, 0.0], [0.0, 5.0], [0.0, 3.0]])
    second = torch.tensor([[0.0, 5.0], [5.0, 0.0], [0.0, 3.0]])
    for_first, for_second = exchange(first, second, y)
    assert for_first.tolist() == [1, 2, 0]
    assert for_second.tolist() == [0, 2, 1]


@pytest.mark.parametrize(("noise_rate", "ramp"), [(0.2, 10), (0.45, 1), (0.5, 4)])
def test_forget_schedule_is_the_released_one(noise_rate, ramp):
    """rate_schedule = ones(n) * τ; rate_schedule[:T_k] = linspace(0, τ, T_k)"""
    released = np.ones(20) * noise_rate
    released[:ramp] = np.linspace(0, noise_rate, ramp)
    ours = [CoTeaching.forget_rate(t, noise_rate, ramp) for t in range(20)]
    assert np.allclose(ours, released)


def test_update_equals_the_released_loss():
    """Same kept examples as num_remember = int((1 - R) B) of an argsort; the same loss, divided once."""
    g = torch.Generator().manual_seed(1)
    first, second = torch.randn(16, 4, generator=g), torch.randn(16, 4, generator=g)
    y = torch.randint(0, 4, (16,), generator=g)
    keep = CoTeaching.kept(16, 0.3)
    assert keep == 11
    for_first, for_second = (among(order, torch.tensor(keep)) for order in exchange(first, second, y))
    losses = [F.cross_entropy(f, y, reduction="none").numpy() for f in (first, second)]
    expected = losses[0][np.argsort(losses[1])[:keep]].sum() / keep
    assert mean_loss(first, y, for_first).item() == pytest.approx(expected, rel=1e-5)
    expected = losses[1][np.argsort(losses[0])[:keep]].sum() / keep
    assert mean_loss(second, y, for_second).item() == pytest.approx(expected, rel=1e-5)


def test_contradiction_counts_only_where_the_networks_agree():
    eye = 4 * torch.eye(3)
    first, second = eye[[0, 1, 2, 0]], eye[[0, 1, 2, 1]]
    assert CoTeaching.contradicted(first, second, torch.tensor([0, 1, 0, 2])) == pytest.approx(1 / 3)
    assert CoTeaching.contradicted(eye[[0]], eye[[1]], torch.tensor([0])) == 0.0


def history(contradicted: list[float]) -> History:
    kept = History()
    for share in contradicted:
        kept.add(contradicted=share)
    return kept


def test_an_estimated_rate_is_that_of_the_last_epoch_of_the_warmup_and_leaves_something_to_learn_from():
    """R(t) begins at its first value that is not 0: epoch 1 of a ramp of four."""
    forget = CoTeaching()._forget
    seen = history([0.9, 0.3])
    assert [forget(epoch, 2, 4, seen) for epoch in range(6)] == pytest.approx([0, 0, 0.1, 0.2, 0.3, 0.3])
    assert forget(9, 2, 4, history([0.0, 1.0])) == 0.9
    assert CoTeaching()._forget(1, 0, 4, seen, 0.6) == pytest.approx(0.2)  # a given one needs no warm-up


@pytest.mark.parametrize("noise_rate", [0.4, None])
def test_a_run_forgets_by_the_schedule(noise_rate):
    """Half of 8 epochs are the ramp, a quarter the warm-up of an estimated rate."""
    task, _ = noisy_task(plain=False, n_train=64)
    found = CoTeaching(noise_rate=noise_rate, ramp=0.5).detect(task)
    warm = 0 if noise_rate else 2
    rate = noise_rate or found.curves["contradicted"][0]
    expected = [0.0] * warm + [CoTeaching.forget_rate(t + (warm > 0), rate, 4) for t in range(8 - warm)]
    assert found.curves["forget_rate"] == pytest.approx(expected) and found.extras["noise_rate"] == expected[-1]


def test_what_is_told_is_used_as_given():
    """The rate of the setting is τ, from epoch 0 on, as published."""
    found = {}
    for rate in (TOLD, 0.25):
        task, _ = noisy_task(plain=False, n_train=64)
        task.noise = NoiseFacts(0.25, "symmetric")
        found[rate] = CoTeaching(noise_rate=rate).detect(task)
    assert found[TOLD].curves["forget_rate"] == found[0.25].curves["forget_rate"]
    assert np.array_equal(found[TOLD].scores, found[0.25].scores)
    task.noise = None
    with pytest.raises(UserError, match="coteaching asks for the noise rate"):
        CoTeaching(noise_rate=TOLD).detect(task)


def test_both_networks_are_scored(monkeypatch):
    """What is recorded of a visit is the mean of what both networks say; one that knows nothing halves the margin."""
    first, second = torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 0.0]])
    y = torch.tensor([0])
    assert ((measure(first, y) + measure(second, y)) / 2)[0].item() == 1.5
    seen = []
    monkeypatch.setattr("baselines.noisy.coteaching.measure", lambda f, y: seen.append(f) or measure(f, y))
    task, _ = noisy_task(plain=False, n_train=64)
    CoTeaching().detect(task)
    assert len(seen) == 2 * 8 and not torch.equal(seen[0], seen[1])


def test_a_visit_is_measured_by_both_networks_alike(monkeypatch):
    """The mean of what each says: here 1 and 3."""
    plain, answers, seen, add = coteaching.measure, cycle((1.0, 3.0)), [], coteaching.VisitRecorder.add

    def watched(self, index, measured):
        seen.append(measured)
        add(self, index, measured)

    monkeypatch.setattr(coteaching, "measure", lambda f, y: torch.zeros_like(plain(f, y)) + next(answers))
    monkeypatch.setattr(coteaching.VisitRecorder, "add", watched)
    task, _ = noisy_task(plain=False, n_train=64)
    CoTeaching(noise_rate=0.2).detect(task)
    assert seen and all((measured == 2).all() for measured in seen)


def test_peers_start_apart():
    task, _ = noisy_task(plain=False)
    peers = Peers(task, task.batches())
    assert not torch.equal(peers.first.net.head.weight, peers.second.net.head.weight)


def test_bad_rate_is_named():
    with pytest.raises(UserError, match=r"params\.coteaching\.noise_rate"):
        CoTeaching(noise_rate=1.0)


def test_on_digits():
    detection = check_behaviour(CoTeaching())
    assert detection.extras["noise_rate"] == pytest.approx(0.4, abs=0.08)
    assert detection.curves["forget_rate"][:2] == [0.0, 0.0]
