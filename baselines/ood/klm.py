"""KLM, KL matching (Hendrycks, Basart, Mazeika et al., ICML 2022).

d_k  = mean softmax(f(x)) over the ID *validation* images the network predicts as k (training images would give
       over-confident templates); a class that is never predicted gets its one-hot
s(x) = min_k KL( softmax(f(x)) || d_k )          over all k

Paper: Scaling Out-of-Distribution Detection for Real-World Settings, ICML 2022.
Code: https://github.com/hendrycks/anomaly-seg; OpenOOD's `klm`.
Settings: none; the templates are of the ID validation images.
Deviations: a class that is never predicted has its one-hot as template, where pytorch-ood leaves it out and OpenOOD has
    the same.
Parity: tests/parity/test_ood_posthoc.py::test_kl_matching
Score: the smallest KL divergence to a template.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.features import finite
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.images import ImageSource


class KLM(OODDetector):
    name = "klm"
    title = "KLM"
    group = "Energy and gradient"
    order = 5

    @staticmethod
    def templates(logits: Tensor) -> Tensor:
        """[K, K]: row k is the mean posterior of what is predicted as k."""
        posterior, predicted = logits.softmax(1), logits.argmax(1)
        n_classes = logits.shape[1]
        sums = posterior.new_zeros(n_classes, n_classes).index_add_(0, predicted, posterior)
        counts = predicted.bincount(minlength=n_classes)[:, None]
        one_hot = torch.eye(n_classes, device=logits.device)
        return torch.where(counts > 0, sums / counts.clamp_min(1), one_hot)

    @staticmethod
    def from_logits(logits: Tensor, templates: Tensor) -> Tensor:
        log_p = logits.log_softmax(1)
        log_d = templates.clamp_min(torch.finfo(templates.dtype).tiny).log()  # finite, so that 0 * log 0 is 0
        p = log_p.exp()
        return ((p * log_p).sum(1, keepdim=True) - p @ log_d.T).amin(1)

    def fit(self, task: OODTask) -> None:
        super().fit(task)
        self.fitted = self.templates(finite(self.logits(task.val), "klm: logits of the validation images"))

    def score(self, images: ImageSource) -> Tensor:
        return self.from_logits(finite(self.logits(images), "klm: logits of the network"), self.fitted)
