"""Two networks that teach each other: the mechanism of Co-teaching, also used by INCV's second stage.

Each network names the examples of a minibatch that it finds easy (small loss), and the *other* one is trained on them.
Errors of one network are thus filtered by the other instead of being fed back into itself.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.methods.base import NoisyTask
from sgoif.training.batches import Batch, Batches
from sgoif.training.compute_counter import COMPUTE
from sgoif.training.seeds import mix_seed

IGNORED = -100  # a label that cross-entropy leaves out


def exchange(first: Tensor, second: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """From both networks' logits [n, K]: all positions [n] in the order in which the first is to be trained on them
    (smallest loss of the *second* first), and the reverse."""
    losses = [F.cross_entropy(logits.detach(), y, reduction="none") for logits in (first, second)]
    return losses[1].argsort(stable=True), losses[0].argsort(stable=True)


def among(order: Tensor, keep: Tensor) -> Tensor:
    """[n] bool: whether each position is among the first `keep` of `order`."""
    places = torch.arange(len(order), device=order.device)
    return torch.zeros_like(order, dtype=torch.bool).scatter(0, order, places < keep)


def mean_loss(logits: Tensor, y: Tensor, chosen: Tensor) -> Tensor:
    """Mean cross-entropy over the `chosen` [n] bool: as of logits[chosen], but without a shape that depends on it."""
    return F.cross_entropy(logits, y.masked_fill(~chosen, IGNORED), ignore_index=IGNORED)


class Peers:
    """Two learners of one recipe (with `changes` to it) that differ in initial weights and see the same minibatches."""

    def __init__(self, task: NoisyTask, batches: Batches, epochs: int | None = None, **changes):
        self.first = task.learner(batches, epochs=epochs, **changes)
        self.second = task.learner(batches, seed=mix_seed(task.seed, "peer"), epochs=epochs, **changes)

    def stepper(self, forward: Callable[[Batch], tuple]) -> Callable[[Batch], tuple]:
        """`Learner.stepper` for both: `forward` gives (loss of the first, loss of the second, …)."""
        return self.first.stepper(forward, self.second)

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Both networks' logits in training mode."""
        return self.first(x), self.second(x)

    @torch.no_grad()
    def judge(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Both networks' logits in eval mode, without a graph."""
        logits = []
        for learner in (self.first, self.second):
            COMPUTE.forward_passes += len(x)
            learner.net.eval()
            with learner.forward_context():
                logits.append(learner.net(x).float())
            learner.net.train()
        return logits[0], logits[1]

    def predict(self, task: NoisyTask, images=None) -> tuple[Tensor, Tensor]:
        """Both networks' logits on the training images (or others): the scoring pass."""
        return task.predict(self.first.net, images)[0], task.predict(self.second.net, images)[0]

    def check_finite(self) -> None:
        self.first.check_finite()
        self.second.check_finite()

    def state_dict(self) -> dict:
        return {"first": self.first.state_dict(), "second": self.second.state_dict()}

    def load_state_dict(self, state: dict) -> None:
        self.first.load_state_dict(state["first"])
        self.second.load_state_dict(state["second"])
