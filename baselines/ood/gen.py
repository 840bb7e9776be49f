"""GEN, generalised entropy (Liu, Lochman & Zach, CVPR 2023).

    s(x) = sum over the M largest p_j of  p_j^gamma (1 - p_j)^gamma,   p = softmax(f(x))

A small gamma makes every probability that is neither 0 nor 1 count almost the same.

Paper: GEN: Pushing the Limits of Softmax-Based Out-of-Distribution Detection, CVPR 2023.
Code: https://github.com/XixiLiu95/GEN; OpenOOD's `gen`.
Settings: gamma = 0.1 and M = 100, OpenOOD's values before its sweep; with fewer classes M is all of them.
Deviations: the softmax is in float64, so that confident images are not tied. `gen@searched` chooses gamma and M on OOD
    validation images, as OpenOOD does.
Parity: tests/parity/test_ood_posthoc_later.py::test_gen
Score: the generalised entropy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.features import check_param, finite
from sgoif.training.images import ImageSource


class GEN(OODDetector):
    name = "gen"
    title = "GEN"
    group = "Post hoc, not in the paper"
    order = 1
    sweep: ClassVar = {"gamma": (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0), "largest": (10, 50, 100, 200, 500, 1000)}

    @dataclass(frozen=True)
    class Params:
        gamma: float = 0.1
        largest: int = 100  # M

        def __post_init__(self):
            check_param(self.gamma > 0, "gen.gamma", "must be above 0", self.gamma)
            check_param(self.largest >= 1, "gen.largest", "must be at least 1", self.largest)

    @staticmethod
    def from_logits(logits: Tensor, gamma: float, largest: int) -> Tensor:
        """In float64: at a small gamma the distance of p from 1 matters down to its last digits."""
        p = logits.double().softmax(1).topk(min(largest, logits.shape[1]), dim=1).values
        return (p * (1 - p)).pow(gamma).sum(1)

    def score(self, images: ImageSource) -> Tensor:
        logits = finite(self.logits(images), "gen: logits of the network")
        return self.from_logits(logits, self.params.gamma, self.params.largest)
