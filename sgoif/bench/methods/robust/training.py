"""Trains with another loss than cross-entropy, and records every epoch of such training.

history = History()
for epoch in session.epochs(recipe.epochs, learner, history):
    ...
    history.add(loss=losses_of_all_examples, keep=0.8)      # tensors of shape [N], and numbers
history.stack("loss")                                       # [E, N]
history.curves                                              # {"keep": [0.8, …]}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.backend.collectives import size
from sgoif.bench.methods.base import NoisyLabelDetector
from sgoif.bench.methods.robust.losses import TrainingLoss
from sgoif.bench.methods.robust.visits import VisitRecorder, Visits, candidate_scores, in_window, measure
from sgoif.bench.methods.tasks import NoisyTask
from sgoif.errors import UserError
from sgoif.training import distributed
from sgoif.training.batches import Batch, Batches
from sgoif.training.images import ImageSet, ImageSource
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


class RobustTrainer(NoisyLabelDetector):
    """Base class of methods that train one network by another loss.

    It declares the scores that such a training gives, those of `TrainedNetwork.scores`. A method with further ones
    writes `candidates = {"name": "what it is", **RobustTrainer.candidates}`.
    """

    candidates: ClassVar[Mapping[str, str]] = {
        "last_loss": "cross-entropy after the last epoch",
        "window_loss": "mean cross-entropy over the last half of training",
        "window_margin": "minus the mean margin over the last half of training",
        "window_doubt": "one minus the mean probability of the label over the last half of training",
        "mean_loss": "mean cross-entropy over all of training",
        "mean_margin": "minus the mean margin over all of training",
        "mean_doubt": "one minus the mean probability of the label over all of training",
    }


@dataclass(frozen=True)
class PreparedTraining:
    """What is trained on, and by which loss.

    Attributes:
        batches: Minibatches; their first examples are those of the task, others may follow.
        loss: The loss.
        labels: Labels of all of them, shape [n].
    """

    batches: Batches
    loss: TrainingLoss
    labels: Tensor


@dataclass(frozen=True)
class TrainedNetwork:
    """What a training by another loss gave.

    Attributes:
        net: The network.
        visits: What was recorded of every visit: the training steps themselves, or passes over the window.
        test_logits: Logits on the test images, shape [M, K].
        last_loss: Cross-entropy of the training images after the last epoch, shape [N]: eval mode, no augmentation.
        curves: One number per epoch each.
    """

    net: Network
    visits: Visits
    test_logits: np.ndarray
    last_loss: np.ndarray
    curves: dict[str, list[float]]

    def scores(self, window_alone: bool = False) -> dict[str, np.ndarray]:
        """Return the candidate scores, shape [N] each: `last_loss` and those of `visits.candidate_scores`.

        Args:
            window_alone: Whether those over all of training are left out, since nothing was recorded before the window.
        """
        found = candidate_scores(self.visits)
        return {"last_loss": self.last_loss, **{k: v for k, v in found.items() if not window_alone or "window" in k}}


def train_with_loss(task: NoisyTask, loss: TrainingLoss, clip: float | None = None) -> TrainedNetwork:
    """Train by the recipe with another loss; the visits are those of the training steps and cost nothing.

    Args:
        task: Data and recipe.
        loss: The loss, whose state is saved with the network's.
        clip: Norm at which gradients are clipped.
    """

    def forward(learner: Learner, batch: Batch) -> tuple[Tensor, Tensor]:
        logits = learner(batch.x)
        return loss(logits, batch.labels, batch.index), measure(logits, batch.labels)

    return train_with(task, forward, clip=clip, loss=loss)


def train_with(
    task: NoisyTask,
    forward: Callable[[Learner, Batch], tuple[Tensor, ...]],
    draw: Callable[[Batch, np.random.Generator], tuple[Tensor, ...]] | None = None,
    clip: float | None = None,
    loss: TrainingLoss | None = None,
    batches: Batches | None = None,
) -> TrainedNetwork:
    """Train by the recipe with another step.

    Args:
        task: Data and recipe.
        forward: Returns the loss of a minibatch and what `visits.measure` says of its logits; only the loss if the
            logits say nothing of single examples: then the training images are passed through the network after each
            epoch of the window. On a GPU it is captured as a CUDA graph, so that it must not depend on values.
        draw: Draws random numbers of a step on the host; they are `batch.extra` in `forward`.
        clip: Norm at which gradients are clipped.
        loss: A loss whose state changes within `forward`.
        batches: What is trained on, the training set first; default the training set alone.
    """
    batches, session, epochs = batches or task.batches(), task.session, task.recipe.epochs
    learner, history = task.learner(batches), History()
    recorder, states = VisitRecorder(len(batches.labels), task.labels.device), [] if loss is None else [loss]
    if clip is not None:
        clip_gradients(learner, clip)
    step = learner.stepper(lambda batch: forward(learner, batch))
    for epoch in session.epochs(epochs, learner, history, recorder, *states):
        rng, total = numpy_generator(task.seed, "loss", epoch), torch.zeros((), device=task.labels.device)
        for state in states:
            state.begin_epoch(epoch, epochs)
        for batch in batches.epoch(epoch):
            if draw is not None:
                batch.with_extra(*draw(batch, rng))
            value, *measured = step(batch)
            total += value
            if measured:
                recorder.add(batch.index, measured[0])
        if not measured and in_window(epoch, epochs):
            with session.timer("score"):
                everything = torch.arange(len(task.labels), device=task.labels.device)
                recorder.add(everything, measure(task.predict(learner.net)[0], task.labels))
        recorder.end_epoch()
        history.add(loss=distributed.sum_over_processes(float(total)) / size() / batches.steps)
    with session.timer("score"):
        logits, _ = task.predict(learner.net)
        test_logits, _ = task.predict(learner.net, task.test)
    last_loss = F.cross_entropy(logits, task.labels, reduction="none").cpu().numpy()
    visits = recorder.visits().first(len(task.labels))
    return TrainedNetwork(learner.net, visits, test_logits.cpu().numpy(), last_loss, history.curves)


def with_trusted(task: NoisyTask, images: ImageSource, labels: Tensor) -> Batches:
    """Return batches of the training set followed by trusted images with these labels, shape [V].

    Raises:
        UserError: If the images are streamed from disk.
    """
    if not (isinstance(task.train, ImageSet) and isinstance(images, ImageSet)):
        raise UserError("trusted images can be trained on along with the others only where all are in memory")
    together = task.train.with_pixels(torch.cat([task.train.pixels, images.pixels]))
    recipe, labels = task.recipe, torch.cat([task.labels, labels.to(task.labels.device)])
    return Batches(together, labels, recipe.batch_size, task.seed, None, recipe.shift, recipe.flip)


def clip_gradients(learner: Learner, norm: float) -> None:
    """Clip the gradients of a learner at a norm before each of its further steps."""
    weights = list(learner.net.parameters())

    def clip(*_: object) -> None:
        torch.nn.utils.clip_grad_norm_(weights, norm)

    learner.optimizer.register_step_pre_hook(clip)
