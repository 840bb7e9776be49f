"""The head of a scan by features: trained, scored and resumable."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from sgoif.errors import InfluenceError, UserError
from sgoif.features.arrays import FeatureArray
from sgoif.features.head import KEPT_ROWS, HeadBatch, HeadRecipe, HeadTraining
from sgoif.features.held_out import read_held_out
from sgoif.label_noise.projection import Projection
from sgoif.scan.progress import RemainingTime
from sgoif.scan.settings import Settings
from sgoif.scan.train import Evidence, TrainedScan, require_memory
from sgoif.training.models import Network
from sgoif.training.session import Session


def head_recipe(settings: Settings) -> HeadRecipe:
    """Return the recipe of the head that settings ask for."""
    return HeadRecipe(
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        seed=settings.seed,
    )


def train_head_and_score(
    features: FeatureArray,
    projection: Projection,
    labels: np.ndarray,
    n_classes: int,
    settings: Settings,
    session: Session,
    trusted: tuple[Tensor, Tensor] | None = None,
    embedder: nn.Module | None = None,
) -> TrainedScan:
    """Trains a head on features and scores the labels meanwhile; resumes where `session` has saved an epoch.

    Args:
        features: Features of the N examples.
        projection: What the head sees of them.
        labels: Their classes, shape [N].
        n_classes: Number of classes.
        settings: How to train.
        session: Saves and restores the state of the training.
        trusted: Features [m, d] and right classes [m] of checked examples, if there are any.
        embedder: The network that the features came from, if there is one; it becomes part of the trained network.

    Raises:
        UserError: If the memory does not suffice, or the training diverges.
    """
    require_memory(len(features), n_classes)
    try:
        training = HeadTraining(
            features, labels, n_classes, projection, head_recipe(settings), settings.device, trusted
        )
        evidence = Evidence(training.influence)
        _train(training, evidence, session)
    except InfluenceError as e:
        raise UserError(str(e)) from None
    stages: list[nn.Module] = [projection] if embedder is None else [embedder, projection]
    network = Network(nn.Sequential(*stages), training.head, [])
    projected = training.projected() if len(features) <= KEPT_ROWS else None
    with torch.no_grad():
        logits = _logits(training) if projected is None else training.head(projected.to(training.device)).cpu()
    session.progress("judging the labels by heads that have not seen them, minutes with many classes", done=True)
    result = read_held_out(training, training.influence.scores())
    n_fourier = projection.width - projection.basis.shape[1]
    return TrainedScan(result, evidence.read(), network, training.influence, projected, logits, n_fourier)


def _train(training: HeadTraining, evidence: Evidence, session: Session) -> None:
    remaining = RemainingTime()
    epochs = training.recipe.epochs

    def after_pass(batch: HeadBatch) -> None:
        evidence.add(batch.index, batch.labels, batch.features, batch.logits)
        share = training.steps_done / training.total_steps
        epoch = min(int(share * epochs), epochs - 1)
        session.progress(f"training the head: epoch {epoch + 1}/{epochs}{remaining.left(share)}", share=share)

    for epoch in session.epochs(epochs, training, training.influence, evidence):
        training.epoch(epoch, after_pass)


def _logits(training: HeadTraining) -> Tensor:
    """Return the logits of all examples of a set that is too large to keep its features, shape [N, C]."""
    blocks = (block for _, block in training.features.blocks())
    return torch.cat([training.head(training.projection(block.to(training.device))).cpu() for block in blocks])
