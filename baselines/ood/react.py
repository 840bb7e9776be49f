"""ReAct, rectified activations (Sun, Guo & Li, NeurIPS 2021).

c    = p-th percentile of all penultimate activations of the ID validation images (one number, not one per unit)
s(x) = -log sum_k exp(f'_k),   f' = W min(z(x), c) + b

Paper: ReAct: Out-of-distribution Detection With Rectified Activations, NeurIPS 2021.
Code: https://github.com/deeplearning-wisc/react; OpenOOD's `react`.
Settings: p = 90, the paper's and OpenOOD's before its sweep.
Deviations: none; `react@searched` chooses p on OOD validation images, as OpenOOD does.
Parity: tests/parity/test_ood_posthoc.py::test_react
Score: the energy of the clipped features; the ID accuracy is that of f', the network the method really uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.features import check_param, features_and_logits, percentile
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.images import ImageSource


class ReAct(OODDetector):
    name = "react"
    title = "ReAct"
    group = "Energy and gradient"
    order = 3
    sweep: ClassVar = {"percentile": (85.0, 90.0, 95.0, 99.0)}

    @dataclass(frozen=True)
    class Params:
        percentile: float = 90.0

        def __post_init__(self):
            check_param(0 < self.percentile <= 100, "react.percentile", "must be in (0, 100]", self.percentile)

    @staticmethod
    def clipped_logits(features: Tensor, threshold: float, weight: Tensor, bias: Tensor) -> Tensor:
        return features.clamp_max(threshold) @ weight.T + bias

    def fit(self, task: OODTask) -> None:
        super().fit(task)
        features, _ = features_and_logits(self.net, task.val, self.name)
        self.threshold = percentile(features, self.params.percentile)

    def logits(self, images: ImageSource) -> Tensor:
        features, _ = features_and_logits(self.net, images, self.name)
        return self.clipped_logits(features, self.threshold, *self.net.linear())

    def score(self, images: ImageSource) -> Tensor:
        return -self.logits(images).logsumexp(1)
