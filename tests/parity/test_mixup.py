"""Mixup against timm and torchvision, given the same λ and the same partners."""

import pytest
import torch
import torch.nn.functional as F

from baselines.noisy.mixup import Mixup
from sgoif.errors import UserError
from tests.parity.trainers import check_behaviour


@pytest.fixture
def batch():
    g = torch.Generator().manual_seed(0)
    x, y = torch.rand(8, 3, 6, 6, generator=g), torch.randint(0, 5, (8,), generator=g)
    head = torch.randn(3 * 36, 5, generator=g)
    return x, y, lambda images: images.flatten(1) @ head


def test_equals_timm(batch, monkeypatch):
    """timm mixes with the reversed batch and gives soft targets."""
    from timm.data.mixup import Mixup as Timm
    from timm.loss import SoftTargetCrossEntropy

    x, y, net = batch
    timm = Timm(mixup_alpha=1.0, cutmix_alpha=0.0, label_smoothing=0.0, num_classes=5, mode="batch")
    monkeypatch.setattr(timm, "_params_per_batch", lambda: (0.3, False))
    mixed, soft = timm(x.clone(), y)
    partner = torch.arange(7, -1, -1)
    ours = Mixup.mix(x, 0.3, partner)
    assert torch.allclose(ours, mixed, atol=1e-6)
    assert torch.allclose(Mixup.loss(net(ours), y, 0.3, partner), SoftTargetCrossEntropy()(net(mixed), soft), atol=1e-5)


def test_equals_torchvision(batch):
    """torchvision mixes with the batch rolled by one; its λ comes from torch's generator and is read back."""
    from torchvision.transforms import v2

    x, y, net = batch
    theirs = v2.MixUp(alpha=1.0, num_classes=5)
    torch.manual_seed(3)
    weight = theirs.make_params([])["lam"]
    torch.manual_seed(3)
    mixed, soft = theirs(x, y)
    partner = torch.arange(8).roll(1)
    ours = Mixup.mix(x, weight, partner)
    assert torch.allclose(ours, mixed, atol=1e-6)
    assert torch.allclose(Mixup.loss(net(ours), y, weight, partner), F.cross_entropy(net(mixed), soft), atol=1e-5)


def test_no_mixing_is_plain_cross_entropy(batch):
    x, y, net = batch
    partner = torch.randperm(8)
    assert torch.equal(Mixup.mix(x, 1.0, partner), x)
    assert torch.equal(Mixup.loss(net(x), y, 1.0, partner), F.cross_entropy(net(x), y))


def test_bad_alpha_is_named():
    with pytest.raises(UserError, match=r"params\.mixup\.alpha: must not be negative, not -1"):
        Mixup(alpha=-1)


def test_on_digits():
    check_behaviour(Mixup())
