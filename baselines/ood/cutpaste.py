"""CutPaste (Li, Sohn, Yoon & Pfister, CVPR 2021).

A network that starts from the ID classifier learns to tell an image from the same image with a piece of itself pasted
elsewhere (area 2-15 %, aspect 0.3-3.33 log-uniform, no colour jitter). Its embedding e(x) = z(x)/||z(x)|| is then
modelled by one Gaussian, fitted to the *normal* training images alone:

    s(x) = sqrt( (e - m)^T P (e - m) ),    m = mean_train e,   P = inverse of the Ledoit-Wolf covariance

Head: eight layers of the embedding's width d, one of d/4 (8 x 512 -> 128 for ResNet-18), each with batch norm and ReLU,
then 2 logits. SGD 0.03, weight decay 5e-4, cosine. The ID accuracy is that of the classifier it started from.

Paper: CutPaste: Self-Supervised Learning for Anomaly Detection and Localization, CVPR 2021.
Code: none by the authors; OpenOOD's `cutpaste`.
Settings: area 2 to 15 %, aspect 0.3 to 3.33, SGD 0.03, weight decay 5e-4, cosine; as many epochs as the recipe.
Deviations: the network starts from the ID classifier (the paper: from scratch or ImageNet) and reads no scar patches;
    no colour jitter. It looks for local defects, so that whole objects of other classes are not what it is made for.
Parity: tests/parity/test_ood_anomaly.py::test_cutpaste_pastes_by_a_loop
Score: the Mahalanobis distance of the embedding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.features import check_param, features_and_logits
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.images import ImageSource
from sgoif.training.learner import Learner
from sgoif.training.models import Network
from sgoif.training.seeds import mix_seed, seeded_weights, torch_generator


class CutPaste(OODDetector):
    name = "cutpaste"
    title = "CutPaste"
    group = "Anomaly detection"
    order = 1

    @dataclass(frozen=True)
    class Params:
        epochs: float = 1.0  # share of the recipe's epochs (each shows every image twice)
        lr: float = 0.03
        weight_decay: float = 5e-4
        depth: int = 8  # wide layers of the head
        area: tuple[float, float] = (0.02, 0.15)  # of the image
        aspect: tuple[float, float] = (0.3, 3.33)

        def __post_init__(self):
            for field in ("area", "aspect"):
                low, high = bounds = tuple(getattr(self, field))
                object.__setattr__(self, field, bounds)
                check_param(0 < low <= high, f"cutpaste.{field}", "two ascending numbers above 0", bounds)
            check_param(self.area[1] <= 1, "cutpaste.area", "shares of the image", self.area)
            for field in ("epochs", "lr"):
                value = getattr(self, field)
                check_param(value > 0, f"cutpaste.{field}", "must be above 0", value)
            check_param(self.depth >= 0, "cutpaste.depth", "must not be negative", self.depth)
            check_param(self.weight_decay >= 0, "cutpaste.weight_decay", "must not be negative", self.weight_decay)

    @staticmethod
    def boxes(n: int, size: int, area, aspect, generator: torch.Generator | None = None) -> Tensor:
        """[n, 6] whole numbers: height, width, row and column to cut from, row and column to paste to."""
        u = torch.rand(n, 6, generator=generator, dtype=torch.float64)
        pixels = (area[0] + (area[1] - area[0]) * u[:, 0]) * size**2
        ratio = aspect[0] * (aspect[1] / aspect[0]) ** u[:, 1]
        sides = torch.stack([(pixels * ratio).sqrt(), (pixels / ratio).sqrt()], 1).round().clamp(1, size)
        corners = (u[:, 2:] * (size + 1 - sides.repeat(1, 2))).floor()
        return torch.cat([sides, corners], 1).long()

    @staticmethod
    def paste(x: Tensor, boxes: Tensor) -> Tensor:
        """Images [n, C, S, S] with the box of each copied to another place of the same image."""
        height, width, row0, col0, row1, col1 = boxes.T[:, :, None]
        size = x.shape[2]
        span = torch.arange(size, device=x.device)
        rows, cols = span - row1, span - col1  # [n, S] position inside the box
        inside = ((rows >= 0) & (rows < height))[:, :, None] & ((cols >= 0) & (cols < width))[:, None, :]
        source = (rows + row0)[:, :, None] * size + (cols + col0)[:, None, :]
        here = torch.arange(size * size, device=x.device).view(size, size)
        source = torch.where(inside, source, here).flatten(1)
        return x.flatten(2).gather(2, source[:, None].expand(-1, x.shape[1], -1)).view(x.shape)

    @staticmethod
    def ledoit_wolf(points: Tensor) -> tuple[Tensor, Tensor, float]:
        """Mean [d], covariance [d, d] shrunk towards a multiple of the identity, and the shrinkage; in float64."""
        x = points.double()
        mean = x.mean(0)
        x = x - mean
        n, d = x.shape
        sample = x.T @ x / n
        scale = sample.trace() / d
        spread = sample.square().sum() - d * scale**2  # of the sample covariance around scale * I
        noise = (x.square().sum(1).square().sum() / n - sample.square().sum()) / n  # of its entries, expected
        shrinkage = float((noise / spread).clamp(0, 1)) if spread > 0 else 1.0
        identity = torch.eye(d, dtype=x.dtype, device=x.device)
        return mean, (1 - shrinkage) * sample + shrinkage * scale * identity, shrinkage

    @staticmethod
    def mahalanobis(points: Tensor, mean: Tensor, precision: Tensor) -> Tensor:
        away = points.double() - mean
        return ((away @ precision) * away).sum(1).clamp_min(0).sqrt()

    def head(self, width: int) -> nn.Sequential:
        widths = [width] * (self.params.depth + 1) + [max(width // 4, 2)]
        layers = []
        for a, b in pairwise(widths):
            layers += [nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU(inplace=True)]
        return nn.Sequential(*layers, nn.Linear(widths[-1], 2))

    def fit(self, task: OODTask) -> None:
        super().fit(task)
        p, start = self.params, task.plain.network()
        with seeded_weights(mix_seed(task.seed, self.name)):
            head = self.head(start.head.in_features)
        # not compiled: batches are twice as large as those of other methods, and would have to be compiled for
        own = {"optimizer": "sgd", "schedule": "cosine", "compile": False}
        recipe = replace(task.recipe, lr=p.lr, weight_decay=p.weight_decay, **own)
        epochs = max(round(p.epochs * recipe.epochs), 1)
        batches = task.batches()
        network = Network(start.backbone, head, start.stages).train()
        learner = Learner.for_batches(recipe, 2, batches, task.seed, epochs, network=network)

        def told_apart(batch) -> tuple[Tensor]:
            x, n = batch.x, len(batch.labels)
            is_pasted = (torch.arange(2 * n, device=x.device) >= n).long()
            return (F.cross_entropy(learner(torch.cat([x, self.paste(x, *batch.extra)])), is_pasted),)

        step = learner.stepper(told_apart)
        for epoch in task.session.epochs(epochs, learner, phase=self.name):
            g = torch_generator(task.seed, self.name, epoch)
            for batch in batches.epoch(epoch):
                step(batch.with_extra(self.boxes(len(batch.labels), task.train.size, p.area, p.aspect, g)))
        self.embedder = learner.net.eval()
        self.mean, covariance, self.shrinkage = self.ledoit_wolf(self._embed(task.train))
        self.precision = torch.linalg.inv(covariance)

    def _embed(self, images: ImageSource) -> Tensor:
        return F.normalize(features_and_logits(self.embedder, images, self.name)[0])

    def score(self, images: ImageSource) -> Tensor:
        return self.mahalanobis(self._embed(images), self.mean, self.precision)

    def extras(self) -> dict[str, float]:
        return {"shrinkage": self.shrinkage}
