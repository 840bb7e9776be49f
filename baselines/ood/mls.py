"""MLS, maximum logit score (Hendrycks, Basart, Mazeika et al., ICML 2022).

s(x) = -max_k f_k(x)          (no softmax: that would be MSP)

Paper: Scaling Out-of-Distribution Detection for Real-World Settings, ICML 2022.
Code: https://github.com/hendrycks/anomaly-seg; OpenOOD's `mls`.
Settings: none.
Deviations: none.
Parity: tests/parity/test_ood_posthoc.py::test_max_logit
Score: the negative largest logit.
"""

from __future__ import annotations

from torch import Tensor

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.features import finite
from sgoif.training.images import ImageSource


class MLS(OODDetector):
    name = "mls"
    title = "MLS"
    group = "Energy and gradient"
    order = 4

    @staticmethod
    def from_logits(logits: Tensor) -> Tensor:
        return -logits.amax(1)

    def score(self, images: ImageSource) -> Tensor:
        return self.from_logits(finite(self.logits(images), "mls: logits of the network"))
