"""Trains two networks on each other's selection: the mechanism of Co-teaching, also used by INCV's second stage.

Each network selects the examples of a minibatch that have a small loss, and the *other* one is trained on them. Errors
of one network are thus filtered by the other instead of being fed back into itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.backend.collectives import active, size, sum_
from sgoif.bench.methods.tasks import NoisyTask
from sgoif.training.batches import Batch, Batches
from sgoif.training.cost.compute_counter import COMPUTE
from sgoif.training.distributed import gather_batch, own_rows
from sgoif.training.images import ImageSource
from sgoif.training.seeds import mix_seed

IGNORED_LABEL = -100  # left out by cross-entropy


def exchange(first: Tensor, second: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Order a minibatch for each network by the loss of the other one.

    Several processes order the whole minibatch, of which each has n examples.

    Args:
        first: Logits of the first network, shape [n, K].
        second: Logits of the second network, shape [n, K].
        labels: Noisy labels, shape [n].

    Returns:
        Positions in the order in which the first network prefers them, smallest loss of the *second* first, shape [B]
        with B = n in a single process; and those for the second network.
    """
    own = [F.cross_entropy(logits.detach(), labels, reduction="none") for logits in (first, second)]
    losses = [gather_batch(loss) for loss in own]
    return losses[1].argsort(stable=True), losses[0].argsort(stable=True)


def among(order: Tensor, keep: Tensor) -> Tensor:
    """Return which of this process's examples are among the first `keep` of an `order` [B], bool, shape [n]."""
    rank = torch.arange(len(order), device=order.device)
    return own_rows(torch.zeros_like(order, dtype=torch.bool).scatter(0, order, rank < keep))


def mean_loss(logits: Tensor, labels: Tensor, chosen: Tensor) -> Tensor:
    """Return the mean cross-entropy over the `chosen`, bool, shape [n].

    It is that of `logits[chosen]`, without a shape that depends on values, so that it can be part of a CUDA graph. The
    mean of what several processes return is the mean over the chosen of all of them.
    """
    among_chosen = labels.masked_fill(~chosen, IGNORED_LABEL)
    if not active():
        return F.cross_entropy(logits, among_chosen, ignore_index=IGNORED_LABEL)
    count = chosen.sum().float()
    sum_(count)
    return F.cross_entropy(logits, among_chosen, ignore_index=IGNORED_LABEL, reduction="sum") * size() / count


class Peers:
    """Two learners of one recipe that differ in initial weights and see the same minibatches. Resumable state."""

    def __init__(self, task: NoisyTask, batches: Batches, epochs: int | None = None, sizes_vary: bool = False) -> None:
        """Create both learners.

        Args:
            task: Data and recipe.
            batches: What they will be trained on.
            epochs: Default the recipe's.
            sizes_vary: Whether they are trained on parts of a batch, of several sizes.
        """
        self.first = task.learner(batches, epochs=epochs, sizes_vary=sizes_vary)
        self.second = task.learner(batches, seed=mix_seed(task.seed, "peer"), epochs=epochs, sizes_vary=sizes_vary)

    def stepper(self, forward: Callable[[Batch], tuple[Tensor, ...]]) -> Callable[[Batch], tuple[Tensor, ...]]:
        """Return the training step of both; `forward` returns (loss of the first, loss of the second, …)."""
        return self.first.stepper(forward, self.second)

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits of both networks in training mode, shape [n, K] each."""
        return self.first(x), self.second(x)

    @torch.no_grad()
    def eval_logits(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits of both networks in eval mode, shape [n, K] each, without gradients."""
        logits = []
        for learner in (self.first, self.second):
            COMPUTE.forward_passes += len(x)
            learner.net.eval()
            with learner.forward_context():
                logits.append(learner.net(x).float())
            learner.net.train()
        return logits[0], logits[1]

    def predict(self, task: NoisyTask, images: ImageSource | None = None) -> tuple[Tensor, Tensor]:
        """Return logits of both networks for all training images, or other images, shape [n, K] each."""
        return task.predict(self.first.net, images)[0], task.predict(self.second.net, images)[0]

    def check_finite(self) -> None:
        """Raise `Diverged` if a network has weights that are not finite."""
        self.first.check_finite()
        self.second.check_finite()

    def state_dict(self) -> dict[str, Any]:
        return {"first": self.first.state_dict(), "second": self.second.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.first.load_state_dict(state["first"])
        self.second.load_state_dict(state["second"])
