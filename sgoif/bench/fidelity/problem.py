"""The data of a fidelity measurement: some training images with some wrong labels, and test images as targets.

The network is a multi-layer perceptron, of which many are trained at once (`retrain`), or, with `model`, a
convolutional network (`image_networks`).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sgoif.bench.data import load
from sgoif.bench.fidelity.image_networks import ImageTraining
from sgoif.bench.fidelity.retrain import NetworkRecipe
from sgoif.errors import UserError
from sgoif.training.images import ImageSet
from sgoif.training.recipe import Recipe

PARTS = {"data": 1, "labels": 2, "subsets": 3, "halves": 4, "run": 5, "removal": 6}  # seeds of what is drawn
POOL_SEED = 7
CONVEX: dict[str, Any] = {"epochs": 20, "lr": 0.1, "weight_decay": 0.05}  # the recipe of logistic regression


@dataclass(frozen=True)
class AttributionProblem:
    """What is trained on and asked for, the same for all methods.

    Attributes:
        x: Normalised training images, shape [N, d], or [N, C, H, W] for a convolutional network.
        labels: Labels that are trained on, shape [N].
        true_labels: Right labels, shape [N]; only the measurement reads them.
        target_x: Normalised test images, shape [M, d] or [M, C, H, W].
        target_y: Their right labels, shape [M].
        n_classes: Number of classes.
        recipe: How the network is trained.
        seed: Seed of everything that is drawn.
        images: How a convolutional network is trained; None for a multi-layer perceptron.
    """

    x: Tensor
    labels: Tensor
    true_labels: Tensor
    target_x: Tensor
    target_y: Tensor
    n_classes: int
    recipe: NetworkRecipe
    seed: int
    images: ImageTraining | None = None

    @property
    def n(self) -> int:
        """Number of training examples N."""
        return len(self.labels)

    @property
    def steps(self) -> int:
        """Optimiser steps of one training."""
        return self.images.steps(self.n) if self.images else self.recipe.steps(self.n)

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
    images, true_labels, target_images, target_y, classes = _drawn_images(root, spec, seed)
    draw = np.random.default_rng(1000 * seed + PARTS["labels"])
    wrong = torch.tensor(draw.random(len(images)) < spec["noise"])
    shift = torch.tensor(draw.integers(1, classes, len(images)))
    labels = torch.where(wrong, (true_labels + shift) % classes, true_labels).to(device)
    training: ImageTraining | None = None
    if spec["model"]:
        known = load.meta(root, spec["dataset"])
        sets = [ImageSet(part, known["mean"], known["std"], device) for part in (images, target_images)]
        training = ImageTraining(sets[0], labels, classes, _image_recipe(spec), spec["width"])
        x, target_x = (one.batch(torch.arange(len(one), device=device)) for one in sets)
    else:
        x, target_x = (torch.tensor(part, dtype=torch.float32).flatten(1) for part in (images, target_images))
        x, target_x = (x - x.mean()) / x.std(), (target_x - x.mean()) / x.std()
    return AttributionProblem(
        x=x.to(device),
        labels=labels,
        true_labels=true_labels.to(device),
        target_x=target_x.to(device),
        target_y=target_y.to(device),
        n_classes=classes,
        recipe=NetworkRecipe(
            tuple(spec["hidden"]), spec["epochs"], spec["batch_size"], spec["lr"], spec["weight_decay"]
        ),
        seed=seed,
        images=training,
    )


def _image_recipe(spec: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a convolutional network: that of the benchmark, with the measurement's numbers."""
    taken = ("model", "epochs", "batch_size", "lr", "weight_decay", "shift", "flip", "precision")
    return Recipe.from_dict({name: spec[name] for name in taken})


def _drawn_images(
    root: Path | str, spec: dict[str, Any], seed: int
) -> tuple[np.ndarray, Tensor, np.ndarray, Tensor, int]:
    """Return training images and labels, target images and labels, and the number of classes.

    Raises:
        UserError: If the dataset has fewer images than are asked for.
    """
    draw = np.random.default_rng(1000 * seed + PARTS["data"])
    classes: list[int] = spec["classes"]
    chosen: list[tuple[np.ndarray, Tensor]] = []
    for part, count in (("train", spec["examples"]), ("test", spec["targets"])):
        known = load.true_labels(root, spec["dataset"], part)
        classes = classes or sorted({int(label) for label in known})
        rows = _pool(np.flatnonzero(np.isin(known, classes)), spec["pool"])
        if len(rows) < count:
            raise UserError(
                f"fidelity: {spec['dataset']} has {len(rows)} {part} images of these classes (pool {spec['pool']}), "
                f"not {count}"
            )
        rows = np.sort(draw.permutation(rows)[:count])
        images = np.ascontiguousarray(load.images(root, spec["dataset"], part)[rows])
        chosen.append((images, torch.tensor(np.searchsorted(classes, known[rows]))))
    return *chosen[0], *chosen[1], len(classes)


def _pool(rows: np.ndarray, name: str) -> np.ndarray:
    """Return all rows, or one of two fixed halves of them that have no row in common."""
    if name == "all":
        return rows
    shuffled = np.random.default_rng(POOL_SEED).permutation(rows)
    return shuffled[::2] if name == "first" else shuffled[1::2]
