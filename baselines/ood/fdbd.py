"""fDBD, fast decision-boundary distance (Liu & Qin, ICML 2024).

How far the features are from the boundaries between the predicted class y and the others, for their distance from the
mean training feature m:

    s(x) = -1/(K - 1) sum_{k != y} |f_y - f_k| / ||w_y - w_k||  /  ||z(x) - m||

Paper: Fast Decision Boundary based Out-of-Distribution Detector, ICML 2024.
Code: https://github.com/litianliu/fDBD-OOD; OpenOOD's `fdbd`.
Settings: the distance ||z - m||, the paper's; `centred: false` takes ||z||.
Deviations: none; `fdbd@searched` chooses between the two on OOD validation images, as OpenOOD does.
Parity: tests/parity/test_ood_posthoc_later.py::test_fdbd
Score: the negative mean distance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.features import features_and_logits, finite
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.images import ImageSource


class FDBD(OODDetector):
    name = "fdbd"
    title = "fDBD"
    group = "Post hoc, not in the paper"
    order = 10
    sweep: ClassVar = {"centred": (True, False)}

    @dataclass(frozen=True)
    class Params:
        centred: bool = True  # features less their mean over training, in the denominator

    @staticmethod
    def from_features(features: Tensor, logits: Tensor, weight: Tensor, mean: Tensor | float) -> Tensor:
        largest, predicted = logits.max(1)
        between = (weight[:, None] - weight).norm(dim=2)
        between.fill_diagonal_(1.0)  # the predicted class itself adds 0
        distance = ((largest[:, None] - logits) / between[predicted].clamp_min(1e-12)).sum(1) / (len(weight) - 1)
        return -distance / (features - mean).norm(dim=1).clamp_min(1e-8)

    def fit(self, task: OODTask) -> None:
        super().fit(task)
        self.mean = finite(task.plain.features, "fdbd: training features").mean(0) if self.params.centred else 0.0

    def score(self, images: ImageSource) -> Tensor:
        features, logits = features_and_logits(self.net, images, self.name)
        weight, _ = self.net.linear()
        parts = zip(features.split(4096), logits.split(4096), strict=True)
        return torch.cat([self.from_features(z, f, weight, self.mean) for z, f in parts])
