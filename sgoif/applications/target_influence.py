"""Influence of every training example on single predictions, measured while the network trains.

    with PredictionInfluence(model, n_examples=len(train), targets=(x, y), total_steps=steps) as influence:
        for index, inputs, labels in loader:
            with influence.watch(index, labels):
                criterion(model(inputs), labels).backward()
            optimizer.step()
            influence.step()
            optimizer.zero_grad()
    effects = influence.effects()  # [M, N]

For target v and training example i,

    effect_vi = mean over the visits of i in the window of <phi_v, g_i>,   phi_v = P^-1 g_v,

with the gradients of the watched passes themselves, so that the training examples pass no further time. Only the
targets do, at `CHECKS` moments of the window. To first order, training without example i changes the loss of target v
by effect_vi / N: a positive effect means that the example supports the prediction.

The settings differ from those of the scores for wrong labels (`SETTINGS`): gradients of all layers, no softening, less
damping, longer averages of the curvature and a shorter window. docs/fidelity.md has what each of them is worth, by
retraining.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import torch
from torch import Tensor, nn

from sgoif.anchors.external import anchor_passes, as_batch
from sgoif.config import InfluenceConfig
from sgoif.curvature import Curvature
from sgoif.errors import CaptureError, InfluenceError
from sgoif.gradients.factored_batch import FactoredBatch
from sgoif.gradients.layer_hooks import LayerHooks
from sgoif.gradients.queue import Pass, PassQueue, remaining_weight
from sgoif.scopes.create import create_scope

CHECKS = 2  # moments of the window at which the targets pass and their directions are computed anew
SETTINGS = InfluenceConfig(scope="all", temperature=1.0, damping=0.2, window=0.25, half_life=1.0, memory=False)


class PredictionInfluence:
    """Watches a training loop and keeps the effect of every example on each of M chosen predictions.

    Memory grows with M times the parameters in scope, and with M times N.

    Attributes:
        target_passes: How many forward and backward passes of a target there were so far.
    """

    def __init__(
        self,
        model: nn.Module,
        n_examples: int,
        targets: tuple[Tensor, Tensor],
        total_steps: int,
        config: InfluenceConfig = SETTINGS,
    ) -> None:
        """Put the hooks on the model.

        Args:
            model: The model that is trained.
            n_examples: Number of training examples N.
            targets: Inputs [M, ...] and labels [M] of the predictions in question.
            total_steps: Optimiser steps of the whole training.
            config: Scope, curvature, damping, temperature, window, half-life and numbers of examples; the rest is
                not used.

        Raises:
            ScopeError: If the model has no head or no supported layer in scope.
            InfluenceError: If there is no target, no example or no step, or no temperature.
        """
        targets = as_batch(*targets, "targets")
        if not config.temperature:
            raise InfluenceError("PredictionInfluence: temperature = 0, which calibrates, is of OnlineInfluence alone")
        if n_examples < 1 or total_steps < 2 or len(targets[1]) < 1:
            raise InfluenceError(
                f"PredictionInfluence: {n_examples} examples, {len(targets[1])} targets and {total_steps} steps; "
                "there must be an example, a target and two steps"
            )
        self._config, self._n_examples, self._total_steps, self._targets = config, n_examples, total_steps, targets
        self._scope = create_scope(model, n_examples, None, config)
        self._hooks = self._scope.hooks
        self._temperature = config.softening(self._hooks.n_classes)
        device, dtype = self._scope.device, self._hooks.dtype
        with device:
            self._curvature = Curvature.registry[config.curvature](
                self._hooks.space, config, self._hooks.closed_form, dtype
            )
        first = min(max(1, round((1 - config.window) * total_steps)), total_steps - 1)  # some step must learn before
        length = total_steps - first
        self._check_steps = {first + length * k // CHECKS for k in range(CHECKS)}
        self._update_every = max(1, min(config.update_every, length // CHECKS // 4))
        self._directions: Tensor | None = None
        self._sums = torch.zeros(n_examples, len(targets[1]), device=device, dtype=dtype)
        self._visits = torch.zeros(n_examples, device=device, dtype=dtype)
        self._queue: list[Pass] = []
        self._steps = 0
        self.target_passes = 0

    def __enter__(self) -> PredictionInfluence:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the hooks from the model; effects can still be read."""
        self._hooks.remove()

    @contextmanager
    def watch(self, index: Tensor, labels: Tensor) -> Iterator[None]:
        """Record the gradients of the forward and backward pass inside.

        Args:
            index: Positions in the training set, shape [n].
            labels: Labels trained on, shape [n].

        Raises:
            BatchError: If index or labels do not fit the batch, the classes or the data set.
            CaptureError: If the pass did not reach the layers in scope.
        """
        index, labels = PassQueue.validate(index, labels, self._n_examples, self._hooks.n_classes)
        device = self._scope.device
        if self._steps in self._check_steps and not self._queue:
            with torch.autocast(device.type, enabled=False):  # inside, the loop's backward pass would miss gradients
                self._check()  # the directions are of the parameters that the step's gradients are of
        if isinstance(self._hooks, LayerHooks):
            self._hooks.scoring = False  # all directions are scored together, after the backward pass
        self._hooks.start()
        try:
            yield
        finally:
            captured = self._hooks.stop()
        self._hooks.validate(captured, len(labels))
        self._queue.append(Pass(self._steps, captured, index.to(device), labels.to(device)))

    @torch.no_grad()
    def step(self) -> None:
        """Close a training step: add its examples to the effects and to the curvature.

        Raises:
            CaptureError: If no pass was watched for this step.
        """
        if not self._queue:
            raise CaptureError(
                "step() without a watched pass: run forward and backward inside `with influence.watch(...)`"
            )
        learns = self._steps % self._update_every == 0
        if learns or self._directions is not None:
            with torch.autocast(self._scope.device.type, enabled=False):
                self._add(learns)
        self._queue = []
        self._steps += 1

    def _add(self, learns: bool) -> None:
        """Add the examples of the step to the effects, and the first of them to the curvature if it `learns`."""
        for number, batch in enumerate(self._batches()):
            if self._directions is not None:
                self._sums.index_add_(0, batch.index, batch.dot(self._directions))
                self._visits.index_add_(0, batch.index, batch.valid.to(self._visits.dtype))
            if learns and number == 0:
                represented = sum(len(p) for p in self._queue) * self._update_every
                decay = remaining_weight(represented, self._config.half_life, self._n_examples)
                self._curvature.update(batch, decay)

    def _batches(self) -> Iterator[FactoredBatch]:
        """Yield the materialised gradients of the step, at most `deep_examples` at a time in deep scopes."""
        for p in self._queue:
            size = len(p) if self._hooks.closed_form else self._config.deep_examples
            for start in range(0, len(p), size):
                rows = slice(start, start + size)
                yield self._hooks.pass_batch(
                    p.captured, p.index.long(), p.labels.long(), self._temperature, rows
                ).materialised()

    @torch.no_grad()
    def _check(self) -> None:
        """Pass the targets and compute their directions by the present curvature."""
        x, y = self._targets
        size = self._config.deep_examples
        parts = [(x[start : start + size], y[start : start + size], start) for start in range(0, len(y), size)]
        gradients = []
        for p in anchor_passes(self._hooks, parts):
            batch = self._hooks.pass_batch(p.captured, p.index, p.labels, self._temperature).materialised()
            own = torch.arange(len(p), device=p.labels.device)
            gradients.append(batch.group_sums(own, torch.ones_like(batch.recency), len(p)))
        self.target_passes += len(y)
        self._curvature.refresh()
        self._directions = self._curvature.solve(torch.cat(gradients))

    def effects(self) -> Tensor:
        """Return effect_vi, shape [M, N], on the host; 0 for examples without a visit in the window.

        Raises:
            InfluenceError: If the training ended before the window began.
        """
        if self._directions is None:
            raise InfluenceError(
                f"effects(): {self._steps} of total_steps = {self._total_steps} steps were made, and the window begins "
                f"at step {min(self._check_steps)}; total_steps counts the calls of step(), one for each step of the "
                "optimizer"
            )
        return (self._sums / self._visits.clamp(min=1).unsqueeze(1)).T.cpu()
