"""Losses of robust trainers against their formulas, written out apart from the code or worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from baselines.noisy.cores import CORES, SampleSieve
from baselines.noisy.elr import ELR
from baselines.noisy.gce import GCE
from baselines.noisy.sgoif import SGOIF
from baselines.noisy.sop import SOP, OverParametrisation, start
from sgoif.bench.methods.robust.losses import (
    LOSSES,
    EarlyLearningRegularisation,
    GeneralizedCrossEntropy,
    make_loss,
)
from sgoif.errors import UserError
from tests.helpers.digit_tasks import noisy_task
from tests.parity.trainers import check_behaviour

CPU = torch.device("cpu")
LOGITS = torch.tensor([[2.0, 1.0, 1.0], [1.0, 6.0, 1.0]]).log()  # p = (1/2, 1/4, 1/4), (1/8, 6/8, 1/8)
LABELS = torch.tensor([1, 1])  # p_y = 1/4, 3/4
INDEX = torch.tensor([3, 0])


@pytest.mark.parametrize("q", [0.3, 0.7, 1.0])
def test_gce_by_hand_and_its_gradient_is_that_of_cross_entropy_times_p_to_the_q(q):
    loss = GeneralizedCrossEntropy(q)
    expected = np.mean([(1 - 0.25**q) / q, (1 - 0.75**q) / q])
    assert loss(LOGITS, LABELS, INDEX).item() == pytest.approx(expected, rel=1e-5)
    f = LOGITS.clone().requires_grad_()
    (ours,) = torch.autograd.grad(loss(f, LABELS, INDEX), f)
    (plain,) = torch.autograd.grad(F.cross_entropy(f, LABELS), f)
    torch.testing.assert_close(ours, plain * torch.tensor([[0.25], [0.75]]) ** q)


def test_gce_becomes_cross_entropy():
    assert GeneralizedCrossEntropy(1e-4)(LOGITS, LABELS, INDEX).item() == pytest.approx(
        F.cross_entropy(LOGITS, LABELS).item(), rel=1e-3
    )


def test_elr_targets_and_loss_by_hand():
    """Two visits: t = 0.3 p, then 0.7 * 0.3 p + 0.3 p'; the regulariser sees the new target."""
    loss = EarlyLearningRegularisation(5, 3, CPU)
    assert (loss.weight, loss.decay) == (3.0, 0.7)
    first = LOGITS.softmax(1)
    value = loss(LOGITS, LABELS, INDEX).item()
    overlap = 0.3 * first.square().sum(1)
    expected = F.cross_entropy(LOGITS, LABELS) + 3 * torch.log(1 - overlap).mean()
    assert value == pytest.approx(expected.item(), rel=1e-5)
    loss(LOGITS.flip(1), LABELS, INDEX)
    torch.testing.assert_close(loss.targets[INDEX], 0.21 * first + 0.3 * first.flip(1))
    assert loss.targets[[1, 2, 4]].abs().max() == 0
    labels = torch.tensor([1, 0, 0, 1, 0])
    said = loss.scores(labels)["target"]
    assert said[0].item() == pytest.approx(1 - 0.75) and said[3].item() == pytest.approx(1 - 0.25)


def test_elr_pushes_towards_the_target():
    """Where the target is sure of class 0 and the label says 1, the regulariser's gradient raises the logit of 0."""
    loss = EarlyLearningRegularisation(1, 2, CPU, weight=10.0, decay=0.99)
    loss.targets.copy_(torch.tensor([[0.95, 0.05]]))
    f = torch.zeros(1, 2, requires_grad=True)
    loss(f, torch.tensor([1]), torch.tensor([0])).backward()
    plain = torch.zeros(1, 2, requires_grad=True)
    F.cross_entropy(plain, torch.tensor([1])).backward()
    assert f.grad[0, 0] < 0 < plain.grad[0, 0]


def test_elr_follows_the_number_of_classes():
    loss = EarlyLearningRegularisation(1, 100, CPU)
    assert (loss.weight, loss.decay) == (7.0, 0.9)
    assert EarlyLearningRegularisation(1, 100, CPU, weight=1.0, decay=0.5).decay == 0.5


def test_sop_by_hand():
    """u^2 = 1/4 on the label and v^2 = 1/16 elsewhere, p = (1/2, 1/4, 1/4), label 1, predicted 0."""
    u, v = torch.tensor([[0.5]]), torch.full((1, 3), 0.25)
    value = OverParametrisation.value(LOGITS[:1], LABELS[:1], u, v).item()
    shifted = np.array([1 / 2 - 1 / 16, 1 / 4 + 1 / 4, 1 / 4 - 1 / 16])
    mismatch = (1 - 1 / 16) ** 2 + (0 + 1 / 4 - 1) ** 2 + (1 / 16) ** 2
    assert value == pytest.approx(-math.log(shifted[1] / shifted.sum()) + mismatch, rel=1e-5)


def test_sop_noise_terms_descend_their_own_gradient():
    """The rows of the step alone, u and v by their own rates; v has no gradient from the first term."""
    loss = OverParametrisation((5, 3), (2.0, 4.0), 0.3, CPU, seed=0)
    before = loss.u.clone(), loss.v.clone()
    rows = [t[INDEX].clone().requires_grad_() for t in before]
    gradients = torch.autograd.grad(OverParametrisation.value(LOGITS, LABELS, *rows), rows)
    f = LOGITS.clone().requires_grad_()
    loss(f, LABELS, INDEX).backward()
    assert f.grad.abs().sum() > 0
    for now, then, gradient, rate in zip((loss.u, loss.v), before, gradients, (2.0, 4.0), strict=True):
        torch.testing.assert_close(now[INDEX], then[INDEX] - rate * 2 / 128 * gradient)
        assert torch.equal(now[[1, 2, 4]], then[[1, 2, 4]])
    copy = OverParametrisation((5, 3), (2.0, 4.0), 0.3, CPU, seed=1)
    copy.load_state_dict(loss.state_dict())
    assert torch.equal(copy.u, loss.u) and torch.equal(copy.v, loss.v)


