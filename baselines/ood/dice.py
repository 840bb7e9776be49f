"""DICE, directed sparsification (Sun & Li, ECCV 2022).

V    = W * mean_train(z)                     contribution of every weight, [K, d]
M    = V > p-th percentile of the whole V    (p = 90 keeps a tenth of the weights; biases are not masked)
s(x) = -log sum_k exp(f'_k),   f' = (W * M) z(x) + b

The ID accuracy is that of f', the network the method really uses.

Paper: DICE: Leveraging Sparsification for Out-of-Distribution Detection, ECCV 2022.
Code: https://github.com/deeplearning-wisc/dice; OpenOOD's `dice`.
Settings: p = 90, the paper's and OpenOOD's.
Deviations: none known.
Parity: tests/parity/test_ood_posthoc.py::test_dice
Score: the energy of the sparse head.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.features import check_param, features_and_logits, finite, percentile
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.images import ImageSource


class DICE(OODDetector):
    name = "dice"
    title = "DICE"
    group = "Energy and gradient"
    order = 6

    @dataclass(frozen=True)
    class Params:
        percentile: float = 90.0  # share of the weights that is dropped

        def __post_init__(self):
            check_param(0 <= self.percentile < 100, "dice.percentile", "must be in [0, 100)", self.percentile)

    @staticmethod
    def sparse_weight(weight: Tensor, mean_feature: Tensor, percent: float) -> Tensor:
        contribution = weight * mean_feature
        return weight * (contribution > percentile(contribution, percent))

    def fit(self, task: OODTask) -> None:
        super().fit(task)
        weight, self.bias = self.net.linear()
        mean = finite(task.plain.features, "dice: training features").mean(0)
        self.weight = self.sparse_weight(weight, mean, self.params.percentile)

    def logits(self, images: ImageSource) -> Tensor:
        features, _ = features_and_logits(self.net, images, self.name)
        return features @ self.weight.T + self.bias

    def score(self, images: ImageSource) -> Tensor:
        return -self.logits(images).logsumexp(1)
