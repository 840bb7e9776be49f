"""SCE, symmetric cross entropy. Wang, Ma, Chen, Luo, Yi & Bailey, ICCV 2019 (arXiv:1908.06112).

Cross-entropy takes the label for truth; its reverse takes the prediction p for truth and asks how well the one-hot
label q explains it, with log 0 read as a constant A < 0:

    RCE_i = -Σ_k p_k log q_k = -A (1 - p_{y_i})              L = mean_i  α CE_i + β RCE_i

RCE is a scaled mean absolute error: bounded, hence tolerant to wrong labels; CE keeps the learning going.
Published: β = 1; α = 0.1 on CIFAR-10 and 6 on CIFAR-100, hence the default here follows the number of classes;
A = log 1e-4 and gradients clipped at norm 5 (released code).

SCE was published as a trainer. Score, after the last epoch:  s_i = CE(f(x_i), y_i). The SCE value itself ranks the
same, since both are monotone in p_{y_i}.
Cost: 1 plain run.
Deviation: the paper's extra L2 penalty on the first dense layer is left out; these networks have none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.methods.base import Detection, NoisyLabelDetector, NoisyTask
from sgoif.bench.methods.robust_training import train_with

MANY_CLASSES = 50  # from here on the CIFAR-100 value of α


class SCE(NoisyLabelDetector):
    name = "sce"
    title = "SCE-loss"
    group = "Methods of the paper"
    order = 3

    @dataclass(frozen=True)
    class Params:
        alpha: float | None = None  # weight of CE; None: 0.1 below 50 classes, 6.0 from 50 on
        beta: float = 1.0  # weight of RCE
        log_zero: float = math.log(1e-4)  # A, what log 0 counts as
        clip: float = 5.0  # norm at which gradients are clipped

    def __init__(self, **params):
        super().__init__(**params)
        p = self.params
        self.need(p.alpha is None or p.alpha >= 0, "alpha", "must not be negative")
        self.need(p.beta >= 0, "beta", "must not be negative")
        self.need(p.log_zero < 0, "log_zero", "must be below 0")
        self.need(p.clip > 0, "clip", "must be above 0")

    def alpha(self, n_classes: int) -> float:
        if self.params.alpha is not None:
            return self.params.alpha
        return 6.0 if n_classes >= MANY_CLASSES else 0.1

    @staticmethod
    def reverse(logits: Tensor, y: Tensor, log_zero: float = math.log(1e-4)) -> Tensor:
        """RCE [n] = -A (1 - p_y)."""
        p_given = logits.softmax(1).gather(1, y[:, None]).squeeze(1)
        return -log_zero * (1 - p_given)

    @staticmethod
    def loss(logits: Tensor, y: Tensor, alpha: float, beta: float, log_zero: float = math.log(1e-4)) -> Tensor:
        """α CE + β RCE [n]."""
        return alpha * F.cross_entropy(logits, y, reduction="none") + beta * SCE.reverse(logits, y, log_zero)

    def detect(self, task: NoisyTask) -> Detection:
        p, alpha = self.params, self.alpha(task.n_classes)

        def symmetric_loss(learner, batch) -> Tensor:
            return self.loss(learner(batch.x), batch.labels, alpha, p.beta, p.log_zero).mean()

        detection = train_with(task, symmetric_loss, clip=p.clip)
        detection.extras["alpha"] = alpha
        return detection
