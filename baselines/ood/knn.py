"""KNN, deep nearest neighbours (Sun, Ming, Zhu & Li, ICML 2022).

    s(x) = distance from z(x)/||z(x)|| to the k-th nearest training feature z_i/||z_i||   (of un-augmented images)

Paper: Out-of-Distribution Detection with Deep Nearest Neighbors, ICML 2022.
Code: https://github.com/deeplearning-wisc/knn-ood; OpenOOD's `knn`.
Settings: the paper's k: 50 for CIFAR-10, 200 for CIFAR-100, 1000 for ImageNet; here by number of classes, up to 10, up
    to 100 and more. At most the number of training images.
Deviations: none; `knn@searched` chooses k on OOD validation images, as OpenOOD does.
Parity: tests/parity/test_ood_posthoc.py::test_knn
Score: the distance to the k-th neighbour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.features import check_param, features_and_logits, finite, nearest
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.images import ImageSource


class KNN(OODDetector):
    name = "knn"
    title = "KNN"
    group = "Features"
    order = 2
    sweep: ClassVar = {"k": (50, 100, 200, 500, 1000)}

    @dataclass(frozen=True)
    class Params:
        k: int | None = None  # None: the paper's rule

        def __post_init__(self):
            check_param(self.k is None or self.k >= 1, "knn.k", "must be at least 1", self.k)

    @staticmethod
    def published_k(n_classes: int) -> int:
        """The paper's k for as many classes as CIFAR-10, CIFAR-100 or ImageNet has."""
        return 50 if n_classes <= 10 else 200 if n_classes <= 100 else 1000

    @staticmethod
    def kth_distance(features: Tensor, train_features: Tensor, k: int) -> Tensor:
        return nearest(F.normalize(features), F.normalize(train_features), k)[:, -1]

    def fit(self, task: OODTask) -> None:
        super().fit(task)
        self.k = self.params.k or self.published_k(task.n_classes)
        self.bank = F.normalize(finite(task.plain.features, "knn: training features"))

    def score(self, images: ImageSource) -> Tensor:
        features, _ = features_and_logits(self.net, images, self.name)
        return self.kth_distance(features, self.bank, self.k)
