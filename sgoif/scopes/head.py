"""Head scope: gradients of the last layer alone, in closed form.

Features and logits determine everything, so the passes since the last check are kept, scored and learnt from as one
batch, on a side stream that overlaps with training.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from sgoif.anchors.external import AnchorDataCycle, anchor_passes
from sgoif.backend import collectives
from sgoif.config import InfluenceConfig
from sgoif.curvature import Curvature
from sgoif.gradients.factored_batch import FactoredBatch
from sgoif.gradients.hooks import GradientHooks
from sgoif.gradients.queue import Pass, PassQueue
from sgoif.scopes.base import LearningSample, Scope, ScoredBatch

MAX_PROBE_SHARE = 0.25  # of the training set; more made no residual better, and probing costs the most of a check
HALF_PRECISIONS = (torch.bfloat16, torch.float16)


class HeadScope(Scope):
    """Uses the last layer's gradients of every watched example.

    Args:
        model: The model that is trained.
        n_examples: Number of training examples.
        n_classes: Number of classes, if known.
        config: Settings of the method.
    """

    needs_backward = False
    scores_on_side_stream = True

    def __init__(self, model: nn.Module, n_examples: int, n_classes: int | None, config: InfluenceConfig) -> None:
        self.config = config
        self.hooks = GradientHooks(model, config, n_classes)
        self.queue = PassQueue(self.hooks, n_examples)
        self._direction: Tensor | None = None

    def set_scoring_direction(self, direction: Tensor) -> None:
        self._direction = direction

    def learns_now(self, step: int, check_due: bool, flush: bool) -> bool:
        return flush

    def scores_now(self, flush: bool, window_starts: bool) -> bool:
        return True

    def score(self, batch: FactoredBatch, passes: Sequence[Pass]) -> ScoredBatch:
        """Score by <phibar, g_i> = <phibar a_i, p_i - onehot(y_i)>; phibar a_i is the influence on each logit."""
        assert self._direction is not None, "set_scoring_direction() comes first"
        layer = batch.head_layer
        class_influence = layer.project(batch.space.split(self._direction)[0])[:, 0]
        return ScoredBatch(batch, -(class_influence * layer.e).sum(1), class_influence)

    def learning_sample(
        self, current: Sequence[Pass], scored: FactoredBatch | None, temperature: Tensor | float
    ) -> LearningSample:
        passes = self.queue.pop_all()
        if scored is None:
            scored, _ = self.queue.to_batch(passes, temperature, self.config.half_life)
        return LearningSample(scored, passes, represented=len(scored))

    def learning_precision(self) -> AbstractContextManager[None]:
        return nullcontext()

    def probe(self, batch: FactoredBatch) -> FactoredBatch:
        """Return the newest examples: `probe_examples`, at most a share of the training set."""
        count = min(self.config.probe_examples, int(MAX_PROBE_SHARE * self.queue.n_examples))
        return batch.newest(collectives.share(max(count, 1)))

    def queue_external_anchors(self, cycle: AnchorDataCycle) -> list[Pass]:
        """Run the anchors through the model in the precision that training has."""
        features = self.queue.passes[-1].features
        half = features.dtype if features.dtype in HALF_PRECISIONS else None
        with torch.autocast(features.device.type, half, enabled=half is not None):
            return list(anchor_passes(self.hooks, cycle.next_batches()))

    def external_anchor_batches(
        self, queued: Sequence[Pass], cycle: AnchorDataCycle, temperature: Tensor | float
    ) -> Iterator[FactoredBatch]:
        for p in queued:
            yield self.hooks.pass_batch(p.captured, p.index, p.labels, temperature)

    def end_step(self) -> None:
        """Keep everything: the queue is learnt from at the next check."""

    def training_flops(self, passes: Sequence[Pass]) -> int:
        return 0

    def affordable_products(self, curvature: Curvature, step_flops: int) -> float:
        return math.inf
