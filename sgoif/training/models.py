"""Networks. Every one is a `Network`: a backbone that gives penultimate features, and a linear head.

features z = backbone(x)  [n, d]          logits f = scale * (W z + b)  [n, K]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sgoif.errors import UserError


class Network(nn.Module):
    """A classifier made of a backbone and a linear head.

    Attributes:
        backbone: Maps images [n, C, H, W] to penultimate features [n, d].
        head: The last layer.
        scale: Factor of the logits.
    """

    def __init__(self, backbone: nn.Module, head: nn.Linear, stages: Sequence[nn.Module], scale: float = 1.0) -> None:
        """Put a network together.

        Args:
            backbone: Maps images [n, C, H, W] to penultimate features [n, d].
            head: Maps features [n, d] to K classes.
            stages: Modules of the backbone whose outputs post-hoc methods may hook, shallow to deep.
            scale: Factor of the logits.
        """
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.scale = scale
        self._stages = tuple(stages)  # a tuple, so that the modules are not registered twice
        self._is_frozen = False

    def freeze_backbone(self) -> None:
        """Keep the backbone as it is: its weights get no gradient, its batch norms stay in eval mode."""
        self._is_frozen = True
        self.backbone.requires_grad_(False)
        self.train(self.training)

    def train(self, mode: bool = True) -> Network:
        """Set training mode, or eval mode; a frozen backbone stays in eval mode."""
        super().train(mode)
        if self._is_frozen:
            self.backbone.eval()
        return self

    @property
    def stages(self) -> tuple[nn.Module, ...]:
        """Modules whose outputs post-hoc methods may hook, shallow to deep."""
        return self._stages

    def features(self, x: Tensor) -> Tensor:
        """Return the penultimate features [n, d] of images [n, C, H, W]."""
        features: Tensor = self.backbone(x)
        return features

    def classify(self, z: Tensor) -> Tensor:
        """Return the logits [n, K] of features [n, d]."""
        logits: Tensor = self.head(z)
        return self.scale * logits

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits [n, K] of images [n, C, H, W]."""
        return self.classify(self.features(x))

    def linear(self) -> tuple[Tensor, Tensor]:
        """Return the last layer's effective weight [K, d] and bias [K]: the logit scale is multiplied in."""
        return self.scale * self.head.weight.detach(), self.scale * self.head.bias.detach()


def conv_block(c_in: int, c_out: int, pool: bool = False) -> nn.Sequential:
    """Make a 3x3 convolution with batch norm and ReLU.

    Pooling comes before the norm, which saves three quarters of the memory traffic.
    """
    layers: list[nn.Module] = [nn.Conv2d(c_in, c_out, 3, padding=1, bias=False)]
    if pool:
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.BatchNorm2d(c_out), nn.ReLU(inplace=True))


