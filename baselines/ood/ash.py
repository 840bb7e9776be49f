"""ASH, activation shaping (Djurisic, Bozanic, Ashok & Liu, ICLR 2023).

The smallest p % of the penultimate features of an image become 0. What is done with the others names the form:

    P  they stay          B  all become sum(z) / n_kept          S  they are multiplied by exp(sum(z) / sum(z kept))
    s(x) = -log sum_k exp(f'_k),   f' = W z' + b

Paper: Extremely Simple Activation Shaping for Out-of-Distribution Detection, ICLR 2023.
Code: https://github.com/andrijazz/ash; OpenOOD's `ash`.
Settings: form B and p = 90, OpenOOD's before its sweep.
Deviations: the authors take form S and p = 95 on CIFAR-10, with a DenseNet. `ash@searched` chooses p on OOD validation
    images, as OpenOOD does.
Parity: tests/parity/test_ood_posthoc_later.py::test_ash
Score: the energy of the shaped features; the ID accuracy is that of f', the network the method really uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.features import check_param, features_and_logits, largest
from sgoif.training.images import ImageSource

FORMS = ("P", "B", "S")


class ASH(OODDetector):
    name = "ash"
    title = "ASH"
    group = "Post hoc, not in the paper"
    order = 7
    sweep: ClassVar = {"percentile": (65.0, 70.0, 75.0, 80.0, 85.0, 90.0, 95.0)}

    @dataclass(frozen=True)
    class Params:
        form: str = "B"
        percentile: float = 90.0

        def __post_init__(self):
            check_param(self.form in FORMS, "ash.form", f"one of {', '.join(FORMS)}", self.form)
            check_param(0 <= self.percentile < 100, "ash.percentile", "must be in [0, 100)", self.percentile)

    @staticmethod
    def shaped(features: Tensor, percent: float, form: str) -> Tensor:
        mask, total = largest(features, percent), features.sum(1, keepdim=True)
        if form == "B":
            return mask * total / mask.sum(1, keepdim=True)
        kept = mask * features
        if form == "S":
            return kept * (total / kept.sum(1, keepdim=True).clamp_min(1e-12)).exp()
        return kept

    def logits(self, images: ImageSource) -> Tensor:
        features, _ = features_and_logits(self.net, images, self.name)
        weight, bias = self.net.linear()
        return self.shaped(features, self.params.percentile, self.params.form) @ weight.T + bias

    def score(self, images: ImageSource) -> Tensor:
        return -self.logits(images).logsumexp(1)
