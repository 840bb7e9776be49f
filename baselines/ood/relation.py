"""Relation, the neural relation graph (Kim, Yun & Song, NeurIPS 2023).

An image is related to training image i if features and predictions agree. With unit features u and p = softmax(f),

    r_i(x) = max(u(x) . u_i, 0) (p(x) . p_i)          s(x) = -sum_i r_i(x)^a [r_i(x) > 0.03]          over all of them

Paper: Neural Relation Graph: A Unified Framework for Identifying Label Noise and Outlier Data, NeurIPS 2023.
Code: https://github.com/snu-mllab/Neural-Relation-Graph; OpenOOD's `relation`.
Settings: a = 1 and the threshold 0.03, OpenOOD's before its sweep.
Deviations: none; `relation@searched` chooses a on OOD validation images, as OpenOOD does.
Parity: tests/parity/test_ood_posthoc_later.py::test_relation
Score: the negative sum of relations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.features import check_param, features_and_logits, finite
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.images import ImageSource

ENTRIES = 2**25  # floats of the relation matrix that are held at a time


class Relation(OODDetector):
    name = "relation"
    title = "Relation"
    group = "Post hoc, not in the paper"
    order = 12
    sweep: ClassVar = {"power": (1.0, 2.0, 4.0, 6.0, 8.0)}

    @dataclass(frozen=True)
    class Params:
        power: float = 1.0  # a
        threshold: float = 0.03

        def __post_init__(self):
            check_param(self.power > 0, "relation.power", "must be above 0", self.power)
            check_param(0 <= self.threshold < 1, "relation.threshold", "must be in [0, 1)", self.threshold)

    @staticmethod
    def relations(features: Tensor, logits: Tensor, units: Tensor, probabilities: Tensor) -> Tensor:
        """r_i(x), [n, N]."""
        return (F.normalize(features) @ units.T).clamp_min(0) * (logits.softmax(1) @ probabilities.T)

    def fit(self, task: OODTask) -> None:
        super().fit(task)
        self.units = F.normalize(finite(task.plain.features, "relation: training features"))
        self.probabilities = task.plain.logits.softmax(1)

    def score(self, images: ImageSource) -> Tensor:
        features, logits = features_and_logits(self.net, images, self.name)
        rows, scores = max(ENTRIES // len(self.units), 1), []
        for z, f in zip(features.split(rows), logits.split(rows), strict=True):
            r = self.relations(z, f, self.units, self.probabilities)
            scores.append(-torch.where(r > self.params.threshold, r, 0.0).pow(self.params.power).sum(1))
        return torch.cat(scores)
