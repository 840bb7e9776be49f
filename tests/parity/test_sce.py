"""SCE: the reverse term's closed form, and that its ranking is the cross-entropy's."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from baselines.noisy.sce import SCE
from sgoif.bench.methods.robust.losses import SymmetricCrossEntropy
from sgoif.errors import UserError
from tests.helpers.digit_tasks import noisy_task
from tests.parity.trainers import check_behaviour

INDEX = torch.arange(64)


@pytest.fixture
def batch():
    g = torch.Generator().manual_seed(0)
    return 3 * torch.randn(64, 7, generator=g), torch.randint(0, 7, (64,), generator=g)


def released(logits: Tensor, y: Tensor, alpha: float, beta: float) -> Tensor:
    """Both terms as the released programs have them: sums over classes with the clamped one-hot label, [n]."""
    p, q = logits.double().softmax(1), F.one_hot(y, logits.shape[1]).double()
    reverse = -(p * q.clamp(1e-4, 1.0).log()).sum(1)
    return alpha * -(q * p.log()).sum(1) + beta * reverse


@pytest.mark.parametrize(("alpha", "beta"), [(0.1, 1.0), (6.0, 1.0), (0.0, 2.0)])
def test_is_the_released_loss_divided_by_the_weights(batch, alpha, beta):
    expected = released(*batch, alpha, beta).mean().item()
    assert SymmetricCrossEntropy(alpha, beta, normalised=False)(*batch, INDEX).item() == pytest.approx(
        expected, rel=1e-5
    )
    assert SymmetricCrossEntropy(alpha, beta)(*batch, INDEX).item() == pytest.approx(
        expected / (alpha + beta), rel=1e-5
    )


def test_ranks_like_cross_entropy(batch):
    """Which is why the last pass is scored by cross-entropy."""
    logits, y = (t.double() if t.is_floating_point() else t for t in batch)
    by_ce = F.cross_entropy(logits, y, reduction="none").argsort()
    assert torch.equal(released(logits, y, 0.1, 1.0).argsort(), by_ce)


def test_reverse_is_bounded():
    """A confidently contradicted label costs at most -A, however large the logit."""
    loss = SymmetricCrossEntropy(0.0, 1.0)
    value = loss(torch.tensor([[100.0, 0.0]]), torch.tensor([1]), torch.tensor([0]))
    assert value.item() == pytest.approx(-math.log(1e-4), rel=1e-6)


def test_alpha_follows_the_number_of_classes():
    ratios = {k: SCE().loss(k).alpha / SCE().loss(k).beta for k in (10, 49, 50, 100)}
    assert ratios == pytest.approx({10: 0.1, 49: 0.1, 50: 6.0, 100: 6.0})
    assert SCE(alpha=0.5, normalised=False).loss(100).alpha == 0.5
    with pytest.raises(UserError, match=r"params\.sce\.log_zero: must be below 0"):
        SCE(log_zero=0.0)


def test_on_digits():
    check_behaviour(SCE())


def test_its_ranking_can_be_retrained_instead():
    """Then it yields no model of its own, and the benchmark trains one without what is removed."""
    task, wrong = noisy_task(rate=0.4, n_train=600, plain=False)
    found = SCE(retrain=True).detect(task)
    assert found.test_logits is None and wrong[found.remove].mean() > 0.8 and found.remove[wrong].mean() > 0.8
