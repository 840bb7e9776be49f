"""What robust trainers share: a record of every epoch, the scoring pass, and training with a loss of one's own.

history = History()
for epoch in session.epochs(recipe.epochs, learner, history):
    ...
    history.add(loss=losses_of_all_examples, keep=0.8)      # tensors [N] and numbers
history.stack("loss")                                       # [E, N]
history.curves                                              # {"keep": [0.8, …]}
"""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.contracts import Detection, NoisyTask, seeded
from sgoif.bench.images import Batch
from sgoif.bench.learner import Learner


class History:
    """Per epoch: one array per name [N], one number per curve. Part of the resumable state."""

    def __init__(self):
        self.arrays: dict[str, list[Tensor]] = {}
        self.curves: dict[str, list[float]] = {}

    def add(self, **values: Tensor | float) -> None:
        """A tensor with an example axis joins an array, a number joins a curve."""
        for name, value in values.items():
            if isinstance(value, Tensor) and value.ndim:
                self.arrays.setdefault(name, []).append(value.detach().float().cpu())
            else:
                self.curves.setdefault(name, []).append(float(value))

    def stack(self, name: str) -> np.ndarray:
        """[E, N]"""
        return torch.stack(self.arrays[name]).numpy()

    def state_dict(self) -> dict:
        return {"arrays": self.arrays, "curves": self.curves}

    def load_state_dict(self, state: dict) -> None:
        self.arrays = {name: [t.cpu() for t in values] for name, values in state["arrays"].items()}
        self.curves = state["curves"]


def given_loss(task: NoisyTask, net) -> Tensor:
    """[N] cross-entropy of every training image against its given label: eval mode, no augmentation, dataset order."""
    logits, _ = task.predict(net)
    return F.cross_entropy(logits, task.given, reduction="none")


def train_with(
    task: NoisyTask, loss: Callable[[Learner, Batch, np.random.Generator], Tensor], clip: float | None = None
) -> Detection:
    """Trains by the recipe on `loss(learner, batch, rng)`; scores by the cross-entropy after the last epoch.

    Gradients are clipped at norm `clip`. Passes that only fill `epoch_scores` are booked as "record", not as "score".
    """
    batches, session, epochs = task.batches(), task.session, task.recipe.epochs
    learner, history = task.learner(batches), History()
    if clip is not None:
        clip_gradients(learner, clip)
    for epoch in session.epochs(epochs, learner, history):
        rng = seeded(task.seed, "loss", epoch)
        for batch in batches.epoch(epoch):
            learner.step(loss(learner, batch, rng))
        with session.timed("score" if epoch + 1 == epochs else "record"):
            losses = given_loss(task, learner.net)
            history.add(loss=losses, given_label_loss=losses.mean())
    with session.timed("score"):
        test_logits, _ = task.predict(learner.net, task.test)
    scores = history.stack("loss")
    return Detection(scores[-1], test_logits.cpu().numpy(), epoch_scores=scores, curves=history.curves)


def clip_gradients(learner: Learner, norm: float) -> None:
    """From now on, gradients longer than `norm` are shortened to it before each step."""
    weights = list(learner.net.parameters())

    def clip(*_) -> None:
        torch.nn.utils.clip_grad_norm_(weights, norm)

    learner.optimizer.register_step_pre_hook(clip)
