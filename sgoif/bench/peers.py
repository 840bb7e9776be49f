"""Two networks that teach each other: the mechanism of Co-teaching, also used by INCV's second stage.

Each network names the examples of a minibatch that it finds easy (small loss), and the *other* one is trained on them.
Errors of one network are thus filtered by the other instead of being fed back into itself.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.contracts import NoisyTask
from sgoif.bench.images import Batches, mix_seed


def smallest(losses: Tensor, keep: int) -> Tensor:
    """[keep] positions of the smallest losses, ascending; at least one."""
    return losses.argsort(stable=True)[: max(keep, 1)]


def exchange(first: Tensor, second: Tensor, y: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    """From both networks' logits [n, K]: (what the first is trained on = the second's choice, and the reverse)."""
    losses = [F.cross_entropy(logits.detach(), y, reduction="none") for logits in (first, second)]
    return smallest(losses[1], keep), smallest(losses[0], keep)


class Peers:
    """Two learners of one recipe that differ in their initial weights and see the same minibatches."""

    def __init__(self, task: NoisyTask, batches: Batches, epochs: int | None = None):
        self.first = task.learner(batches, epochs=epochs)
        self.second = task.learner(batches, seed=mix_seed(task.seed, "peer"), epochs=epochs)

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Both networks' logits in training mode."""
        return self.first(x), self.second(x)

    @torch.no_grad()
    def judge(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Both networks' logits in eval mode, without a graph."""
        logits = []
        for learner in (self.first, self.second):
            learner.net.eval()
            with learner.autocast():
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
