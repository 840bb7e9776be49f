"""GradNorm (Huang, Geng & Li, NeurIPS 2021).

Confidence is the L1 norm of the gradient, with respect to the last layer's weights (not its biases), of the cross
entropy between the uniform distribution u and softmax(f / T). That gradient is (p - u) z^T / T, so with K classes

    s(x) = -||z(x)||_1 * sum_k |p_k(x) - 1/K| / T          (OOD images have *smaller* gradients)
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.features import check_param, features_and_logits
from sgoif.training.images import ImageSet


class GradNorm(OODDetector):
    name = "gradnorm"
    title = "GradNorm"
    group = "Energy and gradient"
    order = 2

    @dataclass(frozen=True)
    class Params:
        temperature: float = 1.0

        def __post_init__(self):
            check_param(self.temperature > 0, "gradnorm.temperature", "must be above 0", self.temperature)

    @staticmethod
    def closed_form(features: Tensor, logits: Tensor, temperature: float = 1.0) -> Tensor:
        away = (logits / temperature).softmax(1) - 1.0 / logits.shape[1]
        return -features.abs().sum(1) * away.abs().sum(1) / temperature

    def score(self, images: ImageSet) -> Tensor:
        return self.closed_form(*features_and_logits(self.net, images, self.name), self.params.temperature)