class Residual(nn.Module):
    """Two convolution blocks and a skip connection."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv_block(channels, channels), conv_block(channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        residual: Tensor = self.body(x)
        return x + residual


class GlobalMaxPool(nn.Module):
    """The largest value of each channel. (Adaptive max-pooling is the same, but slow in channels-last memory.)"""

    def forward(self, x: Tensor) -> Tensor:
        return x.amax((2, 3))


def small_cnn(n_classes: int, channels: int, size: int) -> Network:
    """Make a network of three convolutions for 8x8 images; it trains in about a second on one core."""
    stages = [conv_block(channels, 16), conv_block(16, 32, pool=True), conv_block(32, 64, pool=True)]
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return Network(nn.Sequential(*stages, pool), nn.Linear(64, n_classes), stages)


def tiny_cnn(n_classes: int, channels: int, size: int) -> Network:
    """Make a network of two convolutions for 8x8 images: a third of the time of `small_cnn` on one core."""
    stages = [conv_block(channels, 16, pool=True), conv_block(16, 48, pool=True)]
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return Network(nn.Sequential(*stages, pool), nn.Linear(48, n_classes), stages)


def lenet5(n_classes: int, channels: int, size: int) -> Network:
    """Make a LeNet-5 with ReLU and penultimate width 84, as in OpenOOD's MNIST benchmark."""
    first = nn.Sequential(nn.Conv2d(channels, 6, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(2))
    second = nn.Sequential(nn.Conv2d(6, 16, 5), nn.ReLU(inplace=True), nn.MaxPool2d(2))
    side = (size // 2 - 4) // 2
    if side < 1:
        raise UserError(f"model lenet5 needs images of at least 12 pixels, not {size}")
    top = nn.Sequential(
        nn.Flatten(), nn.Linear(16 * side * side, 120), nn.ReLU(inplace=True), nn.Linear(120, 84), nn.ReLU(inplace=True)
    )
    return Network(nn.Sequential(first, second, top), nn.Linear(84, n_classes), [first, second])


def resnet9(n_classes: int, channels: int, size: int, width: int = 64) -> Network:
    """Make the fast CIFAR network of the DAWNBench entries; its logits are scaled by 1/8."""
    w = width
    stages = [
        conv_block(channels, w),
        nn.Sequential(conv_block(w, 2 * w, pool=True), Residual(2 * w)),
        conv_block(2 * w, 4 * w, pool=True),
        nn.Sequential(conv_block(4 * w, 8 * w, pool=True), Residual(8 * w)),
    ]
    return Network(nn.Sequential(*stages, GlobalMaxPool()), nn.Linear(8 * w, n_classes), stages, scale=0.125)


class BasicBlock(nn.Module):
    """The residual block of ResNet-18."""

    def __init__(self, c_in: int, c_out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(c_out),
            nn.ReLU(inplace=True),
            nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(c_out),
        )
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or c_in != c_out:
            self.skip = nn.Sequential(nn.Conv2d(c_in, c_out, 1, stride, bias=False), nn.BatchNorm2d(c_out))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.skip(x))


def resnet18(n_classes: int, channels: int, size: int) -> Network:
    """Make a ResNet-18 with the CIFAR stem (3x3, no max-pool) and penultimate width 512."""
    stem = nn.Sequential(nn.Conv2d(channels, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True))
    widths, strides = (64, 64, 128, 256, 512), (1, 2, 2, 2)
    stages = [
        nn.Sequential(BasicBlock(a, b, s), BasicBlock(b, b, 1))
        for a, b, s in zip(widths[:-1], widths[1:], strides, strict=True)
    ]
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return Network(nn.Sequential(stem, *stages, pool), nn.Linear(512, n_classes), stages)


class _TimmBackbone(nn.Module):
    """A timm model up to its pooled pre-logits."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.model.forward_head(self.model.forward_features(x), pre_logits=True)
        return features


class _Enlarged(nn.Module):
    """A backbone whose images are scaled to another size first (bilinear)."""

    def __init__(self, backbone: nn.Module, size: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        scaled = nn.functional.interpolate(x, size=(self.size, self.size), mode="bilinear", align_corners=False)
        features: Tensor = self.backbone(scaled)
        return features


def require_timm_model(name: str) -> None:
    """Raise a `UserError` that names similar models if timm has no model of this name."""
    import timm

    if not timm.is_model(name):
        near = timm.list_models(f"*{name[:6]}*")[:5]
        raise UserError(f"model timm:{name}: timm has no such model" + (f"; near: {', '.join(near)}" if near else ""))


def from_timm(name: str, n_classes: int, channels: int, size: int) -> Network:
    """Make a network with random weights from a timm model.

    Args:
        name: Name of the model in timm.
        n_classes: Number of classes of the new head.
        channels: Channels of the images.
        size: Height and width of the images.

    Raises:
        UserError: If timm has no such model, or its classifier is not a linear layer.
    """
    import timm

    require_timm_model(name)
    try:
        model: Any = timm.create_model(name, num_classes=n_classes, in_chans=channels, img_size=size)
    except TypeError:  # convolutional models take no image size
        model = timm.create_model(name, num_classes=n_classes, in_chans=channels)
    head = model.get_classifier()
    if not isinstance(head, nn.Linear):
        raise UserError(f"model timm:{name}: its classifier is a {type(head).__name__}, not a linear layer")
    return wrap_timm(model, n_classes)


def wrap_timm(model: Any, n_classes: int) -> Network:
    """Make a network of a timm model, whose classifier is replaced by a new linear layer.

    Args:
        model: The model; it is changed.
        n_classes: Number of classes of the new head.
    """
    modules = dict(model.named_modules())
    stages = [modules[info["module"]] for info in getattr(model, "feature_info", []) if info["module"] in modules]
    model.reset_classifier(0)
    width: int = getattr(model, "head_hidden_size", None) or model.num_features
    return Network(_TimmBackbone(model), nn.Linear(width, n_classes), stages)


MakeNetwork = Callable[[int, int, int], Network]
"""Makes a network for so many classes, channels and pixels (height and width)."""

MODELS: dict[str, MakeNetwork] = {
    "tiny_cnn": tiny_cnn,
    "small_cnn": small_cnn,
    "lenet5": lenet5,
    "resnet9": resnet9,
    "resnet18": resnet18,
}


@contextmanager
def more_models(models: Mapping[str, MakeNetwork]) -> Iterator[None]:
    """Make further networks known by their names inside the `with` block, as for a benchmark of sizes.

    Args:
        models: The networks by name; a recipe may then name them.

    Raises:
        UserError: If a name is taken.
    """
    taken = sorted(models.keys() & MODELS.keys())
    if taken:
        raise UserError(f"there already is a model {taken[0]!r}")
    MODELS.update(models)
    try:
        yield
    finally:
        for name in models:
            del MODELS[name]


def check_model(name: str) -> None:
    """Raise a `UserError` if no model has this name; names of timm models are not looked up."""
    if name not in MODELS and not re.fullmatch(r"timm:[^@]+(@[1-9][0-9]*)?", name):
        known = ", ".join(MODELS)
        raise UserError(f"recipe.model: no model {name!r}; there are: {known}, timm:<name> or timm:<name>@<pixels>")


def build_network(name: str, n_classes: int, channels: int, size: int) -> Network:
    """Make a network with random weights drawn from torch's global generator.

    Args:
        name: A name of `MODELS`, `timm:<name>`, or `timm:<name>@<pixels>`, which scales the images to so many pixels.
        n_classes: Number of classes K.
        channels: Channels of the images.
        size: Height and width of the images.

    Raises:
        UserError: If there is no such model, or it does not fit the images.
    """
    check_model(name)
    if not name.startswith("timm:"):
        return MODELS[name](n_classes, channels, size)
    model, _, pixels = name.removeprefix("timm:").partition("@")
    network = from_timm(model, n_classes, channels, int(pixels or size))
    if pixels:
        network.backbone = _Enlarged(network.backbone, int(pixels))
    return network
