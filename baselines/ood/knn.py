"""KNN, deep nearest neighbours (Sun, Ming, Zhu & Li, ICML 2022).

s(x) = distance from z(x)/||z(x)|| to the k-th nearest training feature z_i/||z_i||   (of un-augmented images)

k = 50 (the paper's CIFAR-10 value; 200 for CIFAR-100 and 1000 for ImageNet there); at most the number of images.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.methods.base import OODDetector, OODTask
from sgoif.bench.methods.features import check_param, features_and_logits, finite, nearest
from sgoif.training.images import ImageSet


class KNN(OODDetector):
    name = "knn"
    title = "KNN"
    group = "Features"
    order = 2

    @dataclass(frozen=True)
    class Params:
        k: int = 50

        def __post_init__(self):
            check_param(self.k >= 1, "knn.k", "must be at least 1", self.k)

    @staticmethod
    def kth_distance(features: Tensor, train_features: Tensor, k: int) -> Tensor:
        return nearest(F.normalize(features), F.normalize(train_features), k)[:, -1]

    def fit(self, task: OODTask) -> None:
        super().fit(task)
        self.bank = F.normalize(finite(task.plain.features, "knn: training features"))

    def score(self, images: ImageSet) -> Tensor:
        features, _ = features_and_logits(self.net, images, self.name)
        return self.kth_distance(features, self.bank, self.params.k)
