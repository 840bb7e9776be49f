"""CORES2, confidence-regularised sample sieve. Cheng, Zhu, Li, Gong, Sun & Liu, ICLR 2021 (arXiv:2010.02347).

A regulariser makes predictions confident, whatever the label; then labels that lose against the average label can be
sieved out. With l_k = -log p_k, the cross-entropy with class k, and pi_k, the share of class k among the labels:

    L_i = l_{y_i} - beta sum_k pi_k l_k        sieve_i = l_{y_i} - mean_k l_k;  sieved out if sieve_i > 0

The loss of a step is the mean of L over the examples that are not sieved out. Official code: github.com/UCSC-REAL/cores
(`loss.py`, `phase1.py`): of 100 epochs beta is 0 for 10, rises linearly, is 2 from epoch 39 on; the sieve acts after
epoch 30; from then on pi is of the labels that were kept in the epoch before. Here the same shares of the recipe's
epochs. Phase 2 (consistency training on the sieved set) is left out.

CORES2 publishes a set: `remove` is what its sieve holds back at the last visit (released: in epoch 40 of 100).
Candidates: `sieve`, the mean of
sieve_i over the last half of training, and the losses, margins and probabilities of its own training steps.
Cost: 1 plain run. Deviations: optimiser, learning rate, length and augmentation are the recipe's (released: the rate is
divided by 1 + beta); a step whose examples are all sieved out has loss 0 (released: their mean divided by 1e8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.methods.base import Detection
from sgoif.bench.methods.robust.losses import TrainingLoss
from sgoif.bench.methods.robust.training import RobustTrainer, train_with_loss
from sgoif.bench.methods.robust.visits import in_window
from sgoif.bench.methods.score_threshold import at_most
from sgoif.bench.methods.tasks import NoisyTask

SMALLEST = 1e-8  # added to probabilities before their logarithm, as released


def losses_of_classes(logits: Tensor) -> Tensor:
    """Return -log p_k, shape [n, K]."""
    return -(logits.softmax(1) + SMALLEST).log()


def sieve_acts(epoch: int, epochs: int) -> bool:
    """Return whether the sieve acts in an epoch: after 30 % of training."""
    return 100 * epoch / epochs > 30


class SampleSieve(TrainingLoss):
    """The loss, its schedule, and what the sieve said of each example in the window. Resumable state."""

    def __init__(self, labels: Tensor, n_classes: int, beta: float = 2.0):
        """Begin with beta = 0, which rises to `beta`, and with the class shares of all labels, shape [N]."""
        self.labels, self.largest = labels, beta
        self.beta, self.acts, self.late = torch.zeros(3, 1, device=labels.device)
        self.record = torch.zeros(3, len(labels), device=labels.device)  # sum and number in the window, last value
        self.shares = torch.full((n_classes,), 1 / n_classes, device=labels.device)  # pi

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        self.beta.fill_(self.largest * float(np.clip((100 * epoch / epochs - 10) / 29, 0, 1)))
        self.acts.fill_(sieve_acts(epoch, epochs))
        self.late.fill_(in_window(epoch, epochs))
        kept = self.record[2] <= 0 if sieve_acts(epoch - 1, epochs) else torch.ones_like(self.labels, dtype=torch.bool)
        if kept.any():
            self.shares.copy_(torch.bincount(self.labels[kept], minlength=len(self.shares)) / kept.sum())

    def __call__(self, logits: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        losses, of_classes = F.cross_entropy(logits, labels, reduction="none"), losses_of_classes(logits)
        said = (losses - of_classes.mean(1)).detach()
        total, number, _ = self.record[:, index]
        self.record.index_copy_(1, index, torch.stack([total + self.late * said, number + self.late, said]))
        kept = (1 - self.acts) + self.acts * (said <= 0)
        return (kept * (losses - self.beta * of_classes @ self.shares)).sum() / kept.sum().clamp(min=1)

    def scores(self, labels: Tensor) -> dict[str, Tensor]:
        total, number, last = self.record
        return {"sieve": torch.where(number > 0, total / number.clamp(min=1), last), "last": last}

    def state_dict(self) -> dict[str, Any]:
        return {"record": self.record}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.record.copy_(state["record"])


class CORES(RobustTrainer):
    name = "cores"
    title = "CORES²"
    group = "Later robust trainers"
    order = 4
    candidates: ClassVar = {
        "sieve": "mean of the sieve's value over the last half of training",
        **RobustTrainer.candidates,
    }
    ranked_by = "window_margin"

    @dataclass(frozen=True)
    class Params:
        beta: float = 2.0  # weight of the regulariser from 40 % of training on

    def __init__(self, **params):
        super().__init__(**params)
        self.need(self.params.beta >= 0, "beta", "must not be negative")

    def detect(self, task: NoisyTask) -> Detection:
        loss = SampleSieve(task.labels, task.n_classes, self.params.beta)
        trained = train_with_loss(task, loss)
        said = {name: values.double().cpu().numpy() for name, values in loss.scores(task.labels).items()}
        return self.detection(
            {"sieve": said["sieve"], **trained.scores()},
            test_logits=trained.test_logits,
            remove=at_most(said["last"] > 0, said["last"]),
            curves=trained.curves,
        )
