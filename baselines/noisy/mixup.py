"""Mixup. Zhang, Cisse, Dauphin & Lopez-Paz, "mixup: Beyond Empirical Risk Minimization", ICLR 2018 (arXiv:1710.09412).

The network is trained on straight lines between examples. Per minibatch, with one λ and one random permutation π:

    λ ~ Beta(α, α)        x̃_i = λ x_i + (1 - λ) x_π(i)
    L = mean_i  λ CE(f(x̃_i), y_i) + (1 - λ) CE(f(x̃_i), y_π(i))

α = 1 as in the released code; the paper's runs on corrupted labels used stronger mixing (α = 8 and 32).

Mixup was published as a trainer. Score, after the last epoch and on unmixed images:  s_i = CE(f(x_i), y_i).
Cost: 1 plain run.
Deviation: weight decay is the recipe's, as for every method (the released code has 1e-4).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.methods.base import Detection, NoisyLabelDetector, NoisyTask
from sgoif.bench.methods.robust_training import train_with


class Mixup(NoisyLabelDetector):
    name = "mixup"
    title = "Mixup"
    group = "Methods of the paper"
    order = 2

    @dataclass(frozen=True)
    class Params:
        alpha: float = 1.0  # both parameters of the Beta distribution; 0 = no mixing

    def __init__(self, **params):
        super().__init__(**params)
        self.need(self.params.alpha >= 0, "alpha", "must not be negative")

    @staticmethod
    def mix(x: Tensor, weight: Tensor | float, partner: Tensor) -> Tensor:
        """λ x + (1 - λ) x[π] for images [n, C, H, W]."""
        return weight * x + (1 - weight) * x[partner]

    @staticmethod
    def loss(logits: Tensor, y: Tensor, weight: Tensor | float, partner: Tensor) -> Tensor:
        """λ CE(f, y) + (1 - λ) CE(f, y[π]), averaged over the batch."""
        return weight * F.cross_entropy(logits, y) + (1 - weight) * F.cross_entropy(logits, y[partner])

    def detect(self, task: NoisyTask) -> Detection:
        alpha = self.params.alpha

        def draw(batch, rng) -> tuple[Tensor, Tensor]:
            weight = float(rng.beta(alpha, alpha)) if alpha > 0 else 1.0
            return torch.tensor(weight), torch.from_numpy(rng.permutation(len(batch.labels)))

        def mixed_loss(learner, batch) -> Tensor:
            weight, partner = batch.extra
            return self.loss(learner(self.mix(batch.x, weight, partner)), batch.labels, weight, partner)

        return train_with(task, mixed_loss, draw)
