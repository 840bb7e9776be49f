"""`OnlineInfluence`: influence scores of training examples, computed inside the training run that sees them.

    with OnlineInfluence(model, n_examples=len(train), n_classes=10, total_steps=epochs * len(loader)) as influence:
        for epoch in range(epochs):
            for index, x, y in loader:
                optimizer.zero_grad()
                with influence.watch(index, y):
                    loss = criterion(model(x), y)
                    loss.backward()
                optimizer.step()
                influence.step(optimizer)
            influence.end_epoch()
        result = influence.scores()

The score of example i at one visit is

    I(z_i) = -<phibar, g_i>,   phibar = sum_v pi_v w_v t_v phi_v,   phi_v ~ H^-1 g_v,

with g_i the example's gradient, g_v the mean gradient of anchor v, H the damped curvature, t_v the trust in anchor v,
w_v = t_v / sum_u t_u its weight and pi_v the share of its class in the data.

A positive score means that up-weighting z_i raises the anchors' loss: the example is harmful, and its label is likely
wrong. A step never waits for the device.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from sgoif._engine import Engine
from sgoif._readings import CheckDiagnostics, read_contributions, read_counters, read_diagnostics, read_scores
from sgoif.anchors.external import AnchorData
from sgoif.backend.integers import describe
from sgoif.config import InfluenceConfig
from sgoif.errors import BatchError, CaptureError, InfluenceError
from sgoif.gradients.hooks import CapturedPass
from sgoif.result import InfluenceResult


class OnlineInfluence:
    """Watches a training loop and scores its examples; see the module docstring for the loop.

    Use it as a context manager, or call `close` at the end: both remove the hooks from the model. Scores can be read
    afterwards.
    """

    def __init__(
        self,
        model: nn.Module,
        n_examples: int,
        n_classes: int | None = None,
        config: InfluenceConfig | None = None,
        total_steps: int | None = None,
        anchor_data: AnchorData | None = None,
    ) -> None:
        """Put the hooks on the model.

        Args:
            model: The model that is trained. Create OnlineInfluence before the first pass of a compiled model.
            n_examples: Number of training examples N.
            n_classes: Number of classes C; the outputs of the last layer if None.
            config: Settings; the defaults if None.
            total_steps: Optimiser steps of the whole training. If None, the score window is cut at epoch ends.
            anchor_data: Batches (x, y) for the sources "heldout" and "trusted", iterated again and again, so no
                generator. Every check evaluates `anchor_examples` of them or more. Trusted data passes once more when
                scores are read, to tell what the labels mean.

        Raises:
            ScopeError: If the model has no head or no supported layer in scope.
            InfluenceError: If the arguments do not fit together.
        """
        if not isinstance(model, nn.Module):
            raise InfluenceError(f"model: must be an nn.Module, not a {type(model).__name__}")
        n_examples = _whole_number("n_examples", n_examples)
        n_classes = None if n_classes is None else _whole_number("n_classes", n_classes)
        total_steps = None if total_steps is None else _whole_number("total_steps", total_steps)
        if not isinstance(config, InfluenceConfig | None):
            given = type(config).__name__
            raise InfluenceError(f"config: must be an InfluenceConfig, not a {given}; its from_dict makes one")
        self._engine = Engine(model, n_examples, n_classes, config or InfluenceConfig(), total_steps, anchor_data)

    def __enter__(self) -> OnlineInfluence:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def config(self) -> InfluenceConfig:
        """Settings of this run."""
        return self._engine.config

    @property
    def n_examples(self) -> int:
        """Number of training examples N."""
        return self._engine.n_examples

    @property
    def n_classes(self) -> int:
        """Number of classes C."""
        return self._engine.n_classes

    @property
    def n_anchors(self) -> int:
        """Number of anchors K."""
        return self._engine.parts.anchors.count

    @property
    def dimension(self) -> int:
        """Number of parameters in scope d."""
        return self._engine.hooks.space.dim

    @property
    def device(self) -> torch.device:
        """Device of the scores."""
        return self._engine.scope.device

    @property
    def needs_backward(self) -> bool:
        """Whether a watched pass must include the backward pass (scopes "blocks" and "all")."""
        return self._engine.scope.needs_backward

    @property
    def steps(self) -> int:
        """Training steps so far."""
        return self._engine.steps

    @property
    def epochs(self) -> int:
        """Epochs closed so far."""
        return self._engine.epoch

    @property
    def checks(self) -> int:
        """Checks so far."""
        return self._engine.checks

    @property
    def window_start(self) -> int | None:
        """First step of the score window, if the length of training is known."""
        return self._engine.visits.window_start

    @property
    def external_anchors(self) -> int:
        """Number of external anchor examples, known after the first check; 0 if anchors come from the stream."""
        cycle = self._engine.anchor_cycle
        return 0 if cycle is None else cycle.size

    @property
    def external_anchor_passes(self) -> int:
        """Forward passes of external anchor examples at the checks so far."""
        cycle = self._engine.anchor_cycle
        return 0 if cycle is None else cycle.evaluated

    @contextmanager
    def watch(self, index: Tensor, labels: Tensor) -> Iterator[None]:
        """Record the gradients of the forward and backward pass inside.

        Several passes may be watched before one `step` (gradient accumulation); they count as one batch.

        Args:
            index: Positions in the training set, shape [n].
            labels: Labels trained on (possibly noisy), shape [n].

        Raises:
            BatchError: If index or labels do not fit the batch, the classes or the data set.
            CaptureError: If the pass did not reach the layers in scope, or its outputs are no logits.
        """
        index, labels = self._validate(index, labels)
        if self._engine.hooks.removed:
            raise CaptureError("watch() after close(): the hooks are removed; make a new OnlineInfluence")
        if self._engine.hooks.recording:
            raise CaptureError("watch() inside watch(): end the first one; several before one step() are one batch")
        self._engine.begin_pass()
        self._engine.hooks.start()
        try:
            yield
        except BaseException:
            self._engine.hooks.stop()
            raise
        self._engine.queue.push(self.steps, self._engine.hooks.stop(), index, labels)

    def record_outputs(self, index: Tensor, labels: Tensor, features: Tensor, logits: Tensor) -> None:
        """Record one training pass from precomputed outputs instead of hooks.

        Use this when hooks cannot fire, e.g. when the step is a replayed CUDA graph. Head scope only; features and
        logits are copied.

        Args:
            index: Positions in the training set, shape [n].
            labels: Labels trained on (possibly noisy), shape [n].
            features: Inputs of the classification layer, shape [n, d].
            logits: Model outputs, shape [n, C].

        Raises:
            CaptureError: If `config.scope` is not "head".
            BatchError: If the shapes do not fit.
        """
        if self.needs_backward:
            raise CaptureError(f"record_outputs() is for scope 'head'; scope {self.config.scope!r} needs watch()")
        index, labels = self._validate(index, labels)
        widths = {"features": self._engine.hooks.head.in_features, "logits": self.n_classes}
        for (what, width), given in zip(widths.items(), (features, logits), strict=True):
            expected = (len(labels), width)
            if not isinstance(given, Tensor) or given.shape != expected:
                raise BatchError(
                    f"record_outputs(): {what} must be a tensor of shape {expected}, got {describe(given)}"
                )
        self._engine.begin_pass()
        features, logits = features.detach().clone(), logits.detach().clone()
        captured = CapturedPass(features=features, head_output=logits, logits=logits)
        self._engine.queue.push(self.steps, captured, index, labels)

    @contextmanager
    def capture_graph(self) -> Iterator[CapturedPass]:
        """Record the forward pass inside, and later the backward pass of its loss, for a CUDA graph.

        Replays of the graph run no hooks, but they refill the tensors of the yielded `CapturedPass`, which you hand to
        `record_replay` at every step.
        """
        captured = self._engine.hooks.start()
        try:
            yield captured
        finally:
            self._engine.hooks.stop()

    def record_replay(self, index: Tensor, labels: Tensor, captured: CapturedPass) -> None:
        """Record a pass that `capture_graph` captured, or that a replay of its graph has refilled.

        Call it after the backward pass and before `step`.

        Args:
            index: Positions in the training set, shape [n].
            labels: Labels trained on (possibly noisy), shape [n].
            captured: What `capture_graph` yielded; it is copied.

        Raises:
            BatchError: If index or labels do not fit the batch, the classes or the data set.
            CaptureError: If the pass did not reach the layers in scope.
        """
        index, labels = self._validate(index, labels)
        self._engine.begin_pass()
        self._engine.queue.push(self.steps, captured, index, labels, copy=True)

    @torch.no_grad()
    def step(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Close a training step: score what was watched, update curvature and anchors, make a check if one is due.

        Passes are queued between checks, and queued work is done at the next check at the latest.

        Args:
            optimizer: Supplies learning rate and weight decay for the stability proxy.

        Raises:
            CaptureError: If no pass was watched for this step.
            InfluenceError: If `optimizer` is none.
        """
        if optimizer is not None and not hasattr(optimizer, "param_groups"):
            raise InfluenceError(f"step(): a {type(optimizer).__name__} is no optimizer; pass yours, or nothing")
        self._engine.step(optimizer)

    @torch.no_grad()
    def end_epoch(self) -> None:
        """Close a row of per-epoch scores.

        Raises:
            InfluenceError: If passes were watched and `step` was never called.
            BatchError: If a watched index or label on a device was out of range.
        """
        self._engine.end_epoch()

    @torch.no_grad()
    def scores(self) -> InfluenceResult:
        """Return the score of every example over the score window, with its confidence.

        Reading changes nothing that follows; you may read scores during training. Passes of a step that has not been
        closed by `step` are not read yet. In distributed training every process has to call it, because sums are
        taken over all of them. It takes seconds where only the head is trained, because heads that have not seen an
        example are fitted to judge its label, and with several hundred classes.

        Raises:
            InfluenceError: If passes were watched and `step` was never called.
            BatchError: If a watched index or label on a device was out of range.
        """
        return read_scores(self._engine)

    def counters(self) -> dict[str, float]:
        """Return what the run has cost and met so far; waits for the device."""
        return read_counters(self._engine)

    @torch.no_grad()
    def diagnostics(self) -> CheckDiagnostics:
        """Return what the last check found, without waiting for the device.

        On a GPU the values are computed on a side stream: call `synchronise` before you read them.
        """
        return read_diagnostics(self._engine)

    def synchronise(self) -> None:
        """Make the current CUDA stream wait for the work of this object; the host does not wait."""
        self._engine.stream.synchronise()

    @torch.no_grad()
    def anchor_contributions(
        self, index: Tensor, labels: Tensor, features: Tensor, logits: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Split the scores of a batch by anchor, for the current directions and the classification layer.

        The contribution of anchor v to the score of example i is -pi_v w_v t_v <phi_v, g_i>; contributions add up to
        the score. Head scope only.

        Args:
            index: Positions in the training set, shape [n].
            labels: Labels trained on, shape [n].
            features: Inputs of the classification layer, shape [n, d].
            logits: Model outputs, shape [n, C].

        Returns:
            The contributions, shape [n, K], zero for examples that are not finite, and a mask of the finite examples,
            shape [n].

        Raises:
            CaptureError: If `config.scope` is not "head".
            BatchError: If index or labels are not integers of shape [n], or out of range.
        """
        if self.needs_backward:
            raise CaptureError(f"anchor_contributions() is for scope 'head', here it is {self.config.scope!r}")
        index, labels = self._validate(index, labels)
        return read_contributions(self._engine, index, labels, features, logits)

    def curvature_state_dict(self) -> dict[str, Any]:
        """Return the state of the curvature backend, to be loaded into a backend of the same kind and shape."""
        self._engine.stream.synchronise()
        self._engine.refresh_stream.synchronise()
        return self._engine.parts.curvature.state_dict()

    def close(self) -> None:
        """Remove the hooks from the model; scores can still be read."""
        self._engine.hooks.remove()

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a resumed run needs to give the same scores.

        Save it with the model's checkpoint, between steps. It can be loaded by the same version of this package only.

        Raises:
            InfluenceError: If called between `watch` and `step`.
        """
        return self._engine.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state.

        Args:
            state: What `state_dict` returned, in a run with the same configuration and number of examples. Its length
                of training, `total_steps`, counts from now on.

        Raises:
            InfluenceError: If configuration, number of examples or the shapes of the layers differ.
        """
        self._engine.load_state_dict(state)

    def _validate(self, index: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return self._engine.queue.validate(index, labels, self.n_examples, self.n_classes)


def _whole_number(name: str, value: Any) -> int:
    """Return an argument as an integer above 0."""
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise InfluenceError(f"{name} = {value!r}: must be a whole number above 0")
    return number
