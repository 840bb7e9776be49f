"""SCE: the reverse term's closed form, and that its ranking is the cross-entropy's."""

import math

import pytest
import torch
import torch.nn.functional as F

from baselines.noisy.sce import SCE
from sgoif.errors import UserError
from tests.parity.trainers import check_behaviour


@pytest.fixture
def batch():
    g = torch.Generator().manual_seed(0)
    return 3 * torch.randn(64, 7, generator=g), torch.randint(0, 7, (64,), generator=g)


def test_reverse_is_the_sum_over_classes(batch):
    """-Σ_k p_k log q_k written out with the clamped one-hot label, as the paper defines it."""
    logits, y = batch
    q = F.one_hot(y, 7).double().clamp(1e-4, 1.0)
    expected = -(logits.double().softmax(1) * q.log()).sum(1)
    assert torch.allclose(SCE.reverse(logits, y).double(), expected, atol=1e-5)
    p_given = logits.softmax(1)[torch.arange(64), y]
    assert torch.allclose(SCE.reverse(logits, y, -4.0), 4.0 * (1 - p_given), atol=1e-6)


def test_loss_is_the_weighted_sum(batch):
    logits, y = batch
    expected = 0.1 * F.cross_entropy(logits, y, reduction="none") + 2.0 * SCE.reverse(logits, y)
    assert torch.allclose(SCE.loss(logits, y, 0.1, 2.0), expected)


def test_ranks_like_cross_entropy(batch):
    logits, y = (t.double() if t.is_floating_point() else t for t in batch)
    by_ce = F.cross_entropy(logits, y, reduction="none").argsort()
    assert torch.equal(SCE.loss(logits, y, 0.1, 1.0).argsort(), by_ce)
    assert torch.equal((1 - logits.softmax(1)[torch.arange(64), y]).argsort(), by_ce)


def test_reverse_is_bounded():
    """A confidently contradicted label costs at most -A, however large the logit."""
    logits = torch.tensor([[100.0, 0.0]])
    assert SCE.reverse(logits, torch.tensor([1])).item() == pytest.approx(-math.log(1e-4), rel=1e-6)


def test_alpha_follows_the_number_of_classes():
    assert SCE().alpha(10) == 0.1
    assert SCE().alpha(100) == 6.0
    assert SCE(alpha=0.5).alpha(100) == 0.5
    with pytest.raises(UserError, match=r"params\.sce\.log_zero: must be below 0"):
        SCE(log_zero=0.0)


def test_on_digits():
    check_behaviour(SCE())
