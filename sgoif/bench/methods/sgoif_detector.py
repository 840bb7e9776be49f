"""SG-OIF as a noisy-label method of the benchmark: a training run, or two, watched by `OnlineInfluence`.

The methods that derive from it differ in the training that is watched and in where their anchors come from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sgoif import AnchorData, CapturedPass
from sgoif.bench.methods.base import Detection, NoisyLabelDetector
from sgoif.bench.methods.robust.loss_correction import CorrectedCrossEntropy
from sgoif.bench.methods.robust.losses import LOSSES, TrainingLoss, make_loss
from sgoif.bench.methods.robust.training import PreparedTraining
from sgoif.bench.methods.tasks import NoisyTask
from sgoif.check_history import CheckHistory
from sgoif.config import InfluenceConfig
from sgoif.errors import InfluenceError, UserError
from sgoif.influence import OnlineInfluence
from sgoif.result import InfluenceResult
from sgoif.training.batches import Batch
from sgoif.training.cost.compute_counter import COMPUTE
from sgoif.training.images import ImageSource
from sgoif.training.learner import Learner

TRUSTED_BATCH = 512  # no more than pass at one check
FIRST, SECOND = "train", "second"  # phases of a session


def _parts(result: InfluenceResult, labels: Tensor) -> dict[str, np.ndarray]:
    """What the suspicion is made of, shape [N] each; nothing if no predictions were kept and it is the influence."""
    if result.log_odds is None or result.margin is None or result.mean_predictions is None:
        return {}
    # "latent" here and below is the class model: records that are published have it under this name
    doubt = 1 - result.mean_predictions.gather(1, labels[:, None]).squeeze(1)
    parts = {"influence": result.score, "latent": result.log_odds, "margin": result.margin, "doubt": doubt}
    return {name: values.numpy() for name, values in parts.items()}


class SGOIFDetector(NoisyLabelDetector):
    """Trains once while recording influences, and ranks the examples by their suspicion.

    Hyper-parameters are the fields of `InfluenceConfig`, and two of the training that is watched: `loss`, one of
    `robust.losses.LOSSES`, and `trainings`. With two trainings the first one, by that loss, gives the noise matrix, and
    the second one is by a loss that is corrected by it and gives the scores. The influences are on the cross-entropy
    whatever the network is trained by.

    Attributes:
        loss_name: The loss of the watched training.
        trainings: 1, or 2 for a second one by the corrected loss.
        source: Where the anchors come from; the field `source` of the configuration must be the same.
    """

    distributes = True
    alone_with: ClassVar = {"loss": "elr"}  # its target of an example would be that of one process
    parts: ClassVar = {
        "influence": "influence alone",
        "latent": "log-odds of the class model alone",
        "margin": "minus the averaged margin alone",
        "doubt": "one minus the label's probability in the averaged predictions",
    }
    Params = InfluenceConfig  # type: ignore[assignment]
    source: ClassVar[str] = "stream"

    def __init__(self, **params: Any) -> None:
        """Set the hyper-parameters; see `Method`."""
        self.loss_name: str = params.pop("loss", "cross_entropy")
        self.trainings: int = params.pop("trainings", 1)
        if self.loss_name not in LOSSES:
            raise UserError(f"params.{self.name}.loss: one of {', '.join(LOSSES)}, not {self.loss_name!r}")
        if self.trainings not in (1, 2) or isinstance(self.trainings, bool):
            raise UserError(f"params.{self.name}.trainings: 1 or 2, not {self.trainings!r}")
        try:
            super().__init__(**{"source": self.source, **params})
        except InfluenceError as e:
            raise UserError(f"params.{self.name}: {e}") from None
        self.need(self.params.source == self.source, "source", f"is {self.source!r} in this method")
        if self.trainings == 2 and not self.params.memory:
            raise UserError(f"params.{self.name}.trainings: a second one needs `memory`, which gives the noise matrix")

    def anchor_data(self, task: NoisyTask) -> AnchorData | None:
        """Return anchors from outside the training set, None if they are streamed from it."""
        return None

    def training(self, task: NoisyTask) -> PreparedTraining:
        """Return the training that is watched: by the loss `loss`, of the training set."""
        loss = make_loss(self.loss_name, len(task.labels), task.n_classes, task.labels.device)
        return PreparedTraining(task.batches(), loss, task.labels)

    def detect(self, task: NoisyTask) -> Detection:
        """Train and score every training label; higher = more suspicious."""
        if self.trainings == 1:
            return detect_together([self], task)[0].detection
        training = self.training(task)
        noise = task.session.cached("noise-matrix", lambda: {"transition": self._noise_matrix(task, training)})
        return self.detect_corrected(task, training, noise["transition"])

    def _noise_matrix(self, task: NoisyTask, training: PreparedTraining) -> np.ndarray:
        (watched,) = _watch([self], task, training, FIRST)
        return noise_matrix(watched.result)

    def detect_corrected(self, task: NoisyTask, training: PreparedTraining, matrix: np.ndarray) -> Detection:
        """Train a second time, by a loss that is corrected by the noise matrix of the first, and score.

        Args:
            task: Data and recipe.
            training: The first training.
            matrix: Noise matrix, shape [C, C].
        """
        n = len(task.labels)
        loss = CorrectedCrossEntropy(torch.from_numpy(matrix).to(task.labels.device), n)
        (watched,) = _watch([self], task, replace(training, loss=loss), SECOND)
        return self.detection_of(watched, training.labels, n)

    def watches_alike(self, other: SGOIFDetector) -> bool:
        """Return whether both may watch one and the same training, or first training, by its outputs."""
        same = type(self).training is type(other).training and self.loss_name == other.loss_name
        return same and all(d.params.scope == "head" for d in (self, other))

    def detection_of(self, watched: Watched, labels: Tensor, n: int) -> Detection:
        """Return what the scores of a training say of its first examples.

        Args:
            watched: The scores of all that was trained on, and what the checks measured.
            labels: The labels that were trained on, shape [M].
            n: Number of training examples N; what follows them are trusted ones.
        """
        result = watched.result
        issues = result.find_label_issues(labels)
        remove = issues.mask.numpy()[:n]
        return Detection(
            scores=result.suspicion.numpy()[:n],
            variants={name: part[:n] for name, part in _parts(result, labels.cpu()).items()},
            remove=remove,
            epoch_scores=result.epoch_scores.cpu().numpy()[:, :n],
            traces=watched.history.arrays(),
            extras={
                "estimated_noise": float(remove.mean()),
                "mean_confidence": float(result.confidence.mean()),
                "mean_residual": float(result.residual.mean()),
                "latent_trust": result.weights.log_odds,
                "latent_scatter": result.noise_entropy,
                **result.counters,
            },
        )


def noise_matrix(result: InfluenceResult) -> np.ndarray:
    """Return the noise matrix that the class model has found in a training, float32, shape [C, C]."""
    if result.transition is None:
        raise InfluenceError("no example was recorded, so that there is no noise matrix")
    return result.transition.cpu().numpy().astype(np.float32)


class Watched(NamedTuple):
    """What watching a training gave.

    Attributes:
        result: The scores.
        history: What the checks measured.
        anchor_passes: Images passed through the network for its anchors alone, by timer.
    """

    result: InfluenceResult
    history: CheckHistory
    anchor_passes: Mapping[str, int]


class Found(NamedTuple):
    """What a detector found beside others.

    Attributes:
        detection: The same as if it had watched alone.
        own_passes: Images passed through networks for it alone, by timer: anchors, and a second training.
    """

    detection: Detection
    own_passes: Mapping[str, int]


def detect_together(detectors: Sequence[SGOIFDetector], task: NoisyTask) -> list[Found]:
    """Train once while several detectors watch, none of which changes the training.

    Those of two trainings have the second one for themselves.

    Args:
        detectors: One, or several that watch alike (`SGOIFDetector.watches_alike`).
        task: Data and recipe; trusted images too if one of them reads these.

    Returns:
        What each detector found, and what it cost beyond the training that all watched.

    Raises:
        ValueError: If the detectors do not watch alike.
    """
    if not all(detectors[0].watches_alike(other) for other in detectors[1:]):
        raise ValueError("these detectors watch different trainings")
    training, n = detectors[0].training(task), len(task.labels)
    found = []
    for detector, watched in zip(detectors, _watch(detectors, task, training, FIRST), strict=True):
        before = Counter(task.session.timers.current_forward_passes())
        if detector.trainings == 1:
            detection = detector.detection_of(watched, training.labels, n)
        else:
            detection = detector.detect_corrected(task, training, noise_matrix(watched.result))
        after = Counter(task.session.timers.current_forward_passes())
        after.subtract(before)
        after.update(watched.anchor_passes)
        found.append(Found(detection, after))
    return found


def _watch(
    detectors: Sequence[SGOIFDetector], task: NoisyTask, training: PreparedTraining, phase: str
) -> list[Watched]:
    """Train by the recipe, recording every step, and return what each detector saw."""
    learner = task.learner(training.batches)
    influences = [
        OnlineInfluence(
            learner.net,
            n_examples=len(training.labels),
            n_classes=task.n_classes,
            config=detector.params,
            total_steps=learner.total_steps,
            anchor_data=detector.anchor_data(task),
        )
        for detector in detectors
    ]
    loss = training.loss
    make_step = _head_step if detectors[0].params.scope == "head" else _deep_step
    step = make_step(learner, influences, loss)
    histories, epochs = [CheckHistory(influence) for influence in influences], task.recipe.epochs
    for epoch in task.session.epochs(epochs, learner, *influences, *histories, loss, phase=phase):
        loss.begin_epoch(epoch, epochs)
        before = sum(influence.external_anchor_passes for influence in influences)
        for batch in training.batches.epoch(epoch):
            step(batch)
            for influence, history in zip(influences, histories, strict=True):
                influence.step(learner.optimizer)
                history.record()
        for influence in influences:
            influence.end_epoch()
        COMPUTE.forward_passes += sum(influence.external_anchor_passes for influence in influences) - before
    found = []
    for detector, influence, history in zip(detectors, influences, histories, strict=True):
        asked = influence.external_anchors if detector.params.memory else 0  # they tell what the labels mean
        COMPUTE.forward_passes += asked
        passes = {"train": influence.external_anchor_passes, "score": asked}
        found.append(Watched(influence.scores(), history, passes))
    return found


@dataclass(frozen=True)
class TrustedImages:
    """Trusted images with their labels, batch by batch, as often as asked."""

    images: ImageSource
    labels: Tensor

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        parts = torch.arange(len(self.labels), device=self.images.device).split(TRUSTED_BATCH)
        for part, x in zip(parts, self.images.iter_batches(parts), strict=True):
            yield x, self.labels[part]


class TrustedDetector(SGOIFDetector):
    """Its anchors are trusted images, and what the network predicts for them tells what the labels mean."""

    uses_trusted = True
    source = "trusted"

    def anchor_data(self, task: NoisyTask) -> TrustedImages:
        """Return the trusted images."""
        if task.trusted is None:
            raise UserError(f"{self.name} needs trusted images (noisy.<dataset>.val): they are its anchors")
        images, labels = task.trusted
        return TrustedImages(images, labels.to(images.device))


def _head_step(learner: Learner, influences: Sequence[OnlineInfluence], loss: TrainingLoss) -> Callable[[Batch], None]:
    """Return the training step of head scope.

    The gradients of the last layer follow from features and logits, so that the step may be a CUDA graph.
    """

    def forward(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        logits, features = learner.forward(batch.x)
        return loss(logits, batch.labels, batch.index), logits, features

    run = learner.stepper(forward)

    def step(batch: Batch) -> None:
        _, logits, features = run(batch)
        for influence in influences:
            influence.record_outputs(batch.index, batch.labels, features, logits)

    return step


def _deep_step(learner: Learner, influences: Sequence[OnlineInfluence], loss: TrainingLoss) -> Callable[[Batch], None]:
    """Return the training step of the other scopes, which capture their layers in the same forward and backward pass.

    One detector watches alone. Hooks do not fire inside a compiled backbone, so the network is not compiled, whatever
    `recipe.compile` says. The whole step, scores included, may still be a CUDA graph.
    """
    (influence,) = influences

    def forward(batch: Batch) -> tuple[Tensor, CapturedPass]:
        with influence.capture_graph() as captured:
            logits = learner.forward_eager(batch.x)
        return loss(logits, batch.labels, batch.index), captured

    run = learner.stepper(forward)

    def step(batch: Batch) -> None:
        _, captured = run(batch)
        influence.record_replay(batch.index, batch.labels, captured)

    return step
