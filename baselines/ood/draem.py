"""DRAEM, discriminatively trained reconstruction anomaly embedding (Zavrtanik, Kristan & Skocaj, ICCV 2021).

A reconstruction network R (no skip connections) learns to undo synthetic defects, a discriminative U-Net D learns where
they were from the pair (R(x'), x'). A defect is a texture inside a thresholded Perlin mask M, in every second image:

    x'   = (1 - M) x + M ((1 - b) texture + b x),     M = [Perlin > 0.5],  b ~ U[0, 0.8]
    loss = ||R(x') - x||^2 + (1 - SSIM(R(x'), x)) + focal(D(R(x'), x'), M)
    s(x) = max over the average-pooled defect probability of D

Textures are made in code (colour-mapped fractal Perlin noise): the paper's source, DTD, is itself a test OOD set here.
Depth, width, pooling window (21 of 256 pixels) and Perlin scales (2^0 … 2^5) follow the size of the image.
Adam; the paper's rate 1e-4 is for 700 epochs of far wider networks, here 3e-3 (finds synthetic defects in ID validation
images best within `steps`); x0.2 at 80 % and 90 % as in the paper.

Paper: DRAEM: A Discriminatively Trained Reconstruction Embedding for Surface Anomaly Detection, ICCV 2021.
Code: https://github.com/VitjanZ/DRAEM; OpenOOD's `draem`.
Settings: opacity up to 0.8, every second image spoiled; Adam 3e-3, x0.2 at 80 and 90 %.
Deviations: textures are generated, since the paper's source DTD is a test set here; depth, width, pooling window and
    Perlin scales follow the size of the image; the rate is higher and the training shorter than 700 epochs at 1e-4;
    weights start as torch's do (released: N(0, 0.02)), and the SSIM reflects at the border (released: zeros). It looks
    for local defects.
Parity: tests/parity/test_ood_anomaly.py::test_ssim_by_the_formula
Score: the largest average-pooled defect probability.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.features import check_param, finite
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.cost.compute_counter import COMPUTE
from sgoif.training.images import ImageSource
from sgoif.training.learner import Learner
from sgoif.training.seeds import mix_seed, seeded_weights, torch_generator


def block(c_in: int, c_out: int) -> nn.Sequential:
    layers = []
    for c in (c_in, c_out):
        layers += [nn.Conv2d(c, c_out, 3, padding=1, bias=False), nn.BatchNorm2d(c_out), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Encoder and decoder of `depth` halvings; with or without skip connections."""

    def __init__(self, c_in: int, c_out: int, width: int, depth: int, skips: bool):
        super().__init__()
        widths = [min(width * 2**i, 8 * width) for i in range(depth + 1)]
        self.down = nn.ModuleList(block(a, b) for a, b in zip([c_in, *widths[:-1]], widths, strict=True))
        joined = [a + b if skips else b for a, b in pairwise(widths)]
        self.up = nn.ModuleList(block(a, b) for a, b in zip(joined, widths[:-1], strict=True))
        self.out, self.skips = nn.Conv2d(width, c_out, 1), skips

    def forward(self, x: Tensor) -> Tensor:
        levels = []
        for i, down in enumerate(self.down):
            x = down(x if i == 0 else F.max_pool2d(x, 2))
            levels.append(x)
        for level, up in zip(reversed(levels[:-1]), reversed(self.up), strict=True):
            x = F.interpolate(x, level.shape[2:], mode="bilinear")
            x = up(torch.cat([level, x], 1) if self.skips else x)
        return self.out(x)