def test_sop_starts_so_that_a_short_training_can_learn_the_noise():
    assert [start(e) for e in (8, 75, 150, 300, 600)] == pytest.approx([0.1, 1e-2, 1e-4, 1e-8, 1e-8])


def test_cores_by_hand():
    """Schedule of beta; the value of the sieve; what is sieved out takes no part once the sieve acts.

    The labels are 1, 0, 2, 1, 1: the shares of the classes in the regulariser are 1/5, 3/5, 1/5.
    """
    labels = torch.tensor([1, 0, 2, 1, 1])
    loss = SampleSieve(labels, 3)
    betas = []
    for epoch in range(100):
        loss.begin_epoch(epoch, 100)
        betas.append(loss.beta.item())
    plan = np.concatenate([np.zeros(10), np.linspace(0, 2, 30), np.full(60, 2.0)])  # as released, `loss.py`
    np.testing.assert_allclose(betas, plan, rtol=1e-6)
    losses, of_classes = -np.log([0.25, 0.75]), -np.log([[0.5, 0.25, 0.25], [0.125, 0.75, 0.125]])
    average, regulariser = of_classes.mean(1), of_classes @ [0.2, 0.6, 0.2]
    loss.begin_epoch(25, 100)  # no sieve, before the window
    assert loss(LOGITS, LABELS, INDEX).item() == pytest.approx((losses - plan[25] * regulariser).mean(), rel=1e-5)
    assert losses[0] > average[0] and losses[1] < average[1]  # the first example loses against the average label
    loss.begin_epoch(60, 100)  # beta 2, sieve; without the first example, whose last value is above 0
    regulariser = of_classes @ [0.25, 0.5, 0.25]
    assert loss(LOGITS, LABELS, INDEX).item() == pytest.approx(losses[1] - 2 * regulariser[1], rel=1e-5)
    np.testing.assert_allclose(loss.scores(labels)["sieve"][INDEX], losses - average, rtol=1e-5)
    np.testing.assert_allclose(loss.record[1], [1, 0, 0, 1, 0])


def test_cores_regularises_by_the_labels_that_were_kept_in_the_epoch_before_also_after_a_resume():
    labels = torch.tensor([0, 0, 0, 1, 1, 2])
    loss = SampleSieve(labels, 3)
    loss.begin_epoch(30, 100)  # the sieve does not act yet, whatever it says
    loss.record[2] = torch.tensor([1.0, 1, -1, -1, -1, 0])
    loss.begin_epoch(31, 100)
    torch.testing.assert_close(loss.shares, torch.tensor([3, 2, 1]) / 6)
    resumed = SampleSieve(labels, 3)
    resumed.load_state_dict(loss.state_dict())
    resumed.begin_epoch(32, 100)
    torch.testing.assert_close(resumed.shares, torch.tensor([1, 2, 1]) / 4)
    resumed.record[2] = 1.0  # all are sieved out: the shares stay
    resumed.begin_epoch(33, 100)
    torch.testing.assert_close(resumed.shares, torch.tensor([1, 2, 1]) / 4)


def test_a_step_whose_examples_are_all_sieved_out_teaches_nothing():
    loss = SampleSieve(LABELS[:1], 3)
    loss.begin_epoch(60, 100)
    assert loss(LOGITS[:1], LABELS[:1], torch.tensor([0])).item() == 0.0


def test_losses_by_name():
    kinds = {name: type(make_loss(name, 4, 3, CPU)).__name__ for name in LOSSES}
    assert kinds == {
        "cross_entropy": "TrainingLoss", "gce": "GeneralizedCrossEntropy",
        "sce": "SymmetricCrossEntropy", "elr": "EarlyLearningRegularisation",
    }  # fmt: skip
    with pytest.raises(UserError, match="loss: one of cross_entropy, gce, sce, elr, not 'mse'"):
        make_loss("mse", 4, 3, CPU)


@pytest.mark.parametrize("kind", [GCE, ELR, SOP, CORES])
def test_on_digits(kind):
    """CORES2 at 20%: at 40% its regulariser, in force after 40% of eight epochs, costs this network accuracy."""
    detection = check_behaviour(kind(), auroc=0.95, rate=0.2 if kind is CORES else 0.4)
    if kind is CORES:
        assert 0.15 < detection.remove.mean() < 0.3


def test_sgoif_watches_a_training_by_another_loss():
    """The influences are of the network that GCE trains, so that they differ; the default is cross-entropy."""
    found = {}
    for name in ("cross_entropy", "gce"):
        task, _ = noisy_task(n_train=256, plain=False)
        found[name] = SGOIF(loss=name).detect(task).scores
    task, _ = noisy_task(n_train=256, plain=False)
    np.testing.assert_array_equal(SGOIF().detect(task).scores, found["cross_entropy"])
    assert not np.allclose(found["gce"], found["cross_entropy"])
    with pytest.raises(UserError, match=r"params\.sgoif\.loss: one of cross_entropy"):
        SGOIF(loss="mse")
