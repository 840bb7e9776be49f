"""NNGuide, nearest-neighbour guidance (Park, Jung & Teoh, ICCV 2023).

With unit features u and energies E(x) = log sum_k exp(f_k(x)), and a bank of training images i,

    s(x) = -E(x) * mean over the k largest  u(x) . (E_i u_i)

Paper: Nearest Neighbor Guidance for Out-of-Distribution Detection, ICCV 2023.
Code: https://github.com/roomo7time/nnguide; OpenOOD's `nnguide`.
Settings: k = 100 and a bank of 1 % of the training images, OpenOOD's; the bank is drawn at random.
Deviations: the bank has at least 500 images (1 % of CIFAR) or all there are, so that k neighbours mean something on
    small datasets. The authors' configuration has k = 10.
Parity: tests/parity/test_ood_posthoc_later.py::test_nnguide
Score: the negative product of guidance and energy.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.features import check_param, features_and_logits, finite
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.images import ImageSource
from sgoif.training.seeds import numpy_generator


class NNGuide(OODDetector):
    name = "nnguide"
    title = "NNGuide"
    group = "Post hoc, not in the paper"
    order = 9

    @dataclass(frozen=True)
    class Params:
        k: int = 100
        share: float = 0.01  # of the training images, in the bank
        minimum: int = 500

        def __post_init__(self):
            for field in ("k", "minimum"):
                check_param(getattr(self, field) >= 1, f"nnguide.{field}", "must be at least 1", getattr(self, field))
            check_param(0 < self.share <= 1, "nnguide.share", "a share in (0, 1]", self.share)

    @staticmethod
    def bank(features: Tensor, logits: Tensor) -> Tensor:
        """E_i u_i, [n, d]."""
        return F.normalize(features) * logits.logsumexp(1, keepdim=True)

    @staticmethod
    def guided(features: Tensor, logits: Tensor, bank: Tensor, k: int) -> Tensor:
        similarity = F.normalize(features) @ bank.T
        return -similarity.topk(min(k, len(bank)), dim=1).values.mean(1) * logits.logsumexp(1)

    def fit(self, task: OODTask) -> None:
        super().fit(task)
        n = len(task.train)
        size = min(max(round(self.params.share * n), self.params.minimum), n)
        drawn = torch.from_numpy(numpy_generator(task.seed, "nnguide").choice(n, size, replace=False))
        features = finite(task.plain.features, "nnguide: training features")
        drawn = drawn.to(features.device)
        self.fitted = self.bank(features[drawn], task.plain.logits[drawn])

    def score(self, images: ImageSource) -> Tensor:
        features, logits = features_and_logits(self.net, images, self.name)
        parts = zip(features.split(4096), logits.split(4096), strict=True)
        return torch.cat([self.guided(z, f, self.fitted, self.params.k) for z, f in parts])
