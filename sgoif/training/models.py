"""Networks. Every one is a `Network`: a backbone that gives penultimate features, and a linear head.

    features z = backbone(x)  [n, d]          logits f = scale * (W z + b)  [n, K]

`stages` are the modules whose outputs post-hoc methods may hook, shallow to deep.
"""

import torch
from torch import nn

from sgoif.errors import UserError


class Network(nn.Module):
    def __init__(self, backbone: nn.Module, head: nn.Linear, stages: list[nn.Module], scale: float = 1.0):
        super().__init__()
        self.backbone, self.head, self.scale = backbone, head, scale
        self._stages = tuple(stages)  # a tuple, so that the modules are not registered twice

    @property
    def stages(self) -> tuple[nn.Module, ...]:
        return self._stages

    def features(self, x):
        return self.backbone(x)

    def classify(self, z):
        return self.scale * self.head(z)

    def forward(self, x):
        return self.classify(self.features(x))

    def linear(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Effective last layer (W [K, d], b [K]) with the logit scale folded in."""
        return self.scale * self.head.weight.detach(), self.scale * self.head.bias.detach()


def conv_block(c_in: int, c_out: int, pool: bool = False) -> nn.Sequential:
    """3x3 convolution, batch norm, ReLU. Pooling stands before the norm: a quarter of the memory traffic."""
    layers = [nn.Conv2d(c_in, c_out, 3, padding=1, bias=False)]
    if pool:
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.BatchNorm2d(c_out), nn.ReLU(inplace=True))


class Residual(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.body = nn.Sequential(conv_block(channels, channels), conv_block(channels, channels))

    def forward(self, x):
        return x + self.body(x)


class GlobalMax(nn.Module):
    """The largest value of each channel. (Adaptive max-pooling says the same, much slower in channels-last memory.)"""

    def forward(self, x):
        return x.amax((2, 3))


def small_cnn(n_classes: int, channels: int, size: int) -> Network:
    """Three convolutions for 8x8 images: trains in about a second on one core."""
    stages = [conv_block(channels, 16), conv_block(16, 32, pool=True), conv_block(32, 64, pool=True)]
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return Network(nn.Sequential(*stages, pool), nn.Linear(64, n_classes), stages)


def lenet5(n_classes: int, channels: int, size: int) -> Network:
    """LeNet-5 with ReLU: penultimate width 84, as in OpenOOD's MNIST benchmark."""
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
    """The fast CIFAR network of the DAWNBench entries; logits scaled by 1/8."""
    w = width
    stages = [
        conv_block(channels, w),
        nn.Sequential(conv_block(w, 2 * w, pool=True), Residual(2 * w)),
        conv_block(2 * w, 4 * w, pool=True),
        nn.Sequential(conv_block(4 * w, 8 * w, pool=True), Residual(8 * w)),
    ]
    return Network(nn.Sequential(*stages, GlobalMax()), nn.Linear(8 * w, n_classes), stages, scale=0.125)


class BasicBlock(nn.Module):
    def __init__(self, c_in: int, c_out: int, stride: int):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(c_out),
            nn.ReLU(inplace=True),
            nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(c_out),
        )
        same = stride == 1 and c_in == c_out
        self.skip = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(c_in, c_out, 1, stride, bias=False), nn.BatchNorm2d(c_out))
        )

    def forward(self, x):
        return torch.relu(self.body(x) + self.skip(x))


def resnet18(n_classes: int, channels: int, size: int) -> Network:
    """ResNet-18 with the CIFAR stem (3x3, no max-pool), penultimate width 512."""
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

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model.forward_head(self.model.forward_features(x), pre_logits=True)


def from_timm(name: str, n_classes: int, channels: int, size: int, pretrained: bool = False) -> Network:
    import timm

    if not timm.is_model(name):
        near = timm.list_models(f"*{name[:6]}*")[:5]
        raise UserError(f"model timm:{name}: timm has no such model" + (f"; near: {', '.join(near)}" if near else ""))
    try:
        model = timm.create_model(name, pretrained, num_classes=n_classes, in_chans=channels, img_size=size)
    except TypeError:  # convolutional models take no image size
        model = timm.create_model(name, pretrained, num_classes=n_classes, in_chans=channels)
    head = model.get_classifier()
    if not isinstance(head, nn.Linear):
        raise UserError(f"model timm:{name}: its classifier is a {type(head).__name__}, not a linear layer")
    modules = dict(model.named_modules())
    stages = [modules[info["module"]] for info in getattr(model, "feature_info", []) if info["module"] in modules]
    model.reset_classifier(0)
    return Network(_TimmBackbone(model), nn.Linear(head.in_features, n_classes), stages)


MODELS = {f.__name__: f for f in (small_cnn, lenet5, resnet9, resnet18)}


def check_model(name: str) -> None:
    if name not in MODELS and not name.startswith("timm:"):
        raise UserError(f"recipe.model: no model {name!r}; there are: {', '.join(MODELS)}, or timm:<name>")


def build(name: str, n_classes: int, channels: int, size: int) -> Network:
    """A freshly initialised network; initial weights follow torch's global seed."""
    check_model(name)
    if name.startswith("timm:"):
        return from_timm(name.removeprefix("timm:"), n_classes, channels, size)
    return MODELS[name](n_classes, channels, size)
