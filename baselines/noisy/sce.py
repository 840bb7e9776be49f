"""SCE, symmetric cross entropy. Wang, Ma, Chen, Luo, Yi & Bailey, ICCV 2019 (arXiv:1908.06112).

Cross-entropy takes the label for truth; its reverse takes the prediction p for truth and asks how well the one-hot
label q explains it, with log 0 read as a constant A < 0:

    RCE_i = -Σ_k p_k log q_k = -A (1 - p_{y_i})              L = mean_i  α CE_i + β RCE_i

RCE is a scaled mean absolute error: bounded, hence tolerant to wrong labels; CE keeps the learning going.
α = 0.1 on CIFAR-10 and 6 on CIFAR-100, hence the default here follows the number of classes; β = 1, A = log 1e-4 and
gradients clipped at norm 5 as in github.com/HanxunH/SCELoss-Reproduce. (The authors' program,
github.com/YisenWang/symmetric_cross_entropy_for_noisy_labels, has β = 0.1 in its command for CIFAR-100, and clips
nothing.)

The reproduction trains with rate 0.01, the authors with 0.1 on CIFAR-100. Under a recipe with its own rate, alpha = 6
would make every gradient six times larger, so that the loss is divided by alpha + beta (`normalised`): the direction of
a step is the published one, its length that of cross-entropy, and the clipping is as much later.

SCE was published as a trainer. Candidates: the cross-entropy after the last epoch, which the SCE value itself ranks
like, since both are monotone in p_{y_i}; and the losses, margins and probabilities of its own training steps.
Removed where its ranking is retrained (`retrain`, the variant `cleaned`): the upper component of a mixture of two.
Cost: 1 plain run.
Deviation: the paper's extra L2 penalty on the first dense layer is left out; these networks have none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from sgoif.bench.methods.base import Detection
from sgoif.bench.methods.robust.losses import SymmetricCrossEntropy
from sgoif.bench.methods.robust.training import RobustTrainer, train_with_loss
from sgoif.bench.methods.score_threshold import by_mixture
from sgoif.bench.methods.tasks import NoisyTask


class SCE(RobustTrainer):
    name = "sce"
    title = "SCE-loss"
    group = "Methods of the paper"
    order = 3
    shown_variants: ClassVar = {
        "cleaned": {"title": "SCE-loss, retrained", "group": "Later robust trainers", "order": 20, "ranked": False}
    }
    ranked_by = "last_loss"
    distributes = True

    @dataclass(frozen=True)
    class Params:
        alpha: float | None = None  # weight of CE; None: 0.1 below 50 classes, 6.0 from 50 on
        beta: float = 1.0  # weight of RCE
        log_zero: float = math.log(1e-4)  # A, what log 0 counts as
        clip: float = 5.0  # norm at which gradients are clipped
        normalised: bool = True  # divide the loss by alpha + beta
        retrain: bool = False  # yield a network trained again without what the ranking removes, instead of SCE's own

    def __init__(self, **params):
        super().__init__(**params)
        p = self.params
        self.need(p.alpha is None or p.alpha >= 0, "alpha", "must not be negative")
        self.need(p.beta >= 0, "beta", "must not be negative")
        self.need(p.log_zero < 0, "log_zero", "must be below 0")
        self.need(p.clip > 0, "clip", "must be above 0")

    def loss(self, n_classes: int) -> SymmetricCrossEntropy:
        """The loss for so many classes."""
        p = self.params
        alpha = SymmetricCrossEntropy.default_alpha(n_classes) if p.alpha is None else p.alpha
        return SymmetricCrossEntropy(alpha, p.beta, p.log_zero, p.normalised)

    def detect(self, task: NoisyTask) -> Detection:
        trained = train_with_loss(task, self.loss(task.n_classes), clip=self.params.clip)
        yielded = None if self.params.retrain else trained.test_logits
        return self.detection(trained.scores(), test_logits=yielded, remove=by_mixture, curves=trained.curves)
