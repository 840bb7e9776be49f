"""ReAct, rectified activations (Sun, Guo & Li, NeurIPS 2021).

c    = p-th percentile of all penultimate activations of the ID validation images (one number, not one per unit)
s(x) = -log sum_k exp(f'_k),   f' = W min(z(x), c) + b

The ID accuracy is that of f', the network the method really uses.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from sgoif.bench.methods.base import OODDetector, OODTask
from sgoif.bench.methods.features import check_param, features_and_logits, percentile
from sgoif.training.images import ImageSet


class ReAct(OODDetector):
    name = "react"
    title = "ReAct"
    group = "Energy and gradient"
    order = 3

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
        self.threshold = percentile(features_and_logits(self.net, task.val, self.name)[0], self.params.percentile)

    def logits(self, images: ImageSet) -> Tensor:
        features, _ = features_and_logits(self.net, images, self.name)
        return self.clipped_logits(features, self.threshold, *self.net.linear())

    def score(self, images: ImageSet) -> Tensor:
        return -self.logits(images).logsumexp(1)
