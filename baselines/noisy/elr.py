"""ELR, early-learning regularisation. Liu, Niles-Weed, Razavian & Fernandez-Granda, NeurIPS 2020 (arXiv:2007.00151).

Networks learn right labels first. Each example keeps the running mean t of its own predictions p, and the regulariser
makes it dear to leave it:

    t_i <- beta t_i + (1 - beta) p_i / |p_i|_1          L = mean_i CE_i + lambda log(1 - <t_i, p_i>)

with p kept within [1e-4, 1 - 1e-4] and no gradient through t. Official code: github.com/shengliu66/ELR
(`ELR/model/loss.py`, `config_cifar10.json`, `config_cifar100.json`): lambda 3, beta 0.7 on CIFAR-10 with symmetric
noise (asymmetric: 1, 0.9), lambda 7, beta 0.9 on CIFAR-100; the default here follows the number of classes. SGD with
rate 0.02, weight decay 1e-3, 120 to 150 epochs. ELR+ (two networks, weight averages, Mixup) is another method.

ELR was published as a trainer. Candidates: `target`, one minus the label's share of t at the end, and the losses,
margins and probabilities of its own training steps.
Cost: 1 plain run. Deviation: optimiser, length and augmentation are the recipe's; a target has seen as many predictions
as the recipe has epochs, instead of 150.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sgoif.bench.methods.base import Detection
from sgoif.bench.methods.robust.losses import EarlyLearningRegularisation
from sgoif.bench.methods.robust.training import RobustTrainer, train_with_loss
from sgoif.bench.methods.tasks import NoisyTask


class ELR(RobustTrainer):
    name = "elr"
    title = "ELR"
    group = "Later robust trainers"
    order = 2
    candidates: ClassVar = {
        "target": "one minus the label's share of the running mean of predictions",
        **RobustTrainer.candidates,
    }
    ranked_by = "last_loss"

    @dataclass(frozen=True)
    class Params:
        weight: float | None = None  # lambda; None: 3 below 50 classes, 7 from 50 on
        decay: float | None = None  # beta; None: 0.7 below 50 classes, 0.9 from 50 on

    def __init__(self, **params):
        super().__init__(**params)
        p = self.params
        self.need(p.weight is None or p.weight >= 0, "weight", "must not be negative")
        self.need(p.decay is None or 0 <= p.decay < 1, "decay", "must be in [0, 1)")

    def detect(self, task: NoisyTask) -> Detection:
        device = task.labels.device
        loss = EarlyLearningRegularisation(
            len(task.labels), task.n_classes, device, self.params.weight, self.params.decay
        )
        trained = train_with_loss(task, loss)
        target = loss.scores(task.labels)["target"].double().cpu().numpy()
        return self.detection(
            {"target": target, **trained.scores()},
            test_logits=trained.test_logits,
            extras={"weight": loss.weight, "decay": loss.decay},
            curves=trained.curves,
        )
