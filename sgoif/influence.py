"""`OnlineInfluence`: influence scores of training examples, made inside the training run that sees them.

    influence = OnlineInfluence(model, n_examples=len(train), n_classes=10, total_steps=epochs * len(loader))
    for epoch in range(epochs):
        for index, x, y in loader:
            with influence.watch(index, y):
                loss = criterion(model(x), y)
                loss.backward()
            optimizer.step()
            influence.step(optimizer)
        influence.end_epoch()
    result = influence.scores()

Score of example i at one visit: I(z_i) = -<phibar, g_i>, phibar = sum_v w_v t_v phi_v, phi_v ~ H^-1 g_v. Positive =
up-weighting z_i raises the anchors' loss = harmful = likely mislabelled. A step never waits for the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sgoif._engine import EVENTS, Engine
from sgoif.anchors.external import AnchorData, anchor_predictions
from sgoif.backend import collectives
from sgoif.config import InfluenceConfig
from sgoif.errors import BatchError, CaptureError, InfluenceError
from sgoif.gradients.factored_batch import FactoredBatch
from sgoif.gradients.hooks import Record
from sgoif.gradients.queue import MOST_EXAMPLES
from sgoif.result import InfluenceResult

PROGRESS = ("steps", "checks", "epoch", "epoch_steps", "step_arithmetic")


class OnlineInfluence(Engine):
    """Watches a training loop and scores its examples. See the module docstring for the loop."""

    def __init__(
        self,
        model: nn.Module,
        n_examples: int,
        n_classes: int | None = None,
        config: InfluenceConfig | None = None,
        total_steps: int | None = None,
        anchor_data: AnchorData | None = None,
    ) -> None:
        """`total_steps`: optimiser steps of the whole training, if known (else the score window is cut at epoch ends).
        `anchor_data`: batches (x, y) for `source='heldout'` or `'trusted'`, iterated again and again: at every check
        `anchor_examples` of them pass, and trusted data once more when scores are read: they name the latent
        classes."""
        super().__init__(model, n_examples, n_classes, config or InfluenceConfig(), total_steps, anchor_data)

    @contextmanager
    def watch(self, index: Tensor, labels: Tensor) -> Iterator[None]:
        """Catch the gradients of one forward/backward pass; `index` `[n]` positions in the data set, `labels` `[n]`
        as given.

        Several passes may be watched before one `step` (gradient accumulation); they count as one batch.
        """
        index, labels = self.intake.checked(index, labels, self.n_examples, self.n_classes)
        self.capture.start()
        try:
            yield
        except BaseException:
            self.capture.stop()
            raise
        self.intake.add(self.steps, self.capture.stop(), index, labels)

    def observe(self, index: Tensor, labels: Tensor, features: Tensor, logits: Tensor) -> None:
        """Hand over one pass instead of watching it, in head scope: the head's inputs `[n, d]` and the model's logits
        `[n, C]`. For steps that hooks do not see, such as a replayed CUDA graph; both are copied."""
        if self.capture.deep:
            raise CaptureError(f"observe() is for scope 'head'; scope {self.config.scope!r} needs watch()")
        index, labels = self.intake.checked(index, labels, self.n_examples, self.n_classes)
        if logits.shape != (len(labels), self.n_classes):
            expected = (len(labels), self.n_classes)
            raise BatchError(f"observe(): logits of shape {tuple(logits.shape)}, expected {expected}")
        features, logits = features.detach().clone(), logits.detach().clone()
        self.intake.add(self.steps, Record(features=features, head_output=logits, logits=logits), index, labels)

    @contextmanager
    def catch(self) -> Iterator[Record]:
        """Catch the forward pass inside, and later the backward pass of its loss, in a record. For a step that is
        captured as a CUDA graph: replays run no hooks, but they fill the tensors of the record anew."""
        record = self.capture.start()
        try:
            yield record
        finally:
            self.capture.stop()

    def replayed(self, index: Tensor, labels: Tensor, record: Record) -> None:
        """Hand over what `catch` caught in this step, or what the replay of that step has filled in; call after the
        backward pass, before `step`."""
        index, labels = self.intake.checked(index, labels, self.n_examples, self.n_classes)
        self.intake.add(self.steps, record, index, labels, copy=True)

    @torch.no_grad()
    def step(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Close the step: what was watched is scored, then enters curvature and anchors, and when due a check is made.

        In head scope scoring and learning wait for the next check (or `MOST_EXAMPLES`): see `intake`.
        """
        examples = self.intake.watched(self.steps)
        if not examples:
            raise CaptureError(
                "step() without a watched pass: run forward and backward inside `with influence.watch(...)`"
            )
        if self.steps == 0:
            if self.capture.deep:
                self.step_arithmetic = sum(self.capture.arithmetic(p.record) for p in self.intake.of(0))
            self._plan(-(-self.n_examples // (examples * collectives.size())))
        current = self.intake.of(self.steps)
        self.steps += 1
        due = self.steps % self.parts.directions.interval == 0
        full = due or len(self.intake) >= collectives.share(MOST_EXAMPLES)
        learn = due or self.steps % self.config.update_every == 0 if self.capture.deep else full
        if learn or self.steps == self.ledger.window_start:
            check = self._due(optimizer) if due else None
            given = [*self.intake.tensors(), *(check.tensors() if check else ())]
            with self.lane.work(given), torch.autocast(self.ledger.device.type, enabled=False):
                scored = None
                if full or not self.capture.deep or self.steps == self.ledger.window_start:
                    scored = self._score()
                if learn and self.capture.deep:
                    self._learn_from(current, check)
                elif learn:
                    self._learn(scored, check)
        self.intake.release()

    @torch.no_grad()
    def end_epoch(self) -> None:
        """Close a row of per-epoch scores. Also the moment at which a wrong index or label on a device is reported."""
        self.epoch += 1
        with self.lane.work(self.intake.tensors()):
            self._score()
            self.ledger.close(self.epoch)
            self._raise_deferred()

    @torch.no_grad()
    def scores(self) -> InfluenceResult:
        """The score of every example over the window, with its certificate. Reading changes nothing that follows."""
        scope = {
            "layers": list(self.capture.layers),
            "left_out": self.capture.left_out,
            "dimension": self.capture.space.dim,
            "curvature": self.config.curvature,
            "anchors": self.parts.anchors.count,
        }
        known = None
        with torch.autocast(self.ledger.device.type, enabled=False):
            with self.lane.work(self.intake.tensors()):
                self._score()
            self.lane.join()
            self._raise_deferred()
            if self.config.source == "trusted" and self.config.memory:
                known = anchor_predictions(self.capture, self.given.batches())
            return InfluenceResult.from_statistics(self.ledger, self.config, self.counters(), scope, known)

    def counters(self) -> dict[str, float]:
        """What the run has cost and met so far. Reads the device."""
        self.lane.join()
        directions = self.parts.directions
        restarts, triggers = directions.events.tolist()
        met = dict(zip(EVENTS, self.parts.events.tolist(), strict=True))
        return {
            "steps": self.steps,
            "checks": self.checks,
            "hvps": directions.products,
            "hvps_per_step": directions.products / max(self.steps, 1),
            "restarts": restarts,
            "triggers": triggers,
            **{name: met[name] for name in EVENTS[:3]},
            "temperature": float(self.temperature()),
        }

    def anchor_scores(self, batch: FactoredBatch) -> Tensor:
        """Per-anchor scores -t_v phi_v.g_i `[n, K]` of a batch, on request; aggregated with w_v = t_v / sum t_u they
        give the score."""
        self.lane.join()
        return -batch.inner(self.parts.directions.phi) * self.parts.controller.trusted()

    def close(self) -> None:
        """Remove the hooks from the model."""
        self.capture.remove()

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed run needs to give the same scores; to be saved with the model's checkpoint, between
        steps."""
        if self.intake.watched(self.steps):
            raise InfluenceError("state_dict() between watch() and step(): save after step()")
        self.lane.join()
        self.inverting.join()
        progress = {name: getattr(self, name) for name in PROGRESS}
        parts = self.parts.state_dict()
        return {
            "config": self.config.to_dict(),
            "n_examples": self.n_examples,
            "progress": {**progress, "products": self.parts.directions.products},
            "parts": {name: value.clone() if isinstance(value, Tensor) else value for name, value in parts.items()},
            "ledger": self.ledger.state_dict(),
            "intake": self.intake.state_dict(),
            "given": None if self.given is None else self.given.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        mine = self.config.to_dict()
        differing = [name for name, value in mine.items() if state["config"].get(name) != value]
        if differing or state["n_examples"] != self.n_examples:
            raise InfluenceError(
                f"this state is of {state['n_examples']} examples, here there are {self.n_examples}; "
                f"settings that differ: {', '.join(differing) or 'none'}"
            )
        with self.lane.work():
            self.parts.load_state_dict(state["parts"])
            self.parts.directions.told = None
            self.ledger.load_state_dict(state["ledger"])
        self.intake.load_state_dict(state["intake"], self.ledger.device)
        if self.given is not None:
            self.given.load_state_dict(state["given"])
        progress = dict(state["progress"])
        self.parts.directions.products = progress.pop("products")
        for name, value in progress.items():
            setattr(self, name, value)
        self.capture.aim.at(self.parts.directions.combined)
        self._plan(self.epoch_steps)
