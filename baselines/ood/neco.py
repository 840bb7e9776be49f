"""NECO, neural collapse (Ben Ammar, Belkhir, Popescu, Manzanera & Franchi, ICLR 2024).

Features are standardised by the training mean and deviation of every unit. With P the first D principal components of
the standardised training features,

    s(x) = -||P z(x)|| / ||z(x)||          (times max_k f_k(x) where `max_logit` is set)

Images of the training classes lie in the space of the class means; others have less of their length in it.

Paper: NECO: NEural Collapse Based Out-of-distribution detection, ICLR 2024.
Code: https://gitlab.com/drti/neco; OpenOOD has none.
Settings: D is the smallest number of components with 90 % of the variance; `max_logit` is false, the authors' rule for
    ResNets (they multiply for transformers).
Deviations: their program takes D as an argument for each network; the rule of 90 % stands for it.
Parity: tests/parity/test_ood_posthoc_later.py::test_neco
Score: the negative share of the length.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.features import check_param, features_and_logits, finite
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.images import ImageSource


class NECO(OODDetector):
    name = "neco"
    title = "NECO"
    group = "Post hoc, not in the paper"
    order = 11

    @dataclass(frozen=True)
    class Params:
        variance: float = 0.9  # that the D components explain
        max_logit: bool = False

        def __post_init__(self):
            check_param(0 < self.variance <= 1, "neco.variance", "a share in (0, 1]", self.variance)

    @staticmethod
    def components(standardised: Tensor, variance: float) -> Tensor:
        """[d, D]: the first principal components, as many as explain the share `variance`."""
        rows = standardised.double()
        values, vectors = torch.linalg.eigh(torch.cov(rows.T, correction=0).view(rows.shape[1], -1))  # ascending
        share = values.flip(0).clamp_min(0).cumsum(0)
        dim = int((share < (variance - 1e-9) * share[-1]).sum()) + 1
        return vectors.flip(1)[:, :dim].to(standardised.dtype)

    @staticmethod
    def share_of_length(standardised: Tensor, components: Tensor) -> Tensor:
        return (standardised @ components).norm(dim=1) / standardised.norm(dim=1).clamp_min(1e-12)

    def fit(self, task: OODTask) -> None:
        super().fit(task)
        features = finite(task.plain.features, "neco: training features")
        deviation, self.mean = torch.std_mean(features, 0, correction=0)
        self.deviation = torch.where(deviation > 0, deviation, 1.0)  # a dead unit stays 0
        self.space = self.components((features - self.mean) / self.deviation, self.params.variance)

    def score(self, images: ImageSource) -> Tensor:
        features, logits = features_and_logits(self.net, images, self.name)
        share = self.share_of_length((features - self.mean) / self.deviation, self.space)
        return -share * logits.amax(1) if self.params.max_logit else -share

    def extras(self) -> dict[str, float]:
        return {"neco_dim": float(self.space.shape[1])}
