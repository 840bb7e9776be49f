"""Trains with another loss than cross-entropy, and records every epoch of such training.

history = History()
for epoch in session.epochs(recipe.epochs, learner, history):
    ...
    history.add(loss=losses_of_all_examples, keep=0.8)      # tensors of shape [N], and numbers
history.stack("loss")                                       # [E, N]
history.curves                                              # {"keep": [0.8, …]}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.methods.base import Detection, NoisyTask
from sgoif.training.batches import Batch
from sgoif.training.learner import Learner
from sgoif.training.models import Network
from sgoif.training.seeds import numpy_generator


class History:
    """Arrays of shape [N] and numbers of every epoch, by name. Resumable state."""

    def __init__(self) -> None:
        self.arrays: dict[str, list[Tensor]] = {}
        self.curves: dict[str, list[float]] = {}

    def add(self, **values: Tensor | float) -> None:
        """Record an epoch: tensors of shape [N] in `arrays`, numbers in `curves`."""
        for name, value in values.items():
            if isinstance(value, Tensor) and value.ndim:
                self.arrays.setdefault(name, []).append(value.detach().float().cpu())
            else:
                self.curves.setdefault(name, []).append(float(value))

    def stack(self, name: str) -> np.ndarray:
        """Return a recorded array of all epochs, shape [E, N]."""
        return torch.stack(self.arrays[name]).numpy()

    def state_dict(self) -> dict[str, Any]:
        return {"arrays": self.arrays, "curves": self.curves}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.arrays = {name: [t.cpu() for t in values] for name, values in state["arrays"].items()}
        self.curves = state["curves"]


def label_losses(task: NoisyTask, net: Network) -> Tensor:
    """Return the cross-entropy of every training image with its noisy label, shape [N]: eval mode, no augmentation."""
    logits, _ = task.predict(net)
    return F.cross_entropy(logits, task.labels, reduction="none")


def train_with(
    task: NoisyTask,
    loss: Callable[[Learner, Batch], Tensor],
    draw: Callable[[Batch, np.random.Generator], tuple[Tensor, ...]] | None = None,
    clip: float | None = None,
) -> Detection:
    """Train by the recipe with another loss, and score by the cross-entropy after the last epoch.

    There are no scores by epoch: only the last pass is used, and one pass after every epoch would add a third to the
    arithmetic of training.

    Args:
        task: Data and recipe.
        loss: Returns the loss of a minibatch. On a GPU it is captured as a CUDA graph, so that it must not depend on
            values.
        draw: Draws random numbers of a step on the host; they are `batch.extra` in `loss`.
        clip: Norm at which gradients are clipped.

    Returns:
        Scores and logits on the test images.
    """
    batches, session = task.batches(), task.session
    learner, history = task.learner(batches), History()
    if clip is not None:
        clip_gradients(learner, clip)
    step = learner.stepper(lambda batch: (loss(learner, batch),))
    for epoch in session.epochs(task.recipe.epochs, learner, history):
        rng, total = numpy_generator(task.seed, "loss", epoch), torch.zeros((), device=task.labels.device)
        for batch in batches.epoch(epoch):
            if draw is not None:
                batch.with_extra(*draw(batch, rng))
            total += step(batch)[0]
        history.add(loss=total / batches.steps)
    with session.timer("score"):
        scores = label_losses(task, learner.net)
        test_logits, _ = task.predict(learner.net, task.test)
    return Detection(scores.cpu().numpy(), test_logits.cpu().numpy(), curves=history.curves)


def clip_gradients(learner: Learner, norm: float) -> None:
    """Clip the gradients of a learner at a norm before each of its further steps."""
    weights = list(learner.net.parameters())

    def clip(*_: object) -> None:
        torch.nn.utils.clip_grad_norm_(weights, norm)

    learner.optimizer.register_step_pre_hook(clip)
