"""SCALE (Xu, Chen, Franchi & Yao, ICLR 2024): features scaled by how concentrated they are, and not pruned.

    r(x) = sum(z) / sum(the largest (100 - p) % of z)
    s(x) = -log sum_k exp(f'_k),   f' = W (exp(r) z) + b

Paper: Scaling for Training Time and Post-hoc Out-of-distribution Detection Enhancement, ICLR 2024.
Code: https://github.com/kai422/SCALE; OpenOOD's `scale`.
Settings: p = 85, the paper's and OpenOOD's before its sweep.
Deviations: the paper's training (ISH) is not run. `scale@searched` chooses p on OOD validation images, as OpenOOD
    does.
Parity: tests/parity/test_ood_posthoc_later.py::test_scale
Score: the energy of the scaled features; the ID accuracy is that of f', the network the method really uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.features import check_param, features_and_logits, largest
from sgoif.training.images import ImageSource


class SCALE(OODDetector):
    name = "scale"
    title = "SCALE"
    group = "Post hoc, not in the paper"
    order = 8
    sweep: ClassVar = {"percentile": (65.0, 70.0, 75.0, 80.0, 85.0, 90.0, 95.0)}

    @dataclass(frozen=True)
    class Params:
        percentile: float = 85.0

        def __post_init__(self):
            check_param(0 <= self.percentile < 100, "scale.percentile", "must be in [0, 100)", self.percentile)

    @staticmethod
    def scaled(features: Tensor, percent: float) -> Tensor:
        kept = (features * largest(features, percent)).sum(1, keepdim=True).clamp_min(1e-12)
        return features * (features.sum(1, keepdim=True) / kept).exp()

    def logits(self, images: ImageSource) -> Tensor:
        features, _ = features_and_logits(self.net, images, self.name)
        weight, bias = self.net.linear()
        return self.scaled(features, self.params.percentile) @ weight.T + bias

    def score(self, images: ImageSource) -> Tensor:
        return -self.logits(images).logsumexp(1)
