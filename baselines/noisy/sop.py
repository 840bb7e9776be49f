"""SOP, sparse over-parametrisation. Liu, Zhu, Qu & You, ICML 2022 (arXiv:2202.14026).

Each example has a noise term of its own, u_i^2 on its label and -v_i^2 on the other classes, that is learned with the
network. Started near zero and multiplied at every visit, it stays small unless the network keeps contradicting the
label; then it explains the label, and the network need not. With one-hot label y, the clipped U = u^2 y and
V = v^2 (1 - y), and h the one-hot vector of the predicted class:

    L = mean_i  CE( (p + U - sg(V)) / |.|_1, y )  +  || h + U - V - y ||^2          (sg: no gradient)

Official code: github.com/shengliu66/SOP (`model/loss.py`, `train.py`, `config_cifar100.json`): u and v start from
N(0, 1e-8), are trained by SGD without momentum, CIFAR-100 with rates 1 and 10, and batches of 128 in 300 epochs. The
paper's CIFAR-10 rates are 10 and 10. The default here follows the number of classes. SOP+, with consistency and class
balance, is another method.

SOP was published as a trainer. Candidates: `noise`, the learned u^2, and the losses, margins and probabilities of its
own training steps.
Cost: 1 plain run. Deviations: optimiser of the network, length and augmentation are the recipe's. Rates of u and v are
those of a batch of 128 examples, since the loss is a mean over the batch. The start has the deviation 1e-8^(E / 300)
for E epochs, but at most 0.1: u grows by a factor per visit, so that it takes the same share of training to grow to 1.
The rates for symmetric noise are used throughout (released: others with `--asym`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.methods.base import Detection
from sgoif.bench.methods.robust.losses import MANY_CLASSES, TrainingLoss
from sgoif.bench.methods.robust.training import RobustTrainer, train_with_loss
from sgoif.bench.methods.tasks import NoisyTask
from sgoif.training.seeds import torch_generator

EPOCHS, BATCH, START = 300, 128, 1e-8  # of the released configuration
SMALLEST = 1e-4
LARGEST_START = 0.1  # a short training may not begin with noise that hides the labels


def start(epochs: int) -> float:
    """The standard deviation of u and v before training for so many epochs."""
    return min(START ** min(epochs / EPOCHS, 1.0), LARGEST_START)


def _descend(noise: Tensor, index: Tensor, step: float, gradient: Tensor) -> None:
    """A step of gradient descent on some rows of a noise term, in place."""
    noise.index_add_(0, index, gradient, alpha=-step)


class OverParametrisation(TrainingLoss):
    """The loss with its noise terms u [N, 1] and v [N, K], which change in the backward pass. Resumable state."""

    def __init__(self, shape: tuple[int, int], rates: tuple[float, float], std: float, device: torch.device, seed: int):
        """Draw u and v from N(0, std) for `shape` = (N, K); `rates` are theirs for a mean over 128 examples."""
        n, k = shape
        g = torch_generator(seed, "sop")
        self.u = (std * torch.randn(n, 1, generator=g)).to(device)
        self.v = (std * torch.randn(n, k, generator=g)).to(device)
        self.rates = rates

    @staticmethod
    def value(logits: Tensor, labels: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """The mean loss for the rows u [n, 1] and v [n, K] of the examples."""
        y = F.one_hot(labels, logits.shape[1]).float()
        plus, minus = (u.square() * y).clamp(0, 1), (v.square() * (1 - y)).clamp(0, 1)
        shifted = (logits.softmax(1) + plus - minus.detach()).clamp(min=SMALLEST)
        p = (shifted / shifted.sum(1, keepdim=True)).clamp(SMALLEST, 1.0)
        predicted = F.one_hot(logits.argmax(1), logits.shape[1])
        mismatch = (predicted + plus - minus - y).square().sum(1)
        return (-(y * p.log()).sum(1) + mismatch).mean()

    def __call__(self, logits: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        rows = []
        for noise, rate in zip((self.u, self.v), self.rates, strict=True):
            row = noise[index].requires_grad_()
            step = rate * len(index) / BATCH
            row.register_hook(partial(_descend, noise, index, step))
            rows.append(row)
        return self.value(logits, labels, *rows)

    def scores(self, labels: Tensor) -> dict[str, Tensor]:
        return {"noise": self.u.square().clamp(0, 1).squeeze(1)}

    def state_dict(self) -> dict[str, Any]:
        return {"u": self.u, "v": self.v}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.u.copy_(state["u"])
        self.v.copy_(state["v"])


class SOP(RobustTrainer):
    name = "sop"
    title = "SOP"
    group = "Later robust trainers"
    order = 3
    candidates: ClassVar = {
        "noise": "the noise term that was learned for the label",
        **RobustTrainer.candidates,
    }
    ranked_by = "last_loss"

    @dataclass(frozen=True)
    class Params:
        rate_u: float | None = None  # None: 10 below 50 classes, 1 from 50 on
        rate_v: float = 10.0

    def __init__(self, **params):
        super().__init__(**params)
        self.need(self.params.rate_u is None or self.params.rate_u > 0, "rate_u", "must be above 0")
        self.need(self.params.rate_v > 0, "rate_v", "must be above 0")

    def detect(self, task: NoisyTask) -> Detection:
        p, many = self.params, task.n_classes >= MANY_CLASSES
        rates = ((1.0 if many else 10.0) if p.rate_u is None else p.rate_u, p.rate_v)
        shape, std = (len(task.labels), task.n_classes), start(task.recipe.epochs)
        loss = OverParametrisation(shape, rates, std, task.labels.device, task.seed)
        trained = train_with_loss(task, loss)
        noise = loss.scores(task.labels)["noise"].double().cpu().numpy()
        return self.detection(
            {"noise": noise, **trained.scores()}, test_logits=trained.test_logits, curves=trained.curves
        )
