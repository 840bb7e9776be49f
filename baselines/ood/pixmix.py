"""PixMix (Hendrycks, Zou, Mazeika et al., CVPR 2022): training images mixed with pictures of rich structure.

With probability 1/2 start from an augmented copy of x. Then, j ~ U{0 … k} times, mix in (1/2) another augmented copy
of x or (1/2) the image's mixing picture m, and clip to [0, 1], everything in pixel values on the scale 0 … 1:

    add:  (a (2x - 1) + b (2m - 1) + 1) / 2        multiply:  (2x)^a max(2m, 1e-37)^b / 2
    (a, b) = (Beta(beta, 1), Beta(1, beta))  or  (1 + Beta(1, beta), -Beta(1, beta)),  each with probability 1/2

Score: s(x) = -max_k softmax(f(x))_k. Training is otherwise the dataset's recipe.

The augmented copy is one of the 13 operations at severity 3 (AugMix's ranges), here on whole batches of tensors:
autocontrast, equalize, posterize, solarize; rotate, shear x, shear y, translate x, translate y (bilinear, black
border); color, contrast, brightness, sharpness. Difference from the paper: the mixing set is generated
(`sgoif.bench.methods.ood.fractals`), with no downloaded fractals or feature visualisations; nothing of it
comes from an OOD test set.

Paper: PixMix: Dreamlike Pictures Comprehensively Improve Safety Measures, CVPR 2022.
Code: https://github.com/andyzoujm/pixmix; OpenOOD's `pixmix`.
Settings: k = 4, beta = 3, severity 3, the paper's for CIFAR.
Deviations: 2,000 generated pictures in the place of downloaded fractals and feature visualisations; operations on
    batches of tensors.
Parity: tests/parity/test_ood_pixmix.py::test_pixmix_add_and_multiply_are_pytorch_oods
Score: the negative largest softmax probability.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.fractals import fractals
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.images import ImageSource
from sgoif.training.seeds import mix_seed

TONE = ("autocontrast", "equalize", "posterize", "solarize")
GEOMETRY = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
BLEND = ("color", "contrast", "brightness", "sharpness")
OPERATIONS = TONE + GEOMETRY + BLEND


def grey(x: Tensor) -> Tensor:
    """Luma [n, 1, H, W]."""
    if x.shape[1] != 3:
        return x.mean(1, keepdim=True)
    return 0.299 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:]


def tone(name: str, x: Tensor, level: Tensor) -> Tensor:
    if name == "autocontrast":
        low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
        return torch.where(high > low, (x - low) / (high - low).clamp_min(1e-6), x)
    if name == "equalize":
        from torchvision.transforms.v2 import functional as V

        return V.equalize((x * 255).round().to(torch.uint8)).float() / 255
    level = level.view(-1, 1, 1, 1)
    if name == "posterize":
        width = 2.0 ** (4 + (level * 0.4).floor())  # 4 bits left, or 3 at a level of 2.5 and more
        return ((x * 255).round() / width).floor() * width / 255
    return torch.where(x * 255 < 256 - (level * 25.6).floor(), x, 1 - x)  # solarize


def geometry(kind: Tensor, x: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """One affine resampling per image; the grid maps output to input, in units of half an image.

    kind [n] are positions in GEOMETRY.
    """
    angle = torch.deg2rad((level * 3).floor()) * sign * (kind == 0)
    shear, move = level * 0.03 * sign, (level * x.shape[2] / 30).floor() * 2 / x.shape[2] * sign
    cos, sin = angle.cos(), angle.sin()
    across, down = shear * (kind == 1), shear * (kind == 2)  # about the upper left corner, as Pillow does
    first = torch.stack([cos, -sin + across, move * (kind == 3) + across], 1)
    second = torch.stack([sin + down, cos, move * (kind == 4) + down], 1)
    grid = F.affine_grid(torch.stack([first, second], 1), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, padding_mode="zeros", align_corners=False)


def blend(name: str, x: Tensor, level: Tensor) -> Tensor:
    """factor * x + (1 - factor) * (x without colour, contrast, light or edges)."""
    factor = (level * 0.18 + 0.1).view(-1, 1, 1, 1)
    if name == "color":
        poor = grey(x).expand_as(x)
    elif name == "contrast":
        poor = grey(x).mean((2, 3), keepdim=True)
    elif name == "brightness":
        poor = torch.zeros_like(x)
    else:
        poor = x.clone()  # the border stays as it is
        inner = poor[:, :, 1:-1, 1:-1]
        inner.mul_(4 / 13).add_(F.avg_pool2d(x, 3, stride=1), alpha=9 / 13)
    return factor * x + (1 - factor) * poor


def augmented(x: Tensor, times: int, severity: float) -> Tensor:
    """[times, n, C, H, W]: each image [n, C, H, W] in 0 … 1 after one random operation, anew each time.

    What is drawn is drawn on the CPU, so it is known there how many images an operation gets: they are laid side by
    side, and nothing waits for the device.
    """
    n = times * len(x)
    chosen = torch.randint(len(OPERATIONS), (n,))
    level = 0.1 + (severity - 0.1) * torch.rand(n)
    sign = torch.where(torch.rand(n) < 0.5, -1.0, 1.0)
    order = chosen.argsort(stable=True)
    ends = [0, *chosen.bincount(minlength=len(OPERATIONS)).cumsum(0).tolist()]
    kind, level, sign = torch.stack([chosen - len(TONE), level, sign])[:, order].to(x.device, non_blocking=True)
    order = order.to(x.device, non_blocking=True)
    # channels last, as batches are: a network that was compiled for them is not compiled again
    done = torch.empty(n, *x.shape[1:], device=x.device).contiguous(memory_format=torch.channels_last)
    source = x[order % len(x)]

    def lot(first: int, last: int) -> slice:
        return slice(ends[first], ends[last])

    for i, name in enumerate(OPERATIONS):
        at = lot(i, i + 1)
        if name not in GEOMETRY and at.start < at.stop:
            done[at] = (tone if name in TONE else blend)(name, source[at], level[at])
    at = lot(len(TONE), len(TONE + GEOMETRY))
    if at.start < at.stop:
        done[at] = geometry(kind[at], source[at], level[at], sign[at])
    out = torch.empty_like(done)
    out[order] = done
    return out.view(times, *x.shape)


def coefficients(n: int, beta: float) -> tuple[Tensor, Tensor]:
    """(a, b) of n mixtures [n]; u^(1/beta) of a uniform u is Beta(beta, 1), and 1 - u^(1/beta) is Beta(1, beta)."""
    u, v = torch.rand(2, n) ** (1 / beta)
    positive = torch.rand(n) < 0.5
    return torch.where(positive, u, 2 - u), torch.where(positive, 1 - v, v - 1)


def add(x: Tensor, m: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return (a * (2 * x - 1) + b * (2 * m - 1) + 1) / 2


def multiply(x: Tensor, m: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return (2 * x) ** a * (2 * m).clamp_min(1e-37) ** b / 2


def choices(n: int, rounds: int, beta: float) -> Tensor:
    """What is drawn to mix n images, on the CPU, [2 + 4 rounds, n]: a coin (0 or 1) whether to start from a copy, how
    many rounds; and for each round a coin for a copy or the picture, a and b, a coin for adding or multiplying."""

    def coin() -> Tensor:
        return (torch.rand(n) < 0.5).float()

    rows = [coin(), torch.randint(rounds + 1, (n,)).float()]
    for _ in range(rounds):
        rows += [coin(), *coefficients(n, beta), coin()]
    return torch.stack(rows)


def mixed(x: Tensor, copies: Tensor, pictures: Tensor, drawn: Tensor) -> Tensor:
    """Mixed images [n, C, H, W]; x and pictures [n, C, H, W], copies [1 + rounds, n, C, H, W], all in 0 … 1."""
    start, times, *rest = drawn[:, :, None, None, None]
    x = torch.where(start > 0, copies[0], x)
    for r, copy in enumerate(copies[1:]):
        take, a, b, plus = rest[4 * r : 4 * r + 4]
        other = torch.where(take > 0, copy, pictures)
        new = torch.where(plus > 0, add(x, other, a, b), multiply(x, other, a, b)).clamp(0, 1)
        x = torch.where(times > r, new, x)
    return x


def places(n: int, pictures: Tensor, size: int) -> Tensor:
    """Which picture, and the row and column to cut `size` pixels from, n times, on the CPU, [3, n]."""
    corner = pictures.shape[1] - size + 1
    return torch.cat([torch.randint(len(pictures), (1, n)), torch.randint(corner, (2, n))])


def crops(pictures: Tensor, where: Tensor, size: int) -> Tensor:
    """Cut at `places`: uint8 [N, S, S, C] -> [n, C, size, size] in 0 … 1."""
    pick, row, col = where[:, :, None]
    span = torch.arange(size, device=where.device)
    cut = pictures[pick[:, :, None], (row + span)[:, :, None], (col + span)[:, None, :]]
    return cut.permute(0, 3, 1, 2).float() / 255


class PixMix(OODDetector):
    name = "pixmix"
    title = "PixMix"
    group = "Augmentation (so called)"
    order = 3
    reads_plain = False

    @dataclass(frozen=True)
    class Params:
        pictures: int = 2000  # size of the mixing set; no more than training images
        k: int = 4
        beta: float = 3.0
        severity: float = 3.0

    def __init__(self, **params):
        super().__init__(**params)
        self.need(self.params.pictures >= 1, "pictures", "at least 1")
        self.need(self.params.k >= 0, "k", "must not be negative")
        self.need(self.params.beta > 0, "beta", "must be above 0")
        self.need(self.params.severity >= 0.1, "severity", "at least 0.1")

    def fit(self, task: OODTask) -> None:
        p, images, batches = self.params, task.train, task.batches()
        border = max(images.size // 8, 1)  # 32 pixels are cut out of 36
        n = min(p.pictures, len(images))
        seed = mix_seed(task.seed, "fractals")
        pictures = fractals(n, images.size + border, images.channels, seed, images.device)
        mean, std = (torch.tensor(v, device=images.device).view(1, -1, 1, 1) for v in (images.mean, images.std))
        learner = task.learner(batches)

        def on_mixed(batch) -> tuple[Tensor]:
            x, copies, where, drawn = batch.extra
            x = mixed(x, copies, crops(pictures, where, images.size), drawn)
            return (F.cross_entropy(learner((x - mean) / std), batch.labels),)

        step = learner.stepper(on_mixed)
        for epoch in task.session.epochs(task.recipe.epochs, learner):
            for batch in batches.epoch(epoch):
                where = places(len(batch.labels), pictures, images.size)
                x = images.denormalise(batch.x).clamp(0, 1)
                copies = augmented(x, 1 + p.k, p.severity)
                step(batch.with_extra(x, copies, where, choices(len(x), p.k, p.beta)))
        self.task, self.net = task, learner.net

    def score(self, images: ImageSource) -> Tensor:
        return -self.logits(images).softmax(1).amax(1)
