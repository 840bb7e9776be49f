"""The data of a fidelity measurement: some training images with some wrong labels, and test images as targets."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sgoif.bench.data import load
from sgoif.bench.fidelity.retrain import NetworkRecipe
from sgoif.errors import UserError

PARTS = {"data": 1, "labels": 2, "subsets": 3, "halves": 4, "run": 5, "removal": 6}  # seeds of what is drawn
CONVEX: dict[str, Any] = {"epochs": 20, "lr": 0.1, "weight_decay": 0.05}  # the recipe of logistic regression


@dataclass(frozen=True)
class AttributionProblem:
    """What is trained on and asked for, the same for all methods.

    Attributes:
        x: Training images, shape [N, d].
        labels: Labels that are trained on, shape [N].
        true_labels: Right labels, shape [N]; only the measurement reads them.
        target_x: Test images, shape [M, d].
        target_y: Their right labels, shape [M].
        n_classes: Number of classes.
        recipe: How the network is trained.
        seed: Seed of everything that is drawn.
    """

    x: Tensor
    labels: Tensor
    true_labels: Tensor
    target_x: Tensor
    target_y: Tensor
    n_classes: int
    recipe: NetworkRecipe
    seed: int

    @property
    def n(self) -> int:
        """Number of training examples N."""
        return len(self.labels)

    @property
    def steps(self) -> int:
        """Optimiser steps of one training."""
        return self.recipe.steps(self.n)

    def seed_of(self, part: str) -> int:
        """Return the seed of one of `PARTS`."""
        return 1000 * self.seed + PARTS[part]

    def generator(self, part: str) -> torch.Generator:
        """Return a new generator for one of `PARTS`."""
        return torch.Generator().manual_seed(self.seed_of(part))

    def convex(self) -> AttributionProblem:
        """Return the same problem for logistic regression, decayed so far that the run comes near its optimum."""
        return replace(self, recipe=replace(self.recipe, hidden=(), **CONVEX))

    def network(self) -> nn.Sequential:
        """Return an untrained network of the recipe."""
        sizes = (self.x.shape[1], *self.recipe.hidden, self.n_classes)
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(sizes):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        return nn.Sequential(*layers[:-1]).to(self.x.device)


def build_problem(root: Path | str, spec: dict[str, Any], seed: int, device: str = "cpu") -> AttributionProblem:
    """Draw training images, wrong labels and targets.

    Args:
        root: Folder of the prepared datasets.
        spec: The measurement's part of the configuration.
        seed: Seed of the draw.
        device: Where the tensors go.
    """
    x, true_labels, target_x, target_y, classes = _drawn_images(root, spec, seed)
    mean, std = x.mean(), x.std()
    draw = np.random.default_rng(1000 * seed + PARTS["labels"])
    wrong = torch.tensor(draw.random(len(x)) < spec["noise"])
    shift = torch.tensor(draw.integers(1, classes, len(x)))
    labels = torch.where(wrong, (true_labels + shift) % classes, true_labels)
    return AttributionProblem(
        x=((x - mean) / std).to(device),
        labels=labels.to(device),
        true_labels=true_labels.to(device),
        target_x=((target_x - mean) / std).to(device),
        target_y=target_y.to(device),
        n_classes=classes,
        recipe=NetworkRecipe(
            tuple(spec["hidden"]), spec["epochs"], spec["batch_size"], spec["lr"], spec["weight_decay"]
        ),
        seed=seed,
    )


def _drawn_images(root: Path | str, spec: dict[str, Any], seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
    """Return training images [N, d] and labels, target images [M, d] and labels, and the number of classes.

    Raises:
        UserError: If the dataset has fewer images than are asked for.
    """
    draw = np.random.default_rng(1000 * seed + PARTS["data"])
    classes: list[int] = spec["classes"]
    chosen: list[Tensor] = []
    for part, count in (("train", spec["examples"]), ("test", spec["targets"])):
        known = load.true_labels(root, spec["dataset"], part)
        classes = classes or sorted({int(label) for label in known})
        rows = np.flatnonzero(np.isin(known, classes))
        if len(rows) < count:
            raise UserError(f"fidelity: {spec['dataset']} has {len(rows)} {part} images of these classes, not {count}")
        rows = draw.permutation(rows)[:count]
        images = np.asarray(load.images(root, spec["dataset"], part)[np.sort(rows)], dtype=np.float32)
        chosen += [torch.tensor(images).flatten(1), torch.tensor(np.searchsorted(classes, known[np.sort(rows)]))]
    return chosen[0], chosen[1], chosen[2], chosen[3], len(classes)
