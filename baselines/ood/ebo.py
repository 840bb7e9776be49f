"""EBO, energy-based OOD detection (Liu, Wang, Owens & Li, NeurIPS 2020).

s(x) = -T log sum_k exp(f_k(x) / T)
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.features import check_param, finite
from sgoif.training.images import ImageSet


class EBO(OODDetector):
    name = "ebo"
    title = "EBO"
    group = "Energy and gradient"
    order = 1

    @dataclass(frozen=True)
    class Params:
        temperature: float = 1.0

        def __post_init__(self):
            check_param(self.temperature > 0, "ebo.temperature", "must be above 0", self.temperature)

    @staticmethod
    def from_logits(logits: Tensor, temperature: float = 1.0) -> Tensor:
        return -temperature * (logits / temperature).logsumexp(1)

    def score(self, images: ImageSet) -> Tensor:
        return self.from_logits(finite(self.logits(images), "ebo: logits of the network"), self.params.temperature)
