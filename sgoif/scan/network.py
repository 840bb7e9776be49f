"""The network a scan trains: a compact residual one for small images, or any timm model by name."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sgoif.errors import UserError
from sgoif.label_noise.projection import Projection
from sgoif.scan.pretrained.weights import Weights, load_pretrained
from sgoif.scan.settings import COMPACT, Settings
from sgoif.training.models import GlobalMaxPool, Network, Residual, conv_block, from_timm, wrap_timm

LOGIT_SCALE = 0.125  # of the compact network


def build_network(settings: Settings, n_classes: int, weights: Weights | None = None) -> Network:
    """Build a network for the images of a scan.

    Args:
        settings: Model, size and channels.
        n_classes: Number of classes.
        weights: The weights that it starts from; None: random ones.

    Raises:
        UserError: If timm has no such model, cannot build it for this size, or the weights are not those of the model.
    """
    if weights is not None:
        return wrap_timm(load_pretrained(weights), n_classes)
    if settings.model == COMPACT:
        return compact_network(n_classes, settings.channels, settings.size, settings.width)
    try:
        return from_timm(settings.model, n_classes, settings.channels, settings.size)
    except UserError:
        raise
    except Exception as e:  # timm and its download raise many kinds
        reason = " ".join(str(e).split())[:200] or type(e).__name__
        raise UserError(f"--model {settings.model}: it cannot be built for {settings.size} pixels ({reason})") from None


def with_projection(network: Network, state: dict[str, Tensor]) -> Network:
    """Return a network that projects its features before the head, as a scan by embeddings trains it.

    Args:
        network: The network that embeds.
        state: Saved weights, which tell the projection's shapes; they are not loaded.

    Raises:
        KeyError: If these are weights of another network.
    """
    mean, basis = (torch.zeros_like(state[f"backbone.1.{name}"]) for name in ("mean", "basis"))
    backbone = nn.Sequential(network.backbone, Projection(mean, basis, 1.0))
    return Network(backbone, nn.Linear(basis.shape[1], network.head.out_features), [])


def compact_network(n_classes: int, channels: int, size: int, width: int) -> Network:
    """Build a residual network of nine layers.

    The first convolution strides so that the rest works on at most about 40 x 40 positions.

    Args:
        n_classes: Number of classes.
        channels: Channels of the images.
        size: Side of the images in pixels.
        width: Channels of the first layer.
    """
    w = width
    stride = max(round(size / 32), 1)
    stem = nn.Sequential(
        nn.Conv2d(channels, w, 3 if stride == 1 else 2 * stride - 1, stride, padding=max(stride - 1, 1), bias=False),
        nn.BatchNorm2d(w),
        nn.ReLU(inplace=True),
    )
    stages: list[nn.Module] = [
        stem,
        nn.Sequential(conv_block(w, 2 * w, pool=True), Residual(2 * w)),
        conv_block(2 * w, 4 * w, pool=True),
        nn.Sequential(conv_block(4 * w, 8 * w, pool=True), Residual(8 * w)),
    ]
    return Network(nn.Sequential(*stages, GlobalMaxPool()), nn.Linear(8 * w, n_classes), stages, scale=LOGIT_SCALE)


def check_network(settings: Settings, n_classes: int, weights: Weights | None = None) -> Network:
    """Build the network and apply it once, so that an error comes before anything is written or trained.

    Args:
        settings: Model, size and channels.
        n_classes: Number of classes.
        weights: The weights that it starts from; None: random ones.

    Raises:
        UserError: If the network cannot be built, or cannot take images of this size.
    """
    network = build_network(settings, n_classes, weights).eval()
    try:
        with torch.no_grad():
            network(torch.zeros(2, settings.channels, settings.size, settings.size))
    except (RuntimeError, AssertionError, ValueError) as e:
        reason = " ".join(str(e).split())[:200]
        raise UserError(f"--model {settings.model} cannot take images of {settings.size} pixels ({reason})") from None
    return network
