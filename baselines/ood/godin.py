"""G-ODIN (Hsu, Shen, Jin & Kira, CVPR 2020): class and domain evidence learnt apart, by a quotient of two heads.

Logits  f_k = h_k(z) / g(z),   h_k = cos(w_k, z) without bias,   g = sigmoid(batch norm(v.z + c)),   trained by CE(f, y)
Test    x~ = x + eps sign(d max_k h_k / dx) / std        s(x) = -max_k h_k(x~)

`h` gets no weight decay (a quotient's scale is free; decay would only shift it). `std` makes `eps` a step in pixel
values on the scale 0 … 1.

Paper: Generalized ODIN: Detecting Out-of-Distribution Image without Learning from Out-of-Distribution Data, CVPR 2020.
Code: none by the authors; OpenOOD's `godin`.
Settings: eps = 0.0025, OpenOOD's; everything else is the dataset's recipe.
Deviations: the paper picks eps on ID data. `h` follows the recipe's schedule like every other weight (OpenOOD's keeps
    the initial rate).
Parity: tests/parity/test_ood_trained.py::test_godin_is_the_quotient_of_cosine_and_sigmoid
Score: the paper's largest h ranks; OpenOOD's, the largest softmax of h, is declared beside it.
    The first was the better one on digits that no table reports (benchmarks/ood_candidates.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.features import moved, pixel_step
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.cost.compute_counter import COMPUTE
from sgoif.training.images import ImageSource
from sgoif.training.learner import Learner
from sgoif.training.models import Network, build_network
from sgoif.training.seeds import seeded_weights


class QuotientHead(nn.Module):
    def __init__(self, width: int, n_classes: int):
        super().__init__()
        self.h = nn.Parameter(torch.empty(n_classes, width))
        nn.init.kaiming_normal_(self.h, nonlinearity="relu")
        self.g = nn.Sequential(nn.Linear(width, 1), nn.BatchNorm1d(1), nn.Sigmoid())

    def cosine(self, z: Tensor) -> Tensor:
        """h [n, K]; the small constants keep a zero feature harmless."""
        unit = z / (z.norm(dim=1, keepdim=True) + 1e-4)
        return unit @ (self.h / (self.h.norm(dim=1, keepdim=True) + 1e-4)).T

    def forward(self, z: Tensor) -> Tensor:
        return self.cosine(z) / self.g(z)


class GODIN(OODDetector):
    name = "godin"
    title = "G-ODIN"
    group = "Generative (so called)"
    order = 1
    reads_plain = False
    candidates: ClassVar = {"h": "largest h, the paper's", "softmax": "largest softmax of h, OpenOOD's"}
    ranked_by = "h"

    @dataclass(frozen=True)
    class Params:
        epsilon: float = 0.0025

    def __init__(self, **params):
        super().__init__(**params)
        self.need(self.params.epsilon >= 0, "epsilon", "a step that is not negative")

    def fit(self, task: OODTask) -> None:
        batches = task.batches()
        with seeded_weights(task.seed):
            plain = build_network(task.recipe.model, task.n_classes, task.train.channels, task.train.size)
            net = Network(plain.backbone, QuotientHead(plain.head.in_features, task.n_classes), plain.stages)
        learner = Learner.for_batches(
            task.recipe, task.n_classes, batches, task.seed, network=net, undecayed=("head.h",)
        )
        step = learner.stepper(lambda batch: (F.cross_entropy(net.classify(learner.features(batch.x)), batch.labels),))
        for epoch in task.session.epochs(task.recipe.epochs, learner):
            for batch in batches.epoch(epoch):
                step(batch)
        self.task, self.net = task, net

    @staticmethod
    def perturbed(net: Network, x: Tensor, step: Tensor) -> Tensor:
        """x moved by `step` (eps / std, [1, C, 1, 1]) in the direction that raises max_k h."""
        return moved(x, lambda moving: net.head.cosine(net.features(moving)).amax(1), step)

    @torch.no_grad()
    def scores(self, images: ImageSource) -> dict[str, Tensor]:
        self.net.eval()
        step, found = pixel_step(self.params.epsilon, images), []
        for index in torch.arange(len(images), device=images.device).split(512):
            x = self.perturbed(self.net, images.batch(index), step)
            found.append(self.net.head.cosine(self.net.features(x)))
            COMPUTE.forward_passes += 4 * len(x)  # two forward passes and a backward pass
        h = torch.cat(found)
        return {"h": -h.amax(1), "softmax": -h.softmax(1).amax(1)}
