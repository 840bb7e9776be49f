"""Mixup. Zhang, Cisse, Dauphin & Lopez-Paz, "mixup: Beyond Empirical Risk Minimization", ICLR 2018 (arXiv:1710.09412).

The network is trained on straight lines between examples. Per minibatch, with one λ and one random permutation π:

    λ ~ Beta(α, α)        x̃_i = λ x_i + (1 - λ) x_π(i)
    L = mean_i  λ CE(f(x̃_i), y_i) + (1 - λ) CE(f(x̃_i), y_π(i))

Here α = 1, as in the released code; the paper's runs on corrupted labels used stronger mixing (α = 8 and 32).

Mixup was published as a trainer. The logits of its training steps are of mixed images and say nothing of single ones,
so that the unmixed training images are passed through the network after every epoch of the last half. Candidates:
cross-entropy after the last epoch, and the means over these passes.
Cost: 1 plain run and a sixth (half as many passes as epochs).
Deviation: weight decay is the recipe's, as for every method (the released code has 1e-4).

Code: https://github.com/facebookresearch/mixup-cifar10
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.methods.base import Detection, NoisyLabelDetector
from sgoif.bench.methods.robust.training import train_with
from sgoif.bench.methods.tasks import NoisyTask
from sgoif.training.distributed import gather_batch, own_rows, size


class Mixup(NoisyLabelDetector):
    name = "mixup"
    title = "Mixup"
    group = "Methods of the paper"
    order = 2
    candidates: ClassVar = {
        "last_loss": "cross-entropy after the last epoch",
        "window_loss": "mean cross-entropy of the passes after the epochs of the last half of training",
        "window_margin": "minus the mean margin of these passes",
        "window_doubt": "one minus the mean probability of the label in these passes",
    }
    ranked_by = "window_margin"
    distributes = True

    @dataclass(frozen=True)
    class Params:
        alpha: float = 1.0  # both parameters of the Beta distribution; 0 = no mixing

    def __init__(self, **params):
        super().__init__(**params)
        self.need(self.params.alpha >= 0, "alpha", "must not be negative")

    @staticmethod
    def mix(x: Tensor, weight: Tensor | float, partner: Tensor) -> Tensor:
        """λ x + (1 - λ) x[π] for images [n, C, H, W]; π [B] is of the whole minibatch, of which n may be a share."""
        return weight * x + (1 - weight) * gather_batch(x)[own_rows(partner)]

    @staticmethod
    def loss(logits: Tensor, y: Tensor, weight: Tensor | float, partner: Tensor) -> Tensor:
        """λ CE(f, y) + (1 - λ) CE(f, y[π]), averaged over the batch."""
        others = gather_batch(y)[own_rows(partner)]
        return weight * F.cross_entropy(logits, y) + (1 - weight) * F.cross_entropy(logits, others)

    def detect(self, task: NoisyTask) -> Detection:
        alpha = self.params.alpha

        def draw(batch, rng) -> tuple[Tensor, Tensor]:
            weight = float(rng.beta(alpha, alpha)) if alpha > 0 else 1.0
            return torch.tensor(weight), torch.from_numpy(rng.permutation(len(batch.labels) * size()))

        def mixed_loss(learner, batch) -> tuple[Tensor]:
            weight, partner = batch.extra
            return (self.loss(learner(self.mix(batch.x, weight, partner)), batch.labels, weight, partner),)

        trained = train_with(task, mixed_loss, draw)
        scores = trained.scores(window_alone=True)
        return self.detection(scores, test_logits=trained.test_logits, curves=trained.curves)
