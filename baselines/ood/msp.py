"""MSP, maximum softmax probability (Hendrycks & Gimpel, ICLR 2017): the free OOD baseline.

    s(x) = -max_k softmax(f(x) / T)_k

Paper: A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural Networks, ICLR 2017.
Code: https://github.com/hendrycks/error-detection; OpenOOD's `msp`.
Settings: T = 1.
Deviations: computed in float64, so that confident images are not tied at 1.
Parity: tests/parity/test_ood_posthoc.py::test_max_softmax
Score: T = 1 ranks; with the sentinel's temperature it is declared beside it.
"""

from __future__ import annotations

from torch import Tensor

from sgoif.bench.methods.ood.features import finite
from sgoif.bench.methods.ood.softened import SoftenedDetector
from sgoif.training.images import ImageSource


class MSP(SoftenedDetector):
    name = "msp"
    title = "MSP"
    group = "Free baseline"
    order = 1

    @staticmethod
    def from_logits(logits: Tensor, temperature: float = 1.0) -> Tensor:
        return -(logits.double() / temperature).softmax(1).amax(1)

    def scores(self, images: ImageSource) -> dict[str, Tensor]:
        logits = finite(self.logits(images), "msp: logits of the network")
        return self.at_both(lambda t: self.from_logits(logits, t), logits.shape[1])
