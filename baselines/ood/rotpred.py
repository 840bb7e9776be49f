"""RotPred, rotation prediction (Hendrycks, Mazeika, Kadavath & Song, NeurIPS 2019).

Every image is shown in four rotations r = 0 … 3. Beside the class head, which sees the unrotated images, a second head
tells the rotation:

    L    = CE(f(x), y) + mean_r CE(g(x rotated by r), r)
    s(x) = mean_r CE(g(x rotated by r), r) - KL(uniform || softmax(f(x)))

Paper: Using Self-Supervised Learning Can Improve Model Robustness and Uncertainty, NeurIPS 2019.
Code: https://github.com/hendrycks/ss-ood; OpenOOD's `rotpred`.
Settings: both losses weigh the same, as in OpenOOD (the paper: 0.5 for rotations); everything else is the dataset's
    recipe.
Deviations: natural logarithms (theirs: base 2), which leaves the order as it is. A training step and a score take four
    times the passes of plain training.
Parity: tests/parity/test_ood_trained_later.py::test_rotpred
Score: the loss of the rotations less the distance of the classes from uniform, the authors' and OpenOOD's.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.features import finite
from sgoif.bench.methods.ood.rotations import rotations
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.cost.compute_counter import COMPUTE
from sgoif.training.images import ImageSource
from sgoif.training.learner import Learner
from sgoif.training.models import build_network
from sgoif.training.seeds import seeded_weights


def turns(n: int, device: torch.device) -> Tensor:
    """The rotations in the order of `rotations`, [4 n]."""
    return torch.arange(4, device=device).repeat_interleave(n)


class RotPred(OODDetector):
    name = "rotpred"
    title = "RotPred"
    group = "Trained, not in the paper"
    order = 1
    reads_plain = False

    @staticmethod
    def loss(logits: Tensor, rotation_logits: Tensor, y: Tensor) -> Tensor:
        """L of class logits [n, K], rotation logits [4 n, 4] and labels [n]."""
        return F.cross_entropy(logits, y) + F.cross_entropy(rotation_logits, turns(len(y), y.device))

    @staticmethod
    def from_logits(logits: Tensor, rotation_logits: Tensor) -> Tensor:
        n, k = logits.shape
        wrong = F.cross_entropy(rotation_logits, turns(n, logits.device), reduction="none").view(4, n).mean(0)
        away = -logits.log_softmax(1).mean(1) - math.log(k)
        return wrong - away

    def fit(self, task: OODTask) -> None:
        batches = task.batches()
        with seeded_weights(task.seed):
            net = build_network(task.recipe.model, task.n_classes, task.train.channels, task.train.size)
            net.rotation = nn.Linear(net.head.in_features, 4)
        learner = Learner.for_batches(task.recipe, task.n_classes, batches, task.seed, network=net)

        def forward(batch) -> tuple[Tensor]:
            z = learner.features(rotations(batch.x))
            n = len(batch.labels)
            return (self.loss(net.classify(z[:n]), net.scale * net.rotation(z), batch.labels),)

        step = learner.stepper(forward)
        for epoch in task.session.epochs(task.recipe.epochs, learner):
            for batch in batches.epoch(epoch):
                step(batch)
        self.task, self.net = task, net

    @torch.no_grad()
    def score(self, images: ImageSource) -> Tensor:
        self.net.eval()
        scores = []
        for index in torch.arange(len(images), device=images.device).split(256):
            z = finite(self.net.features(rotations(images.batch(index))), "rotpred: features of the network")
            logits = self.net.classify(z[: len(index)])
            scores.append(self.from_logits(logits, self.net.scale * self.net.rotation(z)))
            COMPUTE.forward_passes += len(z)
        return torch.cat(scores)
