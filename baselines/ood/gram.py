"""Gram matrices (Sastry & Oore, ICML 2020).

For the output F [C, HW] of every stage l and every power p = 1 … 5 (^ and | | element by element)

    g_{l,p}(x)  = sign(r) |r|^{1/p},   r = row sums of F^p (F^p)^T                                   [C]
    delta_l(x)  = sum_{p,c} relu(lo - g)/|lo + 1e-6| + relu(g - hi)/|hi + 1e-6|

where lo, hi [C] are the smallest and largest g_{l,p,c} of the training images of the class that is *predicted* for x.

    s(x) = sum_l delta_l(x) / E[delta_l]  /  max_k softmax(f(x))_k,   E over a tenth of the training images, held out

Only the extremes are kept: memory is K x C x powers per stage, whatever the number of images.

Paper: Detecting Out-of-Distribution Examples with Gram Matrices, ICML 2020.
Code: https://github.com/VectorInstitute/gram-ood-detection; OpenOOD's `gram`.
Settings: powers 1 to 5 (the paper: 1 to 10; OpenOOD: 1 to 5); a tenth of the training images held out for the
    normaliser.
Deviations: stages instead of every convolution and residual block; training images are held out for the normaliser (the
    paper: validation images). Bounds are by label, as in OpenOOD (the authors: by predicted class).
Parity: tests/parity/test_ood_anomaly.py::test_gram_statistics_by_the_definition
Score: the sum of normalised deviations over the confidence.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.features import check_param, stage_outputs
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.images import ImageSource
from sgoif.training.seeds import numpy_generator


class Gram(OODDetector):
    name = "gram"
    title = "Gram"
    group = "Anomaly detection"
    order = 4

    @dataclass(frozen=True)
    class Params:
        powers: tuple[int, ...] = (1, 2, 3, 4, 5)
        held_out: float = 0.1

        def __post_init__(self):
            object.__setattr__(self, "powers", tuple(self.powers))
            ok = bool(self.powers) and all(p >= 1 for p in self.powers)
            check_param(ok, "gram.powers", "whole numbers of at least 1", self.powers)
            check_param(0 < self.held_out < 1, "gram.held_out", "a share between 0 and 1", self.held_out)

    @staticmethod
    def statistics(maps: Tensor, powers: tuple[int, ...]) -> Tensor:
        """[n, P, C] row sums of the Gram matrices of maps [n, C, H, W], without forming the C x C matrices."""
        f = maps.flatten(2)
        peak = f.abs().amax((1, 2), keepdim=True).clamp_min(1e-30)  # g is homogeneous of degree 2: no overflow
        f = f / peak
        rows = []
        for p in powers:
            fp = f**p
            r = (fp @ fp.sum(1)[:, :, None])[:, :, 0]
            rows.append(r.sign() * r.abs() ** (1 / p))
        return torch.stack(rows, 1) * peak**2

    @staticmethod
    def deviation(g: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """[n] how far g [n, P, C] lies outside [low, high], relative to the bounds."""
        below = (low - g).relu() / (low + 1e-6).abs()
        above = (g - high).relu() / (high + 1e-6).abs()
        return (below + above).sum((1, 2))

    def fit(self, task: OODTask) -> None:
        super().fit(task)
        n = len(task.train)
        order = numpy_generator(task.seed, self.name).permutation(n)
        held = max(round(self.params.held_out * n), 1)
        self.low: list[Tensor] = []  # per stage [K, P, C]
        self.high: list[Tensor] = []
        for inner in stage_outputs(self.net, task.train, self.name, indices=order[held:]):
            self._widen([self.statistics(m, self.params.powers) for m in inner.maps], task.labels[inner.index])
        self._fill_unseen()
        held_out = [self._deviations(i) for i in stage_outputs(self.net, task.train, self.name, indices=order[:held])]
        mean = torch.cat(held_out).mean(0)
        self.expected = torch.where(mean > 0, mean, torch.ones_like(mean))  # [L]

    def _widen(self, stats: list[Tensor], labels: Tensor) -> None:
        """Extend the bounds of every class by the images of a batch."""
        if not self.low:
            shapes = [(self.task.n_classes, *g.shape[1:]) for g in stats]
            self.low = [torch.full(s, torch.inf, device=labels.device) for s in shapes]
            self.high = [-low for low in self.low]
        for low, high, g in zip(self.low, self.high, stats, strict=True):
            where = labels[:, None, None].expand_as(g)
            low.scatter_reduce_(0, where, g, "amin")
            high.scatter_reduce_(0, where, g, "amax")

    def _fill_unseen(self) -> None:
        """A class without a training image gets the bounds of all classes together."""
        self.low = [torch.where(low.isinf(), low.amin(0, keepdim=True), low) for low in self.low]
        self.high = [torch.where(high.isinf(), high.amax(0, keepdim=True), high) for high in self.high]

    def _deviations(self, inner) -> Tensor:
        """[n, L] deviation of every stage from the bounds of the predicted class."""
        predicted = inner.logits.argmax(1)
        stats = (self.statistics(m, self.params.powers) for m in inner.maps)
        bounds = zip(stats, self.low, self.high, strict=True)
        return torch.stack([self.deviation(g, low[predicted], high[predicted]) for g, low, high in bounds], 1)

    def score(self, images: ImageSource) -> Tensor:
        scores = []
        for inner in stage_outputs(self.net, images, self.name):
            total = (self._deviations(inner) / self.expected).sum(1)
            scores.append(total / inner.logits.softmax(1).amax(1))
        return torch.cat(scores)
