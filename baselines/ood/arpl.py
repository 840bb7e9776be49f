"""ARPL, adversarial reciprocal point learning (Chen, Peng, Wang & Tian, TPAMI 2021), without the confusing samples
(+CS).

Each class k has a reciprocal point P_k, the middle of what is *not* k; the farther from it, the more class k:

    l_k = ||z - P_k||^2 / d - z.P_k        L = CE(l / temp, y) + weight max(0, ||z - P_y||^2 / d - R + 1),   R learnt
    s(x) = -max_k l_k

The second term keeps every class within a margin of R around its point, so that the space left for the unknown is
bounded.

Paper: Adversarial Reciprocal Points Learning for Open Set Recognition, TPAMI 2021.
Code: https://github.com/iCGY96/ARPL; OpenOOD's `arpl`.
Settings: weight 0.1, temperature 1, weight decay 1e-4, the authors'; everything else is the dataset's recipe.
Deviations: no confusing samples (the paper's +CS needs a generator).
Parity: tests/parity/test_ood_trained.py::test_arpl_logits_and_loss_by_hand
Score: the paper's largest distance ranks; OpenOOD's, the largest softmax of the distances, is declared beside it.
    The first was the better one on digits that no table reports (benchmarks/ood_candidates.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.images import ImageSource
from sgoif.training.learner import Learner
from sgoif.training.models import Network, build_network
from sgoif.training.seeds import seeded_weights


class ReciprocalPoints(nn.Module):
    def __init__(self, width: int, n_classes: int):
        super().__init__()
        self.points = nn.Parameter(0.1 * torch.randn(n_classes, width))
        self.radius = nn.Parameter(torch.zeros(1))

    def distance(self, z: Tensor) -> Tensor:
        """||z - P_k||^2 / d, [n, K]."""
        p = self.points
        squared = z.square().sum(1, keepdim=True) - 2 * z @ p.T + p.square().sum(1)
        return squared / z.shape[1]

    def forward(self, z: Tensor) -> Tensor:
        return self.distance(z) - z @ self.points.T


class ARPL(OODDetector):
    name = "arpl"
    title = "ARPL"
    group = "Generative (so called)"
    order = 3
    reads_plain = False
    candidates: ClassVar = {
        "distance": "largest distance, the paper's",
        "softmax": "largest softmax of distances, OpenOOD's",
    }
    ranked_by = "distance"

    @dataclass(frozen=True)
    class Params:
        weight: float = 0.1
        margin: float = 1.0
        temperature: float = 1.0
        weight_decay: float = 1e-4

    def __init__(self, **params):
        super().__init__(**params)
        self.need(self.params.temperature > 0, "temperature", "a temperature above 0")
        for key in ("weight", "weight_decay"):
            self.need(getattr(self.params, key) >= 0, key, "must not be negative")

    @staticmethod
    def loss(head: ReciprocalPoints, z: Tensor, y: Tensor, p: ARPL.Params) -> Tensor:
        own = head.distance(z).gather(1, y[:, None]).squeeze(1)
        return F.cross_entropy(head(z) / p.temperature, y) + p.weight * F.relu(own - head.radius + p.margin).mean()

    def fit(self, task: OODTask) -> None:
        batches = task.batches()
        with seeded_weights(task.seed):
            plain = build_network(task.recipe.model, task.n_classes, task.train.channels, task.train.size)
            net = Network(plain.backbone, ReciprocalPoints(plain.head.in_features, task.n_classes), plain.stages)
        recipe = replace(task.recipe, weight_decay=self.params.weight_decay)
        learner = Learner.for_batches(recipe, task.n_classes, batches, task.seed, network=net)
        step = learner.stepper(
            lambda batch: (self.loss(net.head, learner.features(batch.x), batch.labels, self.params),)
        )
        for epoch in task.session.epochs(recipe.epochs, learner):
            for batch in batches.epoch(epoch):
                step(batch)
        self.task, self.net = task, net

    def scores(self, images: ImageSource) -> dict[str, Tensor]:
        logits = self.logits(images)
        return {"distance": -logits.amax(1), "softmax": -logits.double().softmax(1).amax(1)}
