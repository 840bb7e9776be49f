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

from sgoif.bench.methods.base import Detection, NoisyTask
from sgoif.training.batches import Batch
from sgoif.training.learner import Learner
from sgoif.training.seeds import numpy_generator


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
    return F.cross_entropy(logits, task.labels, reduction="none")


def train_with(
    task: NoisyTask,
    loss: Callable[[Learner, Batch], Tensor],
    draw: Callable[[Batch, np.random.Generator], tuple[Tensor, ...]] | None = None,
    clip: float | None = None,
) -> Detection:
    """Trains by the recipe on `loss(learner, batch)`; scores by the cross-entropy after the last epoch.

    What `draw(batch, rng)` draws on the host for a step is `batch.extra` in `loss`, which must not look at values: on a
    GPU it is captured. Gradients are clipped at norm `clip`. There are no scores by epoch: nothing but the last pass
    is used, and one after every epoch would be a third of training's arithmetic again.
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
        scores = given_loss(task, learner.net)
        test_logits, _ = task.predict(learner.net, task.test)
    return Detection(scores.cpu().numpy(), test_logits.cpu().numpy(), curves=history.curves)


def clip_gradients(learner: Learner, norm: float) -> None:
    """From now on, gradients longer than `norm` are shortened to it before each step."""
    weights = list(learner.net.parameters())

    def clip(*_) -> None:
        torch.nn.utils.clip_grad_norm_(weights, norm)

    learner.optimizer.register_step_pre_hook(clip)
