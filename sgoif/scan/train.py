"""The training of a scan: it gives scores, the part each anchor has in them, and the state that `explain` needs."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif import InfluenceConfig, InfluenceResult, OnlineInfluence
from sgoif.errors import UserError
from sgoif.scan.network import build_network
from sgoif.scan.pretrained.weights import Weights
from sgoif.scan.progress import RemainingTime
from sgoif.scan.settings import Settings
from sgoif.training.batches import Batch, Batches
from sgoif.training.images import ImageSet
from sgoif.training.learner import Diverged, Learner
from sgoif.training.models import Network
from sgoif.training.predict import predict
from sgoif.training.recipe import Recipe
from sgoif.training.seeds import seeded_weights
from sgoif.training.session import Session


class Evidence:
    """Sums the contribution of each anchor (class) to each example's score over the visits in the score window.

    Args:
        influence: The run that is scored, in head scope.
    """

    def __init__(self, influence: OnlineInfluence) -> None:
        self.influence = influence
        device = influence.device
        self.anchors = torch.zeros(influence.n_examples, influence.n_anchors, device=device)
        self.visits = torch.zeros(influence.n_examples, 1, device=device)

    def add(self, index: Tensor, labels: Tensor, features: Tensor, logits: Tensor) -> None:
        """Add a batch; call it between a step's pass and `influence.step`, while its directions are unchanged.

        Args:
            index: Positions of the examples, shape [n].
            labels: Their labels, shape [n].
            features: Inputs of the classification layer, shape [n, d].
            logits: Outputs of the network, shape [n, C].
        """
        window_start = self.influence.window_start
        if window_start is not None and self.influence.steps < window_start:
            return
        contributions, finite = self.influence.anchor_contributions(index, labels, features, logits)
        visited = finite.unsqueeze(1).float()
        self.anchors.index_add_(0, index, contributions.float() * visited)
        self.visits.index_add_(0, index, visited)

    def read(self) -> np.ndarray:
        """Return the mean contributions over the visits, shape [N, K]."""
        return (self.anchors / self.visits.clamp(min=1)).cpu().numpy()

    def state_dict(self) -> dict[str, Any]:
        return {"anchors": self.anchors, "visits": self.visits}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.anchors.copy_(state["anchors"])
        self.visits.copy_(state["visits"])


class CheckedImages:
    """Images with right labels, in batches that can be iterated again and again.

    Args:
        images: The m images.
        labels: Their classes, shape [m].
        batch_size: Images of a batch.
    """

    def __init__(self, images: ImageSet, labels: np.ndarray, batch_size: int) -> None:
        self._images, self._labels, self._batch_size = images, torch.from_numpy(labels), batch_size

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for rows in torch.arange(len(self._labels)).split(self._batch_size):
            yield self._images.batch(rows), self._labels[rows]


@dataclass
class TrainedScan:
    """What a finished training gives.

    Attributes:
        result: Scores of the N examples.
        anchors: Part of each anchor in the scores, shape [N, K].
        network: The trained network.
        influence: The scorer, with its curvature and temperature at the end of training.
        features: Inputs of the classification layer at the end of training, shape [N, d]; None of a set that is too
            large to keep them.
        logits: Logits at the end of training, shape [N, C].
        n_fourier: How many of the features, the last ones, are random Fourier features.
    """

    result: InfluenceResult
    anchors: np.ndarray
    network: Network
    influence: OnlineInfluence
    features: Tensor | None
    logits: Tensor
    n_fourier: int = 0

    @property
    def places(self) -> Tensor | None:
        """Features whose distances tell how alike examples are, without random Fourier features, shape [N, k]."""
        return None if self.features is None else self.features[:, : self.features.shape[1] - self.n_fourier]


def train_and_score(
    images: ImageSet,
    labels: np.ndarray,
    n_classes: int,
    settings: Settings,
    session: Session,
    weights: Weights | None = None,
    checked: CheckedImages | None = None,
) -> TrainedScan:
    """Trains a network on the labels and scores them meanwhile; resumes where `session` has saved an epoch.

    Args:
        images: The N images.
        labels: Their labels, shape [N].
        n_classes: Number of classes.
        settings: How to train.
        session: Saves and restores the state of the training.
        weights: The weights that training starts from; None: random ones.
        checked: Images whose labels are known to be right, if there are any: they are the anchors.

    Raises:
        UserError: If the memory does not suffice, or the training diverges.
    """
    require_memory(len(images), n_classes)
    recipe = make_recipe(settings)
    batches = Batches(
        images,
        torch.from_numpy(labels),
        settings.batch_size,
        settings.seed,
        shift=settings.shift,
        flip=settings.flip,
    )
    with seeded_weights(settings.seed):
        network = build_network(settings, n_classes, weights)
    learner = Learner.for_batches(recipe, n_classes, batches, settings.seed, network=network)
    config = InfluenceConfig(source="stream" if checked is None else "trusted")
    influence = OnlineInfluence(
        learner.net, len(images), n_classes, config, total_steps=learner.total_steps, anchor_data=checked
    )
    evidence = Evidence(influence)
    try:
        _train(learner, batches, influence, evidence, recipe.epochs, session)
    except Diverged:
        raise UserError(f"the training diverged at --lr {settings.lr:g}; try a tenth of it, in another --out") from None
    except torch.OutOfMemoryError:
        raise UserError(
            f"out of GPU memory with batches of {settings.batch_size}; halve --batch-size or --size"
        ) from None
    logits, features = predict(learner.net, images, batch_size=256, features=True)
    assert features is not None
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", UserWarning)
        result = influence.scores()
    for words in {str(warning.message) for warning in told}:
        if "influences are 0" in words:  # its advice names settings that a scan has not
            words = (
                f"all influences are 0 after {learner.steps_done} steps; more --epochs help, or a smaller --batch-size"
            )
        print(f"note: {words}", file=sys.stderr)
    return TrainedScan(result, evidence.read(), learner.net, influence, features, logits)


def _train(
    learner: Learner, batches: Batches, influence: OnlineInfluence, evidence: Evidence, epochs: int, session: Session
) -> None:
    def forward(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        logits, features = learner.forward(batch.x)
        return F.cross_entropy(logits, batch.labels), logits, features

    step = learner.stepper(forward)
    remaining = RemainingTime()
    for epoch in session.epochs(epochs, learner, influence, evidence):
        for batch in batches.epoch(epoch):
            _, logits, features = step(batch)
            influence.record_outputs(batch.index, batch.labels, features, logits)
            evidence.add(batch.index, batch.labels, features, logits)
            influence.step(learner.optimizer)
            share = learner.steps_done / learner.total_steps
            session.progress(f"training: epoch {epoch + 1}/{epochs}{remaining.left(share)}", share=share)
        influence.end_epoch()


def make_recipe(settings: Settings) -> Recipe:
    """Return the training recipe of the settings; the model is built apart, so its name here is not used."""
    return Recipe(
        model="small_cnn",
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        optimizer=settings.optimizer,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        shift=settings.shift,
        flip=settings.flip,
        graph=False,
    )


def require_memory(n: int, n_classes: int) -> None:
    """Check before the training that the per-class arrays of all examples fit into memory.

    Raises:
        UserError: If less memory is free than needed.
    """
    arrays = 2  # anchors and class probabilities
    copies = 3  # each of them once, and twice while a state is saved
    need = arrays * copies * 4 * n * n_classes  # float32
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    if need > free:
        raise UserError(
            f"{n} images of {n_classes} classes need about {need / 2**30:.1f} GiB of memory for their evidence, "
            f"{free / 2**30:.1f} GiB are free; scan a part of the classes at a time"
        )
