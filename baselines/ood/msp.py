"""MSP, maximum softmax probability (Hendrycks & Gimpel, ICLR 2017): the free OOD baseline.

s(x) = -max_k softmax(f(x))_k
"""

from __future__ import annotations

from torch import Tensor

from sgoif.bench.methods.base import OODDetector
from sgoif.training.images import ImageSet


class MSP(OODDetector):
    name = "msp"
    title = "MSP"
    group = "Free baseline"
    order = 1

    @staticmethod
    def from_logits(logits: Tensor) -> Tensor:
        return -logits.softmax(1).amax(1)

    def score(self, images: ImageSet) -> Tensor:
        return self.from_logits(self.logits(images))
