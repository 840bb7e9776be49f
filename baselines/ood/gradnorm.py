"""GradNorm (Huang, Geng & Li, NeurIPS 2021).

Confidence is the L1 norm of the gradient, with respect to the last layer's weights (not its biases), of the cross
entropy between the uniform distribution u and softmax(f / T). That gradient is (p - u) z^T / T, so with K classes

    s(x) = -||z(x)||_1 * sum_k |p_k(x) - 1/K| / T          (OOD images have *smaller* gradients)

Paper: On the Importance of Gradients for Detecting Distributional Shifts in the Wild, NeurIPS 2021.
Code: https://github.com/deeplearning-wisc/gradnorm_ood; OpenOOD's `gradnorm`.
Settings: T = 1, the paper's and OpenOOD's.
Deviations: none; the closed form replaces a backward pass.
Parity: tests/parity/test_ood_posthoc.py::test_gradnorm_closed_form_is_the_gradient
Score: T = 1 ranks; with the sentinel's temperature it is declared beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from sgoif.bench.methods.ood.features import check_param, features_and_logits
from sgoif.bench.methods.ood.softened import SoftenedDetector
from sgoif.training.images import ImageSource


class GradNorm(SoftenedDetector):
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

    def scores(self, images: ImageSource) -> dict[str, Tensor]:
        features, logits = features_and_logits(self.net, images, self.name)
        return self.at_both(lambda t: self.closed_form(features, logits, t), logits.shape[1], self.params.temperature)
