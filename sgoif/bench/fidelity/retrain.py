"""Trains many small networks at once, each on its own subset of the training examples, by batched linear algebra.

The networks are multi-layer perceptrons; without a hidden layer that is logistic regression. All of them see the same
batches; an example that is not in a network's subset has weight 0 there. Each has its own initial weights, unless
`same_start` is set.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

MOMENTUM = 0.9


@dataclass(frozen=True)
class NetworkRecipe:
    """How a network is trained: SGD with momentum, the learning rate falling to 0 on a line.

    Attributes:
        hidden: Widths of the hidden layers.
        epochs: Epochs.
        batch_size: Examples of a step.
        lr: First learning rate.
        weight_decay: Factor of half the squared norm of all parameters in the loss.
    """

    hidden: tuple[int, ...]
    epochs: int
    batch_size: int
    lr: float
    weight_decay: float

    def steps(self, n_examples: int) -> int:
        """Return the number of steps of a training."""
        return self.epochs * math.ceil(n_examples / self.batch_size)


def initial_layers(sizes: Sequence[int], count: int, generator: torch.Generator) -> list[tuple[Tensor, Tensor]]:
    """Return (weight [S, in, out], bias [S, 1, out]) of each layer, He-initialised; a linear model starts at zero."""
    layers = []
    for inputs, outputs in itertools.pairwise(sizes):
        scale = math.sqrt(2 / inputs) if len(sizes) > 2 else 0.0
        layers.append(
            (torch.randn(count, inputs, outputs, generator=generator) * scale, torch.zeros(count, 1, outputs))
        )
    return layers


def forward(layers: Sequence[tuple[Tensor, Tensor]], x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return logits [S, n, C] and the inputs of each layer, for images [n, d] that all networks see."""
    value = x.expand(len(layers[0][0]), -1, -1)
    inputs = []
    for number, (weight, bias) in enumerate(layers):
        inputs.append(value)
        value = torch.baddbmm(bias, value, weight)
        if number < len(layers) - 1:
            value = value.relu()
    return value, inputs


def batch_order(n_examples: int, recipe: NetworkRecipe, generator: torch.Generator) -> list[Tensor]:
    """Return the examples of every step of a training."""
    return [
        batch
        for _ in range(recipe.epochs)
        for batch in torch.randperm(n_examples, generator=generator).split(recipe.batch_size)
    ]


def train_many(
    x: Tensor, y: Tensor, n_classes: int, masks: Tensor, recipe: NetworkRecipe, seed: int, same_start: bool = False
) -> list[tuple[Tensor, Tensor]]:
    """Train one network for each subset.

    Args:
        x: Training images, shape [N, d].
        y: Their labels, shape [N].
        n_classes: Number of classes C.
        masks: 1 for the examples in a subset, else 0, shape [S, N].
        recipe: How a network is trained.
        seed: Seed of initial weights and batches.
        same_start: Give all networks the same initial weights.

    Returns:
        (weight [S, in, out], bias [S, 1, out]) of each layer.
    """
    generator = torch.Generator().manual_seed(seed)
    sizes = (x.shape[1], *recipe.hidden, n_classes)
    layers = initial_layers(sizes, 1 if same_start else len(masks), generator)
    layers = [(w.expand(len(masks), -1, -1).clone().to(x.device), b.expand(len(masks), -1, -1).clone().to(x.device))
              for w, b in layers]  # fmt: skip
    velocity = [(torch.zeros_like(w), torch.zeros_like(b)) for w, b in layers]
    onehot = F.one_hot(y, n_classes).to(x.dtype)
    order = batch_order(len(x), recipe, generator)
    for step, index in enumerate(order):
        index = index.to(x.device)
        weights = masks[:, index]
        weights = weights / weights.sum(1, keepdim=True).clamp(min=1)
        logits, inputs = forward(layers, x[index])
        error = (logits.softmax(2) - onehot[index]) * weights.unsqueeze(2)
        _sgd_step(layers, velocity, inputs, error, recipe.lr * (1 - step / len(order)), recipe.weight_decay)
    return layers


def _sgd_step(
    layers: list[tuple[Tensor, Tensor]],
    velocity: list[tuple[Tensor, Tensor]],
    inputs: list[Tensor],
    error: Tensor,
    rate: float,
    decay: float,
) -> None:
    """Propagate the errors of the logits back and take one step, in place."""
    for number in reversed(range(len(layers))):
        gradients = inputs[number].mT @ error, error.sum(1, keepdim=True)
        if number:
            error = (error @ layers[number][0].mT) * (inputs[number] > 0)
        for parameter, v, gradient in zip(layers[number], velocity[number], gradients, strict=True):
            v.mul_(MOMENTUM).add_(gradient).add_(parameter, alpha=decay)
            parameter.add_(v, alpha=-rate)


def margins(layers: Sequence[tuple[Tensor, Tensor]], x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return log p_y / (1 - p_y) and the predicted class of every network for every image, both of shape [S, n]."""
    logits, _ = forward(layers, x)
    return label_margins(logits, y), logits.argmax(2)


def label_margins(logits: Tensor, y: Tensor) -> Tensor:
    """Return log p_y / (1 - p_y), shape [..., n], of logits [..., n, C] and labels [n]."""
    log_p = logits.log_softmax(-1)
    own = F.one_hot(y, logits.shape[-1]).bool()
    right = log_p.masked_fill(~own, -torch.inf).logsumexp(-1)
    return right - log_p.masked_fill(own, -torch.inf).logsumexp(-1)
