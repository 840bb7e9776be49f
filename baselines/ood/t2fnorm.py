"""T2FNorm, train-time feature normalisation (Regmi, Panthi, Dotel, Gyawali, Stoyanov & Bhattarai, CVPR workshop 2024).

Training:  L = CE(W z / (tau ||z||) + b, y)         Test:  s(x) = -max_k softmax(W z(x) / tau + b)_k

The length of the features is divided out in training only: at test it carries the signal, as `logitnorm` does with the
logits. The ID accuracy is that of the normalised features, what the network was trained for.

Paper: T2FNorm: Train-time Feature Normalization for OOD Detection in Image Classification, CVPR workshops 2024
    (arXiv:2305.17797).
Code: OpenOOD's `t2fnorm`, contributed by the authors.
Settings: tau = 0.1; everything else is the dataset's recipe.
Deviations: the head has no scale of its own where the recipe's network has one (ResNet-9's 1/8), since tau is meant for
    plain logits.
Parity: tests/parity/test_ood_trained_later.py::test_t2fnorm
Score: log(1 - max p), which orders images as -max p does: features that are not normalised give probabilities that
    float32, and even float64, rounds to 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.features import check_param, features_and_logits
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.images import ImageSource
from sgoif.training.learner import Learner
from sgoif.training.models import Network, build_network
from sgoif.training.seeds import seeded_weights


class T2FNorm(OODDetector):
    name = "t2fnorm"
    title = "T2FNorm"
    group = "Trained, not in the paper"
    order = 2
    reads_plain = False

    @dataclass(frozen=True)
    class Params:
        tau: float = 0.1

        def __post_init__(self):
            check_param(self.tau > 0, "t2fnorm.tau", "must be above 0", self.tau)

    @staticmethod
    def normalised(features: Tensor, tau: float) -> Tensor:
        return F.normalize(features, dim=1) / tau

    @staticmethod
    def from_logits(logits: Tensor) -> Tensor:
        """log(1 - max p): the other classes' share."""
        log_p = logits.double().log_softmax(1)
        return log_p.scatter(1, log_p.argmax(1, keepdim=True), -torch.inf).logsumexp(1)

    def fit(self, task: OODTask) -> None:
        batches, tau = task.batches(), self.params.tau
        with seeded_weights(task.seed):
            plain = build_network(task.recipe.model, task.n_classes, task.train.channels, task.train.size)
        net = Network(plain.backbone, plain.head, plain.stages)
        learner = Learner.for_batches(task.recipe, task.n_classes, batches, task.seed, network=net)

        def forward(batch) -> tuple[Tensor]:
            logits = net.classify(self.normalised(learner.features(batch.x), tau))
            return (F.cross_entropy(logits, batch.labels),)

        step = learner.stepper(forward)
        for epoch in task.session.epochs(task.recipe.epochs, learner):
            for batch in batches.epoch(epoch):
                step(batch)
        self.task, self.net = task, net

    def logits(self, images: ImageSource) -> Tensor:
        features, _ = features_and_logits(self.net, images, self.name)
        return self.net.classify(self.normalised(features, self.params.tau)).detach()

    def score(self, images: ImageSource) -> Tensor:
        features, _ = features_and_logits(self.net, images, self.name)
        return self.from_logits(self.net.classify(features / self.params.tau).detach())
