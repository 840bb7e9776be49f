"""The interface of a parameter scope."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sgoif.anchors.external import AnchorDataCycle
from sgoif.config import InfluenceConfig
from sgoif.curvature import Curvature
from sgoif.gradients.factored_batch import FactoredBatch
from sgoif.gradients.hooks import GradientHooks
from sgoif.gradients.layer_ops import stored_weight
from sgoif.gradients.queue import Pass, PassQueue


@dataclass(frozen=True)
class LearningSample:
    """Examples that enter curvature and anchors."""

    batch: FactoredBatch  # materialised
    passes: Sequence[Pass]  # the passes they come from
    represented: int  # number of training examples that the sample stands for


@dataclass(frozen=True)
class ScoredBatch:
    """Scores of a batch."""

    batch: FactoredBatch  # with its final mask of finite examples
    score: Tensor  # [n] -<phibar, g_i>
    class_influence: Tensor | None  # [n, C] how the direction moves each logit of an example; head scope only


class Scope(ABC):
    """What differs between the last layer and several layers, for each stage of a step.

    Attributes:
        config: Settings of the method.
        hooks: Record the passes of the model.
        queue: Passes that wait to be scored or learnt from.
    """

    needs_backward: ClassVar[bool]  # whether a watched pass must include the backward pass
    scores_on_side_stream: ClassVar[bool]  # whether scoring may overlap with training

    config: InfluenceConfig
    hooks: GradientHooks
    queue: PassQueue

    @abstractmethod
    def set_scoring_direction(self, direction: Tensor) -> None:
        """Score by `direction`, shape [1, d], from now on."""

    @abstractmethod
    def learns_now(self, step: int, check_due: bool, flush: bool) -> bool:
        """Return whether curvature and anchors are updated after a step.

        Args:
            step: The optimiser step, counted from 1.
            check_due: Whether a check follows it.
            flush: Whether a check follows it or the queue is full.
        """

    @abstractmethod
    def scores_now(self, flush: bool, window_starts: bool) -> bool:
        """Return whether the queue is scored after a step that updates something or begins the score window.

        Args:
            flush: Whether a check follows the step or the queue is full.
            window_starts: Whether the score window begins after the step.
        """

    @abstractmethod
    def score(self, batch: FactoredBatch, passes: Sequence[Pass]) -> ScoredBatch:
        """Score passes by the scoring direction.

        Args:
            batch: The head's gradients of the passes.
            passes: The passes themselves.

        """

    @abstractmethod
    def learning_sample(
        self, current: Sequence[Pass], scored: FactoredBatch | None, temperature: Tensor | float
    ) -> LearningSample:
        """Return the examples that enter curvature and anchors now.

        Args:
            current: Passes of the current step.
            scored: Batch of the whole queue, if scoring has just built it.
            temperature: Softens the softmax.
        """

    @abstractmethod
    def learning_precision(self) -> AbstractContextManager[None]:
        """Return the context that sets the precision of matrix products while learning and checking."""

    @abstractmethod
    def probe(self, batch: FactoredBatch) -> FactoredBatch:
        """Return the examples of a learning sample on which the directions are checked."""

    @abstractmethod
    def queue_external_anchors(self, cycle: AnchorDataCycle) -> list[Pass]:
        """Pass external anchors through the model before it is trained further, if the scope does so at once."""

    @abstractmethod
    def external_anchor_batches(
        self, queued: Sequence[Pass], cycle: AnchorDataCycle, temperature: Tensor | float
    ) -> Iterator[FactoredBatch]:
        """Iterate over the materialised gradients of this check's external anchors.

        Args:
            queued: What `queue_external_anchors` returned.
            cycle: The external data.
            temperature: Softens the softmax.
        """

    @abstractmethod
    def end_step(self) -> None:
        """Release what later steps do not read."""

    @abstractmethod
    def training_flops(self, passes: Sequence[Pass]) -> int:
        """Return the floating-point operations of training on the layers in scope, 0 where they do not matter."""

    @abstractmethod
    def affordable_products(self, curvature: Curvature, step_flops: int) -> float:
        """Return how many curvature products per training step are cheap next to a step of `step_flops` operations."""

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return stored_weight(self.hooks.head).device
