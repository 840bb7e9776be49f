"""ReAct, rectified activations (Sun, Guo & Li, NeurIPS 2021).

c    = p-th percentile of all penultimate activations of the ID validation images (one number, not one per unit)
s(x) = -log sum_k exp(f'_k),   f' = W min(z(x), c) + b

Paper: ReAct: Out-of-distribution Detection With Rectified Activations, NeurIPS 2021.
Code: https://github.com/deeplearning-wisc/react; OpenOOD's `react`.
Settings: p is the smallest of OpenOOD's 85, 90, 95 and 99 that costs at most one point of accuracy on the ID
    validation images (99 if none does); `percentile` sets it instead.
Deviations: the paper takes p = 90. `react@searched` chooses p on OOD validation images, as OpenOOD does.
Parity: tests/parity/test_ood_posthoc.py::test_react
Score: the energy at the chosen p ranks; those at the four percentiles are declared beside it. The ID accuracy is that
    of f', the network the method really uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.features import check_param, features_and_logits, percentile
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.images import ImageSet

SWEEP = {"p85": 85.0, "p90": 90.0, "p95": 95.0, "p99": 99.0}
COST = 0.01  # share of the ID validation images that may be classified wrongly for it


class ReAct(OODDetector):
    name = "react"
    title = "ReAct"
    group = "Energy and gradient"
    order = 3
    sweep: ClassVar = {"percentile": (85.0, 90.0, 95.0, 99.0)}
    candidates: ClassVar = {
        "chosen": "percentile chosen on ID validation images",
        "p85": "85th percentile",
        "p90": "90th percentile, the paper's",
        "p95": "95th percentile",
        "p99": "99th percentile",
    }
    ranked_by = "chosen"

    @dataclass(frozen=True)
    class Params:
        percentile: float | None = None  # None: chosen on ID validation images

        def __post_init__(self):
            ok = self.percentile is None or 0 < self.percentile <= 100
            check_param(ok, "react.percentile", "must be in (0, 100]", self.percentile)

    @staticmethod
    def clipped_logits(features: Tensor, threshold: float, weight: Tensor, bias: Tensor) -> Tensor:
        return features.clamp_max(threshold) @ weight.T + bias

    def fit(self, task: OODTask) -> None:
        super().fit(task)
        features, logits = features_and_logits(self.net, task.val, self.name)
        self.thresholds = {name: percentile(features, p) for name, p in SWEEP.items()}
        self.percentile = self.params.percentile or self._choose(features, logits, task.val_labels)
        self.thresholds["chosen"] = percentile(features, self.percentile)

    def _choose(self, features: Tensor, logits: Tensor, labels: Tensor) -> float:
        """The smallest percentile that keeps the accuracy on ID validation images."""

        def accuracy(f: Tensor) -> float:
            return float((f.argmax(1) == labels).double().mean())

        least = accuracy(logits) - COST - 1e-9
        for name, p in SWEEP.items():
            if accuracy(self.clipped_logits(features, self.thresholds[name], *self.net.linear())) >= least:
                return p
        return SWEEP["p99"]

    def logits(self, images: ImageSet) -> Tensor:
        features, _ = features_and_logits(self.net, images, self.name)
        return self.clipped_logits(features, self.thresholds[self.score_name], *self.net.linear())

    def scores(self, images: ImageSet) -> dict[str, Tensor]:
        features, _ = features_and_logits(self.net, images, self.name)
        linear = self.net.linear()
        return {name: -self.clipped_logits(features, c, *linear).logsumexp(1) for name, c in self.thresholds.items()}

    def extras(self) -> dict[str, float]:
        return {"react_percentile": self.percentile}
