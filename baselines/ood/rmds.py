"""RMDS, relative Mahalanobis distance (Ren, Fort, Liu, Roy, Padhy & Lakshminarayanan, 2021).

    s(x) = min_k d_k(z(x)) - d_0(z(x))

d_k is the squared Mahalanobis distance to class k as in `mds`; d_0 that to the mean of all training features, in their
whole covariance. What makes every image far, whatever its class, cancels.

Paper: A Simple Fix to Mahalanobis Distance for Improving Near-OOD Detection, ICML workshop 2021 (arXiv:2106.09022).
Code: none by the authors is known to us; OpenOOD's `rmds`.
Settings: none; training images are not augmented.
Deviations: none.
Parity: tests/parity/test_ood_posthoc_later.py::test_mds_and_rmds
Score: the smallest difference of squared distances.
"""

from __future__ import annotations

from torch import Tensor

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.class_gaussians import ClassGaussians
from sgoif.bench.methods.ood.features import features_and_logits, finite
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.images import ImageSource


class RMDS(OODDetector):
    name = "rmds"
    title = "RMDS"
    group = "Post hoc, not in the paper"
    order = 5

    def fit(self, task: OODTask) -> None:
        super().fit(task)
        features = finite(task.plain.features, "rmds: training features")
        self.gaussians = ClassGaussians.of_training(features, task.labels, task.n_classes)

    def score(self, images: ImageSource) -> Tensor:
        features, _ = features_and_logits(self.net, images, self.name)
        return self.gaussians.distances(features).amin(1) - self.gaussians.background(features)
