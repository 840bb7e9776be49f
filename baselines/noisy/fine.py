"""FINE, filtering by eigenvectors. Kim, Ko, Cho, Choi & Yun, NeurIPS 2021 (arXiv:2102.11628).

The features of a class with right labels lie along one direction, the first eigenvector u_k of the Gram matrix of the
features given label k; features of other classes do not:

    alignment_i = | <u_{y_i}, z_i / ||z_i||> |           `alignment`: s_i = 1 - alignment_i

The authors fit a mixture of two Gaussians to the alignments of each class and keep what belongs to the larger mean;
`mixture` is one minus that posterior, with the alignment breaking ties. Official code:
github.com/Kthyeon/FINE_official (`dynamic_selection/selection/svd_classifier.py`, `gmm.py`).
Removal rule: the posterior of the lower component is above one half (published).
Cost: nothing beyond the plain run, whose last features are read. Deviation: published as a selection before every epoch
of a training; here it judges the finished plain run once. The mixture stops at 1e-4 (released: 1e-6, 100 iterations).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sgoif.bench.methods.base import Detection, NoisyLabelDetector
from sgoif.bench.methods.score_threshold import at_most
from sgoif.bench.methods.tasks import NoisyTask
from sgoif.training.seeds import mix_seed

TIE = 1e-3  # weight of the alignment in `mixture`, whose posteriors are mostly 0 or 1
FEWEST = 4  # members of a class that a mixture is fitted to


def alignments(features: Tensor, labels: Tensor) -> np.ndarray:
    """[N] absolute cosine of each feature [N, d] to the first eigenvector of its class."""
    z = features.double()
    unit = z / z.norm(dim=1, keepdim=True).clamp(min=1e-12)
    found = torch.zeros(len(z), dtype=torch.float64, device=z.device)
    for k in labels.unique():
        members = labels == k
        _, vectors = torch.linalg.eigh(z[members].T @ z[members])
        found[members] = (unit[members] @ vectors[:, -1]).abs()
    return found.cpu().numpy()


def lower_posterior(values: np.ndarray, seed: int) -> np.ndarray:
    """[n] posterior of the component with the lower mean, of two Gaussians."""
    from sklearn.mixture import GaussianMixture

    if len(values) < FEWEST or np.ptp(values) == 0:
        return np.zeros(len(values))
    mixture = GaussianMixture(n_components=2, tol=1e-4, max_iter=1000, random_state=seed % 2**32)
    return mixture.fit(values[:, None]).predict_proba(values[:, None])[:, mixture.means_.argmin()]


class FINE(NoisyLabelDetector):
    name = "fine"
    title = "FINE"
    group = "Free detectors"
    order = 10
    reads_plain = True
    candidates: ClassVar = {
        "alignment": "one minus the alignment with the first eigenvector of the class",
        "mixture": "posterior of the less aligned component of the class (published)",
    }
    ranked_by = "alignment"

    def detect(self, task: NoisyTask) -> Detection:
        aligned, labels = alignments(task.plain.features, task.labels), task.labels.cpu().numpy()
        posterior = np.zeros(len(labels))
        for k in np.unique(labels):
            posterior[labels == k] = lower_posterior(aligned[labels == k], mix_seed(task.seed, "fine", int(k)))
        scores = {"alignment": 1 - aligned, "mixture": posterior + TIE * (1 - aligned)}
        return self.detection(scores, remove=at_most(posterior > 0.5, scores["mixture"]))