class TwoNets(nn.Module):
    """x' [n, C, H, W] -> [n, C + 2, H, W]: the reconstruction and the two logits of every pixel."""

    def __init__(self, channels: int, width: int, depth: int):
        super().__init__()
        self.reconstruct = UNet(channels, channels, width, depth, skips=False)
        self.discriminate = UNet(2 * channels, 2, max(width // 2, 8), depth, skips=True)

    def forward(self, x: Tensor) -> Tensor:
        clean = self.reconstruct(x)
        return torch.cat([clean, self.discriminate(torch.cat([clean, x.to(clean.dtype)], 1))], 1)


class Drawn(NamedTuple):
    """What the defects of n images of `size` pixels are made of; u are uniform numbers, o octaves of a texture."""

    cells: Tensor  # [(1 + o) n, 2] lattice cells per side, of the masks and then of every octave
    angles: Tensor  # u [(1 + o) n, m, m] of the lattice, m the most cells there can be
    turn: Tensor  # u [(1 + o) n, 1, 1]
    frequency: Tensor  # u [n, 1, 1, 1]
    phase: Tensor  # u [n, C, 1, 1]
    spoiled: Tensor  # u [n, 1, 1, 1]
    opacity: Tensor  # u [n, 1, 1, 1]


def draw(n: int, channels: int, size: int, g: torch.Generator, octaves: int = 3) -> Drawn:
    """On the CPU: the same on every device."""
    top = max_exponent(size)
    mask, coarse = torch.randint(0, top + 1, (2, n, 2), generator=g)
    exponents = [mask] + [(coarse + o).clamp_max(top) for o in range(octaves)]
    layers = (1 + octaves) * n
    shapes = (layers, 2**top, 2**top), (layers, 1, 1), (n, 1, 1, 1), (n, channels, 1, 1), (n, 1, 1, 1), (n, 1, 1, 1)
    return Drawn(2 ** torch.cat(exponents), *(torch.rand(shape, generator=g) for shape in shapes))


def perlin(size: int, cells: Tensor, angles: Tensor, turn: Tensor) -> Tensor:
    """[n, size, size] gradient noise in [-1, 1], turned by an angle; for numbers as in `Drawn`."""
    max_cells = angles.shape[1]
    angles, turn = angles * 2 * math.pi, (turn - 0.5) * math.pi
    axis = (torch.arange(size, device=cells.device) + 0.5) / size - 0.5
    y, x = axis[:, None].expand(size, size), axis.expand(size, size)
    v = (turn.cos() * y - turn.sin() * x + 0.5) * cells[:, 0, None, None]
    u = (turn.sin() * y + turn.cos() * x + 0.5) * cells[:, 1, None, None]
    iv, iu = v.floor(), u.floor()
    fv, fu = v - iv, u - iu

    def corner(dv: int, du: int) -> Tensor:
        where = (iv + dv) % max_cells * max_cells + (iu + du) % max_cells  # the lattice repeats
        angle = angles.flatten(1).gather(1, where.long().flatten(1)).view_as(v)
        return angle.sin() * (fv - dv) + angle.cos() * (fu - du)

    def fade(t: Tensor) -> Tensor:
        return t**3 * (t * (t * 6 - 15) + 10)

    top = torch.lerp(corner(0, 0), corner(0, 1), fade(fu))
    bottom = torch.lerp(corner(1, 0), corner(1, 1), fade(fu))
    return math.sqrt(2) * torch.lerp(top, bottom, fade(fv))


def max_exponent(size: int) -> int:
    """Finest Perlin scale 2^e: the paper's 5, but at least two pixels per cell."""
    return max(min(5, int(math.log2(size)) - 1), 0)


def defects(size: int, d: Drawn) -> tuple[Tensor, Tensor]:
    """Masks [n, 1, size, size] of 0 and 1, and textures [n, C, size, size] in [0, 1].

    A texture is fractal noise through a random wave per colour: veins, stripes, clouds.
    """
    mask, *noise = perlin(size, d.cells, d.angles, d.turn).split(len(d.phase))
    fractal = sum(0.5**o * layer for o, layer in enumerate(noise))[:, None]
    wave = (0.5 + 2.5 * d.frequency) * fractal + d.phase
    return (mask > 0.5)[:, None].float(), 0.5 + 0.5 * (2 * math.pi * wave).sin()


def ssim(a: Tensor, b: Tensor, window: int = 11, sigma: float = 1.5) -> Tensor:
    """Mean structural similarity of images in [0, 1]; Gaussian window, reflected border."""
    window = min(window, a.shape[2] - 1 + a.shape[2] % 2)  # odd, and no larger than the image
    axis = torch.arange(window, device=a.device, dtype=a.dtype) - window // 2
    line = (-(axis**2) / (2 * sigma**2)).exp()
    line = line / line.sum()

    border = F.pad(torch.eye(a.shape[2], device=a.device, dtype=a.dtype)[None], (0, 0) + (window // 2,) * 2, "reflect")
    blur = border[0].unfold(0, window, 1) @ line  # [S, S]: a small matrix product is faster than a convolution
    ma, mb, aa, bb, ab = blur @ torch.stack([a, b, a * a, b * b, a * b]) @ blur.T  # local means
    va, vb, cov = aa - ma**2, bb - mb**2, ab - ma * mb
    c1, c2 = 0.01**2, 0.03**2
    return ((2 * ma * mb + c1) * (2 * cov + c2) / ((ma**2 + mb**2 + c1) * (va + vb + c2))).mean()


def focal(logits: Tensor, target: Tensor, gamma: float = 2.0) -> Tensor:
    """Mean of -(1 - p)^gamma log p, p the probability of the right one of two classes."""
    log_p = logits.log_softmax(1).gather(1, target.long())
    return (-((1 - log_p.exp()) ** gamma) * log_p).mean()


class DRAEM(OODDetector):
    name = "draem"
    title = "DRAEM"
    group = "Anomaly detection"
    order = 2

    @dataclass(frozen=True)
    class Params:
        epochs: float = 1.0  # share of the recipe's epochs
        width: int | None = None  # first level's channels; None: the image's size, between 8 and 128
        lr: float = 3e-3
        steps: int = 250  # at least so many: batches get smaller on small data, down to the paper's 8
        opacity: float = 0.8  # largest b

        def __post_init__(self):
            for field in ("epochs", "lr", "steps"):
                value = getattr(self, field)
                check_param(value > 0, f"draem.{field}", "must be above 0", value)
            check_param(self.width is None or self.width >= 1, "draem.width", "must be at least 1", self.width)
            check_param(0 <= self.opacity <= 1, "draem.opacity", "a share", self.opacity)

    @staticmethod
    def depth(size: int) -> int:
        """Halvings down to about 4 pixels, at most the paper's 5."""
        return max(min(5, int(math.log2(size)) - 2), 1)

    @staticmethod
    def pooled_max(defect: Tensor) -> Tensor:
        """[n] largest local average of the maps [n, H, W]."""
        window = max(round(21 / 256 * defect.shape[2]) // 2 * 2 + 1, 3)
        return F.avg_pool2d(defect[:, None], window, stride=1, padding=window // 2).amax((1, 2, 3))

    @staticmethod
    def spoil(x: Tensor, opacity: float, d: Drawn) -> tuple[Tensor, Tensor]:
        """Images in [0, 1] with a defect in at most half of them, and where it is [n, 1, H, W]."""
        mask, texture = defects(x.shape[2], d)
        mask, beta = mask * (d.spoiled < 0.5), opacity * d.opacity
        return (1 - mask) * x + mask * ((1 - beta) * texture + beta * x), mask

    def fit(self, task: OODTask) -> None:
        super().fit(task)
        p, images = self.params, task.train
        width = max(8, min(images.size, 128)) if p.width is None else p.width
        with seeded_weights(mix_seed(task.seed, self.name)):
            network = TwoNets(images.channels, width, self.depth(images.size))
        schedule = {"schedule": "step", "milestones": (0.8, 0.9), "gamma": 0.2}
        own = {"optimizer": "adam", "lr": p.lr, "weight_decay": 0.0, "compile": False}  # two networks, no backbone
        recipe = replace(task.recipe, **own, **schedule)
        epochs = max(round(p.epochs * recipe.epochs), 1)
        batch_size = min(recipe.batch_size, max(len(images) * epochs // p.steps, 8))
        batches = task.batches(batch_size=batch_size)
        learner = Learner.for_batches(recipe, 2, batches, task.seed, epochs, network=network)

        def undone_and_found(batch) -> tuple[Tensor]:
            clean = images.denormalise(batch.x)
            spoiled, mask = self.spoil(clean, p.opacity, Drawn(*batch.extra))
            out = learner(spoiled)
            back, logits = out[:, :-2], out[:, -2:]
            return (F.mse_loss(back, clean) + 1 - ssim(back, clean) + focal(logits, mask),)

        step = learner.stepper(undone_and_found)
        for epoch in task.session.epochs(epochs, learner, phase=self.name):
            g = torch_generator(task.seed, self.name, epoch)
            for batch in batches.epoch(epoch):
                step(batch.with_extra(*draw(len(batch.labels), images.channels, images.size, g)))
        self.detector = learner.net.eval()

    @torch.no_grad()
    def score(self, images: ImageSource) -> Tensor:
        scores = []
        for part in torch.arange(len(images), device=images.device).split(512):
            COMPUTE.forward_passes += len(part)
            out = self.detector(images.denormalise(images.batch(part)))
            scores.append(self.pooled_max(out[:, -2:].softmax(1)[:, 1]))
        return finite(torch.cat(scores), "draem: defect maps")
