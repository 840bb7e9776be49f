"""GCE, generalized cross-entropy. Zhang & Sabuncu, NeurIPS 2018 (arXiv:1805.07836).

Between cross-entropy, which learns fast and memorises, and the mean absolute error, which tolerates wrong labels and
learns slowly (the negative Box-Cox transform of p_y):

    L_q = mean_i (1 - p_{y_i}^q) / q,      dL_q/dtheta = p_y^q dCE/dtheta: a label that the network doubts counts less

Published: q = 0.7 on all datasets, SGD with Nesterov momentum, 120 epochs (CIFAR-10). The authors released no code; the
re-implementation that is used for it (github.com/AlanChou/Truncated-Loss) has the same loss, with a constant and with
truncation at k = 0.5. The truncated form, which re-selects examples by alternating search, is left out.

GCE was published as a trainer. Its candidates are the losses, margins and probabilities of its own training steps.
Cost: 1 plain run. Deviation: optimiser, length and augmentation are the recipe's.
"""

from __future__ import annotations

from dataclasses import dataclass

from sgoif.bench.methods.base import Detection
from sgoif.bench.methods.robust.losses import GeneralizedCrossEntropy
from sgoif.bench.methods.robust.training import RobustTrainer, train_with_loss
from sgoif.bench.methods.tasks import NoisyTask


class GCE(RobustTrainer):
    name = "gce"
    title = "GCE"
    group = "Later robust trainers"
    order = 1
    ranked_by = "last_loss"
    distributes = True

    @dataclass(frozen=True)
    class Params:
        q: float = 0.7  # 0 would be cross-entropy, 1 the mean absolute error

    def __init__(self, **params):
        super().__init__(**params)
        self.need(0 < self.params.q <= 1, "q", "must be in (0, 1]")

    def detect(self, task: NoisyTask) -> Detection:
        trained = train_with_loss(task, GeneralizedCrossEntropy(self.params.q))
        return self.detection(trained.scores(), test_logits=trained.test_logits, curves=trained.curves)
