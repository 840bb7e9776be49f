"""The network a scan trains: a compact residual one for small pictures, or any timm model by name."""

from __future__ import annotations

from torch import nn

from sgoif.errors import UserError
from sgoif.scan.settings import COMPACT, Settings
from sgoif.training.models import GlobalMax, Network, Residual, conv_block, from_timm


def compact(n_classes: int, channels: int, size: int, width: int) -> Network:
    """Nine layers; the first convolution strides so that the rest works on at most about 40 x 40 positions."""
    w, stride = width, max(round(size / 32), 1)
    stem = nn.Sequential(
        nn.Conv2d(channels, w, 3 if stride == 1 else 2 * stride - 1, stride, padding=max(stride - 1, 1), bias=False),
        nn.BatchNorm2d(w),
        nn.ReLU(inplace=True),
    )
    stages = [
        stem,
        nn.Sequential(conv_block(w, 2 * w, pool=True), Residual(2 * w)),
        conv_block(2 * w, 4 * w, pool=True),
        nn.Sequential(conv_block(4 * w, 8 * w, pool=True), Residual(8 * w)),
    ]
    return Network(nn.Sequential(*stages, GlobalMax()), nn.Linear(8 * w, n_classes), stages, scale=0.125)


def try_out(settings: Settings, n_classes: int) -> None:
    """A wrong name, or a size that the model cannot take, is told before anything is written or trained."""
    import torch

    shape = (settings.channels, settings.size)
    network = build(settings.model, n_classes, *shape, settings.width, settings.pretrained).eval()
    try:
        with torch.no_grad():
            network(torch.zeros(2, settings.channels, settings.size, settings.size))
    except (RuntimeError, AssertionError, ValueError) as e:
        told = " ".join(str(e).split())[:200]
        raise UserError(f"--model {settings.model} cannot take pictures of {settings.size} pixels ({told})") from None


def build(model: str, n_classes: int, channels: int, size: int, width: int, pretrained: bool) -> Network:
    """A fresh (or pretrained) network for square pictures of `size` pixels."""
    if model == COMPACT:
        return compact(n_classes, channels, size, width)
    try:
        return from_timm(model, n_classes, channels, size, pretrained)
    except UserError:
        raise
    except Exception as e:  # timm and its download raise many kinds
        told = " ".join(str(e).split())[:200] or type(e).__name__
        hint = (
            "its weights are not here; --download fetches them"
            if pretrained
            else f"it cannot be built for {size} pixels"
        )
        raise UserError(f"--model {model}: {hint} ({told})") from None
