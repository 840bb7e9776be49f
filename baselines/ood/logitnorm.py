"""LogitNorm (Wei, Xie, Cheng, Feng, An & Li, ICML 2022): training on logits of constant norm tames over-confidence.

Training:  L = CE(f / (tau (||f||_2 + 1e-7)), y)         Test, on the raw logits:  s(x) = -max_k softmax(f(x))_k

The norm is divided out in training only: at test it carries the signal. Everything else is the dataset's recipe, but
for one addition: gradients are clipped to norm `clip`. At initialisation ||f|| is small and the gradient grows by 1 /
(tau ||f||); without clipping the first steps blow the head up, and the normalised loss then barely moves it (on the
embedded digits: ID accuracy 0.67 instead of 0.99). Hundreds of epochs of weight decay would undo that; short recipes
cannot.

Paper: Mitigating Neural Network Overconfidence with Logit Normalization, ICML 2022.
Code: https://github.com/hongxin001/logitnorm_ood; OpenOOD's `logitnorm`.
Settings: tau = 0.04, the paper's and OpenOOD's.
Deviations: gradients are clipped to norm 1 (`clip: inf` is the paper's training).
Parity: tests/parity/test_ood_trained.py::test_logitnorm_loss_is_pytorch_oods
Score: the negative largest softmax probability of the raw logits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.robust.training import clip_gradients
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.images import ImageSource


class LogitNorm(OODDetector):
    name = "logitnorm"
    title = "LogitNorm"
    group = "Augmentation (so called)"
    order = 1
    reads_plain = False

    @dataclass(frozen=True)
    class Params:
        tau: float = 0.04
        clip: float = 1.0  # largest gradient norm; inf is the paper's training

    def __init__(self, **params):
        super().__init__(**params)
        self.need(self.params.tau > 0, "tau", "a temperature above 0")
        self.need(self.params.clip > 0, "clip", "a norm above 0")

    @staticmethod
    def loss(logits: Tensor, y: Tensor, tau: float) -> Tensor:
        norm = logits.norm(dim=1, keepdim=True) + 1e-7
        return F.cross_entropy(logits / (tau * norm), y)

    @staticmethod
    def from_logits(logits: Tensor) -> Tensor:
        return -logits.softmax(1).amax(1)

    def fit(self, task: OODTask) -> None:
        batches = task.batches()
        learner = task.learner(batches)
        clip_gradients(learner, self.params.clip)
        step = learner.stepper(lambda batch: (self.loss(learner(batch.x), batch.labels, self.params.tau),))
        for epoch in task.session.epochs(task.recipe.epochs, learner):
            for batch in batches.epoch(epoch):
                step(batch)
        self.task, self.net = task, learner.net

    def score(self, images: ImageSource) -> Tensor:
        return self.from_logits(self.logits(images))
