"""Deep scope: gradients of several layers (`blocks:<regex>` or `all`).

Scores are computed during the backward pass. Curvature and anchors are updated every `update_every` steps from the
first `deep_examples` examples of a step, because gradients of all layers are large. External anchors pass through the
model one batch at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import torch
from torch import Tensor, nn

from sgoif.anchors.external import AnchorDataCycle, anchor_passes
from sgoif.backend import collectives
from sgoif.backend.linalg import tf32_products
from sgoif.config import InfluenceConfig
from sgoif.curvature import Curvature
from sgoif.gradients.factored_batch import FactoredBatch
from sgoif.gradients.layer_hooks import LayerHooks
from sgoif.gradients.queue import Pass, PassQueue
from sgoif.scopes.base import LearningSample, Scope, ScoredBatch

MAX_CHECK_SHARE = 0.05  # of training's arithmetic that checks may take
NEGLIGIBLE_STEP_FLOPS = 1e8  # FLOPs per step that are negligible next to kernel-launch overhead


class DeepScope(Scope):
    """Uses the gradients of all supported layers in scope, of a sample of the examples where they are stored.

    Args:
        model: The model that is trained.
        n_examples: Number of training examples.
        n_classes: Number of classes, if known.
        config: Settings of the method.
    """

    needs_backward = True
    scores_on_side_stream = False

    def __init__(self, model: nn.Module, n_examples: int, n_classes: int | None, config: InfluenceConfig) -> None:
        self.config = config
        self.layer_hooks = LayerHooks(model, config, n_classes)
        self.hooks = self.layer_hooks
        self.queue = PassQueue(self.hooks, n_examples)

    def set_scoring_direction(self, direction: Tensor) -> None:
        self.layer_hooks.dot_product.set_direction(direction)

    def learns_now(self, step: int, check_due: bool, flush: bool) -> bool:
        return check_due or step % self.config.update_every == 0

    def scores_now(self, flush: bool, window_starts: bool) -> bool:
        return flush or window_starts

    def score(self, batch: FactoredBatch, passes: Sequence[Pass]) -> ScoredBatch:
        """Combine what the backward passes computed; examples that are not finite there are not valid."""
        below = [p.captured.projection for p in passes if p.captured.projection is not None]
        projection = torch.cat(below) if below else None
        head_gradients = [p.captured.head_gradient for p in passes if p.captured.head_gradient is not None]
        total, valid = self.layer_hooks.total_projection(batch, torch.cat(head_gradients), projection)
        return ScoredBatch(replace(batch, valid=valid), -total, None)

    def learning_sample(
        self, current: Sequence[Pass], scored: FactoredBatch | None, temperature: Tensor | float
    ) -> LearningSample:
        limit = collectives.share(self.config.deep_examples)
        sample = self.queue.step_gradients(current, temperature, limit).materialised()
        represented = sum(len(p) for p in current) * self.config.update_every
        return LearningSample(sample, current, represented)

    def learning_precision(self) -> AbstractContextManager[None]:
        return tf32_products(enabled=False)

    def probe(self, batch: FactoredBatch) -> FactoredBatch:
        return batch

    def queue_external_anchors(self, cycle: AnchorDataCycle) -> list[Pass]:
        """Queue nothing: the activations of all anchors together would not fit into memory."""
        return []

    def external_anchor_batches(
        self, queued: Sequence[Pass], cycle: AnchorDataCycle, temperature: Tensor | float
    ) -> Iterator[FactoredBatch]:
        size = self.config.deep_examples
        for p in anchor_passes(self.hooks, cycle.next_batches()):
            for start in range(0, len(p), size):
                rows = slice(start, start + size)
                yield self.hooks.pass_batch(p.captured, p.index, p.labels, temperature, rows).materialised()

    def end_step(self) -> None:
        """Release the layers' activations and the scored passes."""
        self.queue.drop_scored()

    def training_flops(self, passes: Sequence[Pass]) -> int:
        return sum(self.layer_hooks.training_flops(p.captured) for p in passes)

    def affordable_products(self, curvature: Curvature, step_flops: int) -> float:
        """Allow `MAX_CHECK_SHARE` of a step's arithmetic; a product may cost as much as training many examples."""
        per_product = curvature.flops_per_product() + 4 * self.config.deep_examples * self.hooks.space.dim
        return max(MAX_CHECK_SHARE * step_flops, NEGLIGIBLE_STEP_FLOPS) / per_product
