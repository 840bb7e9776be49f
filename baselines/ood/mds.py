"""MDS, Mahalanobis distance (Lee, Lee, Lee & Shin, NeurIPS 2018), of the penultimate features alone.

    s(x) = min_k (z(x) - m_k)' S^-1 (z(x) - m_k)

m_k is the mean training feature of class k, S the covariance around the class means, shared by all classes.

Paper: A Simple Unified Framework for Detecting Out-of-Distribution Samples and Adversarial Attacks, NeurIPS 2018.
Code: https://github.com/pokaxpoka/deep_Mahalanobis_detector; OpenOOD's `mds`.
Settings: none; training images are not augmented.
Deviations: from the paper, as in OpenOOD: one layer and no step of the input (`mds_ensemble` has both).
Parity: tests/parity/test_ood_posthoc_later.py::test_mds_and_rmds
Score: the smallest squared distance.
"""

from __future__ import annotations

from torch import Tensor

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.class_gaussians import ClassGaussians
from sgoif.bench.methods.ood.features import features_and_logits, finite
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.images import ImageSource


class MDS(OODDetector):
    name = "mds"
    title = "MDS"
    group = "Post hoc, not in the paper"
    order = 3

    def fit(self, task: OODTask) -> None:
        super().fit(task)
        features = finite(task.plain.features, "mds: training features")
        self.gaussians = ClassGaussians.of_training(features, task.labels, task.n_classes)

    def score(self, images: ImageSource) -> Tensor:
        features, _ = features_and_logits(self.net, images, self.name)
        return self.gaussians.distances(features).amin(1)
