"""SHE, simplified Hopfield energy (Zhang, Fu, Chen, Du, Li, Wang, Liu, Han & Zhang, ICLR 2023).

    s(x) = -z(x) . S_y,   y = argmax_k f_k(x)

S_k is the mean feature of the training images of class k that the network classifies rightly.

Paper: Out-of-Distribution Detection Based on In-Distribution Data Patterns Memorization with Modern Hopfield Energy,
    ICLR 2023.
Code: https://github.com/zjs975584714/SHE; OpenOOD's `she`.
Settings: the inner product, the paper's and OpenOOD's metric.
Deviations: a class without a rightly classified training image takes the mean of all its images (theirs has no value).
Parity: tests/parity/test_ood_posthoc_later.py::test_she
Score: the negative inner product.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.features import features_and_logits, finite
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.images import ImageSource


class SHE(OODDetector):
    name = "she"
    title = "SHE"
    group = "Post hoc, not in the paper"
    order = 6

    @staticmethod
    def patterns(features: Tensor, labels: Tensor, right: Tensor, n_classes: int) -> Tensor:
        """[K, d]: mean feature of each class over the images that are `right`, else over all of the class."""

        def means(weights: Tensor) -> tuple[Tensor, Tensor]:
            sums = features.new_zeros(n_classes, features.shape[1]).index_add_(0, labels, features * weights[:, None])
            counts = features.new_zeros(n_classes).index_add_(0, labels, weights)
            return sums / counts.clamp_min(1)[:, None], counts

        of_right, n_right = means(right.to(features.dtype))
        of_all, _ = means(torch.ones_like(features[:, 0]))
        return torch.where(n_right[:, None] > 0, of_right, of_all)

    @staticmethod
    def from_features(features: Tensor, logits: Tensor, patterns: Tensor) -> Tensor:
        return -(features * patterns[logits.argmax(1)]).sum(1)

    def fit(self, task: OODTask) -> None:
        super().fit(task)
        features = finite(task.plain.features, "she: training features")
        right = task.plain.logits.argmax(1) == task.labels
        self.fitted = self.patterns(features, task.labels, right, task.n_classes)

    def score(self, images: ImageSource) -> Tensor:
        return self.from_features(*features_and_logits(self.net, images, self.name), self.fitted)
