"""Convolutional networks in a fidelity measurement: how they are trained, on all images or on many subsets in turn.

On a GPU a training step is one CUDA graph. It is captured once, and each training starts from new weights in the same
memory, because capturing takes longer than a short training.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sgoif.backend.eval_mode import eval_mode
from sgoif.bench.fidelity.retrain import label_margins
from sgoif.training.batches import Batches
from sgoif.training.images import ImageSet
from sgoif.training.learner import Learner
from sgoif.training.models import Network, build_network, resnet9
from sgoif.training.recipe import Recipe
from sgoif.training.seeds import seeded_weights

PREDICTED_AT_ONCE = 1000


@dataclass(frozen=True)
class ImageTraining:
    """How a network is trained on images.

    Attributes:
        images: The training images, N of them.
        labels: Labels that are trained on, shape [N].
        n_classes: Number of classes.
        recipe: The training recipe.
        width: Channels of the first layer of a ResNet-9; other models have a fixed width.
    """

    images: ImageSet
    labels: Tensor
    n_classes: int
    recipe: Recipe
    width: int

    def steps(self, examples: int) -> int:
        """Return the number of steps of a training on so many examples."""
        return self.recipe.epochs * max(examples // min(self.recipe.batch_size, examples), 1)

    def network(self, seed: int) -> Network:
        """Return an untrained network, whose weights are a function of the seed."""
        channels, size = self.images.channels, self.images.size
        with seeded_weights(seed):
            if self.recipe.model == "resnet9":
                return resnet9(self.n_classes, channels, size, self.width)
            return build_network(self.recipe.model, self.n_classes, channels, size)

    def batches(self, seed: int, chosen: Tensor | None = None) -> Batches:
        """Return the batches of a training on all examples, or on those chosen by their numbers."""
        recipe = self.recipe
        return Batches(self.images, self.labels, recipe.batch_size, seed, chosen, recipe.shift, recipe.flip)

    def learner(self, seed: int, batches: Batches, graph: bool) -> Learner:
        """Return a network of its own with its optimiser; `graph` says whether its steps may be a CUDA graph."""
        recipe = replace(self.recipe, graph=graph)
        return Learner.for_batches(recipe, self.n_classes, batches, seed, network=self.network(seed))


class SubsetTrainer:
    """Trains one network after the other, each on its own subset, in the memory of the first.

    All subsets have the same size.
    """

    def __init__(self, training: ImageTraining, size: int) -> None:
        """Build the network.

        Args:
            training: How a network is trained.
            size: Examples of a subset.
        """
        self.training = training
        self.size = size
        self.learner = training.learner(0, training.batches(0, torch.arange(size)), graph=True)
        self.step = self.learner.plain_stepper()

    def train(self, chosen: Tensor, seed: int) -> Network:
        """Train on the examples with these numbers, shape [size]; the network is overwritten by the next call.

        Raises:
            Diverged: If the loss is not finite.
        """
        assert len(chosen) == self.size
        self._restart(seed)
        batches = self.training.batches(seed, chosen)
        for epoch in range(self.training.recipe.epochs):
            for batch in batches.epoch(epoch):
                self.step(batch)
        self.learner.check_finite()
        return self.learner.net

    def _restart(self, seed: int) -> None:
        """Write new initial weights into the network and forget the momentum, in place."""
        self.learner.net.load_state_dict(self.training.network(seed).state_dict())
        for state in self.learner.optimizer.state.values():
            for value in state.values():
                if isinstance(value, Tensor):
                    value.zero_()
        self.learner.steps_done = 0

    @torch.no_grad()
    def logits(self, x: Tensor) -> Tensor:
        """Return the trained network's logits of normalised images, shape [n, C]."""
        net = self.learner.net
        with eval_mode(net), self.learner.forward_context():
            return torch.cat([net(part).float() for part in x.split(PREDICTED_AT_ONCE)])


def retrain_images(
    training: ImageTraining, masks: Tensor, seeds: list[int], x: Tensor, y: Tensor
) -> tuple[Tensor, Tensor]:
    """Train on each subset and ask for the targets.

    Args:
        training: How a network is trained.
        masks: 1 for the examples in a subset, shape [S, N].
        seeds: Seed of each training's weights and batches.
        x: Normalised target images, shape [M, C, H, W].
        y: Their labels, shape [M].

    Returns:
        log p_y / (1 - p_y) and the predicted classes, both of shape [S, M], on the host.
    """
    trainers: dict[int, SubsetTrainer] = {}
    margins, predicted = [], []
    for mask, seed in zip(masks.cpu(), seeds, strict=True):
        chosen = mask.nonzero().flatten()
        if len(chosen) not in trainers:
            trainers = {len(chosen): SubsetTrainer(training, len(chosen))}  # one at a time: each holds a graph
        trainer = trainers[len(chosen)]
        trainer.train(chosen, seed)
        logits = trainer.logits(x)
        margins.append(label_margins(logits, y).cpu())
        predicted.append(logits.argmax(1).cpu())
    return torch.stack(margins), torch.stack(predicted)
