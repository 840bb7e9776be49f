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

Score of example i at one visit: I(z_i) = -<phibar, g_i>, phibar = sum_v w_v c_v phi_v, phi_v ~ H^-1 g_v. Positive = up-weighting
z_i raises the anchors' loss = harmful = likely mislabelled. In head scope a step never waits for the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sgoif import distributed
from sgoif.anchors import AnchorBank, bank_size
from sgoif.batch import FactoredBatch
from sgoif.calibration import StreamingTemperature
from sgoif.capture import Capture
from sgoif.config import InfluenceConfig
from sgoif.controller import Controller
from sgoif.curvature import Curvature
from sgoif.directions import Directions
from sgoif.errors import BatchError, CaptureError, InfluenceError
from sgoif.intervals import half_width
from sgoif.ledger import Ledger
from sgoif.result import InfluenceResult

AnchorData = Iterable[tuple[Tensor, Tensor]]


@contextmanager
def hold_unless(sound: Tensor, *modules: nn.Module) -> Iterator[None]:
    """Give the modules' buffers their old values back unless the device scalar `sound` is true; no host synchronisation."""
    before = [dict(module.named_buffers()) for module in modules]
    yield
    for module, old in zip(modules, before, strict=True):
        for name, value in old.items():
            setattr(module, name, torch.where(sound, getattr(module, name), value))


class OnlineInfluence:
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
        `anchor_data`: batches (x, y) for `source='heldout'` or `'trusted'`; iterated anew at every check."""
        self.config = config or InfluenceConfig()
        if n_examples < 1:
            raise InfluenceError(f"n_examples = {n_examples}: the data set must not be empty")
        if (anchor_data is None) != (self.config.source == "stream"):
            raise InfluenceError(
                f"source = {self.config.source!r}: anchor_data is for 'heldout' and 'trusted', and needed there"
            )
        self.capture = Capture(model, self.config, n_classes)
        self.n_examples, self.n_classes, self.anchor_data = n_examples, self.capture.n_classes, anchor_data
        space, dtype, head = self.capture.space, self.capture.dtype, not self.capture.deep
        count = bank_size(self.config, self.n_classes)
        self.parts = nn.ModuleDict(
            {
                "curvature": Curvature.registry[self.config.curvature](space, self.config, head, dtype),
                "anchors": AnchorBank(self.config, count, self.n_classes, space.dim, dtype),
                "directions": Directions(self.config, count, space.dim, dtype),
                "controller": Controller(self.config, count, n_examples, dtype),
                "temperature": StreamingTemperature(dtype),
            }
        )
        self.parts.register_buffer("events", torch.zeros(4, dtype=torch.float64))  # see EVENTS
        device = self.capture.head.weight.device
        self.parts.to(device)
        self.ledger = Ledger(n_examples, self.config.window, total_steps, device, dtype)
        self.steps, self.checks, self.epoch, self.epoch_steps = 0, 0, 0, 0
        self.update_every = self.config.update_every or (1 if head else 5)
        self._pending: list[FactoredBatch] = []
        self._probes: list[FactoredBatch] = []

    EVENTS = ("nan_batches", "zero_confidence_steps", "coverage_refreshes", "bad_batches")

    def _count(self, event: str, amount: Tensor) -> None:
        self.parts.events[self.EVENTS.index(event)] += amount

    @contextmanager
    def watch(self, index: Tensor, labels: Tensor) -> Iterator[None]:
        """Catch the gradients of one forward/backward pass; `index` `[n]` positions in the data set, `labels` `[n]` given labels.

        Several passes may be watched before one `step` (gradient accumulation); they count as one batch.
        """
        index, labels = self._checked("index", index, self.n_examples), self._checked("labels", labels, self.n_classes)
        if index.shape != labels.shape:
            raise BatchError(f"watch(): {len(index)} indices but {len(labels)} labels")
        self.capture.start()
        try:
            yield
        except BaseException:
            self.capture.stop()
            raise
        record = self.capture.stop()
        with torch.no_grad(), self._full_precision():
            self._pending.append(self.capture.build(record, index, labels, self._temperature()))
            if self.config.temperature == 0:
                self.parts.temperature.fold(
                    record.head_output if record.logits is None else record.logits, self._pending[-1].labels
                )

    def _checked(self, what: str, values: Tensor, limit: int) -> Tensor:
        """Shape, type and range. On a device the range is checked without waiting: see `_raise_deferred`."""
        values = torch.as_tensor(values)
        if values.dim() != 1 or values.is_floating_point() or values.dtype == torch.bool:
            raise BatchError(
                f"watch(): {what} must be integers of shape [n], got {values.dtype} of shape {tuple(values.shape)}"
            )
        outside = (values < 0) | (values >= limit)
        if values.device.type == "cpu":
            if outside.any():
                raise BatchError(f"watch(): {what} {int(values[outside][0])} lies outside 0..{limit - 1}")
            return values.long()
        self._count("bad_batches", outside.any())
        return values.long().clamp(0, limit - 1)

    def _temperature(self) -> Tensor | float:
        return self.config.temperature or self.parts.temperature.value

    def _full_precision(self) -> torch.autocast:
        return torch.autocast(self.ledger.device.type, enabled=False)

    @torch.no_grad()
    def step(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Fold what was watched since the last step: score it, then let it into curvature, anchors and solver."""
        if not self._pending:
            raise CaptureError(
                "step() without a watched pass: run forward and backward inside `with influence.watch(index, y)`"
            )
        batch, self._pending = FactoredBatch.concatenate(self._pending), []
        if self.steps == 0:
            self._plan(-(-self.n_examples // (len(batch) * distributed.size())))
        with self._full_precision():
            self._score(batch)
            phase = self.steps % self.parts.directions.interval
            last = phase == self.parts.directions.interval - 1
            self._learn(batch, phase, last)
            if last:
                self._check(batch, optimizer)
        self.steps += 1

    def _plan(self, epoch_steps: int) -> None:
        self.epoch_steps = epoch_steps
        self.parts.directions.plan(epoch_steps)

    def _score(self, batch: FactoredBatch) -> None:
        directions = self.parts.directions
        score = -batch.inner(directions.combined)[:, 0]
        self.ledger.add(batch.index, batch.valid, score, directions.certificate)
        directions.certificate[2] += 1
        self._count("nan_batches", ~batch.valid.all())

    def _decay(self, examples: int, half_life: float) -> float:
        return 0.5 ** (examples * distributed.size() / (half_life * self.n_examples))

    def _learn(self, batch: FactoredBatch, phase: int, last: bool) -> None:
        """Let the batch into curvature and anchors when it is its turn, and keep it as a probe when a check is near."""
        config, every = self.config, self.update_every
        examples = len(batch) * every
        if last or phase % every == 0:
            settled = batch.settled(config.deep_examples if self.capture.deep else None)
            self.parts.curvature.update(settled, self._decay(examples, config.curvature_half_life))
            if config.source == "stream":
                whole = batch.settled() if self.capture.deep else settled
                self.parts.anchors.fold(whole, self._decay(examples, config.half_life))
            if self.capture.deep and last:
                self._probes = [settled]
        remaining = self.parts.directions.interval - 1 - phase
        if not self.capture.deep and remaining * len(batch) < config.probe_examples:
            self._probes.append(batch)

    def _check(self, batch: FactoredBatch, optimizer: torch.optim.Optimizer | None) -> None:
        """Refresh the curvature and check, certify and step the directions (see `Directions`)."""
        curvature, anchors, directions = self.parts.curvature, self.parts.anchors, self.parts.directions
        controller = self.parts.controller
        if self.checks == 0:
            curvature.refresh()
        if self.anchor_data is not None:
            anchors.replace(list(self._anchor_batches()))
        targets = anchors.targets()
        probe, self._probes = FactoredBatch.concatenate(self._probes), []
        rate, weight_decay = self._pace(optimizer)
        mean = probe.weighted((probe.valid / probe.count.clamp(min=1)).unsqueeze(1).to(targets.dtype))
        distributed.sum_(mean)
        gradient_norm = torch.linalg.vector_norm(mean / distributed.size())
        count = probe.count
        distributed.sum_(count)
        sound = count > len(probe) * distributed.size() / 2  # a probe full of NaN certifies nothing
        with hold_unless(sound, controller, directions):
            controller.observe(rate, weight_decay, gradient_norm, curvature.condition())
            directions.check(targets, probe, curvature, controller)
        curvature.refresh()  # only now: the probes must not have made the inverse that they certify
        if (self.checks + 1) % self.config.coverage_every == 0:
            _, chosen = anchors.redundant(directions.phi, controller.confidence)
            anchors.refresh(chosen)
            self._count("coverage_refreshes", chosen.any())
        self._count("zero_confidence_steps", (controller.confidence.sum() == 0) * directions.interval)
        self.checks += 1

    def _pace(self, optimizer: torch.optim.Optimizer | None) -> tuple[Any, Any]:
        """Learning rate and weight decay of the head's parameter group (of the first group if the head is in none)."""
        if optimizer is None:
            return 1.0, 0.0
        head = self.capture.head.weight
        groups = [g for g in optimizer.param_groups if any(p is head for p in g["params"])] or optimizer.param_groups
        return groups[0]["lr"], groups[0].get("weight_decay", 0.0)

    def _anchor_batches(self) -> Iterator[FactoredBatch]:
        """Gradients of the given anchor data under the current parameters, in eval mode; the model is left as it was."""
        model, first = self.capture.model, 0
        modes = [(module, module.training) for module in model.modules()]
        model.eval()
        try:
            for x, y in self.anchor_data:
                device = self.capture.head.weight.device
                y = self._checked("labels", y, self.n_classes).to(device)
                self.capture.start()
                with torch.set_grad_enabled(self.capture.deep):
                    loss = nn.functional.cross_entropy(model(x.to(device)).float(), y)
                    if self.capture.deep:
                        torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad], allow_unused=True)
                index = torch.arange(first, first + len(y), device=device)
                first += len(y)
                yield self.capture.build(self.capture.stop(), index, y, self._temperature()).settled()
        finally:
            self.capture.recording = False
            for module, mode in modes:
                module.training = mode

    def end_epoch(self) -> None:
        """Close a row of per-epoch scores. Also the moment at which a wrong index or label on a device is reported."""
        self.epoch += 1
        self.ledger.close(self.epoch)
        self._raise_deferred()

    def _raise_deferred(self) -> None:
        wrong = int(self.parts.events[self.EVENTS.index("bad_batches")])
        if wrong:
            raise BatchError(
                f"{wrong} watched batches held an index outside 0..{self.n_examples - 1} or a label outside 0..{self.n_classes - 1}"
            )

    def scores(self) -> InfluenceResult:
        """The score of every example over the window, with its certificate."""
        self._raise_deferred()
        sums, spread, epochs = self.ledger.read()
        visits = sums["visits"]
        mean = {name: (column / visits.clamp(min=1)).float() for name, column in sums.items()}
        return InfluenceResult(
            score=mean["score"],
            confidence=mean["confidence"],
            residual=torch.where(visits > 0, mean["residual"], torch.inf),
            half_width=half_width(sums["score"], sums["square"], visits, spread, self.config.alpha).float(),
            visits=visits.long(),
            anchor_age=mean["age"],
            epoch_scores=epochs.float(),
            counters=self.counters(),
            scope={
                "layers": list(self.capture.layers),
                "left_out": self.capture.left_out,
                "dimension": self.capture.space.dim,
                "curvature": self.config.curvature,
                "anchors": self.parts.anchors.count,
            },
            config=self.config,
        )

    def counters(self) -> dict[str, float]:
        """What the run has cost and met so far. Reads the device."""
        directions = self.parts.directions
        restarts, triggers = directions.events.tolist()
        met = dict(zip(self.EVENTS, self.parts.events.tolist(), strict=True))
        hvps = directions.products
        return {
            "steps": self.steps,
            "checks": self.checks,
            "hvps": hvps,
            "hvps_per_step": hvps / max(self.steps, 1),
            "restarts": restarts,
            "triggers": triggers,
            **{name: met[name] for name in self.EVENTS[:3]},
            "temperature": float(self._temperature()),
        }

    def anchor_scores(self, batch: FactoredBatch) -> Tensor:
        """Per-anchor scores -c_v phi_v.g_i `[n, K]` of a batch, on request; aggregated with w_v they give the score."""
        return -batch.inner(self.parts.directions.phi) * self.parts.controller.confidence

    def close(self) -> None:
        """Remove the hooks from the model."""
        self.capture.remove()

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed run needs to give the same scores; to be saved with the model's checkpoint, between steps."""
        if self._pending:
            raise InfluenceError("state_dict() between watch() and step(): save after step()")
        return {
            "config": self.config.to_dict(),
            "n_examples": self.n_examples,
            "progress": {
                "steps": self.steps,
                "checks": self.checks,
                "epoch": self.epoch,
                "epoch_steps": self.epoch_steps,
                "products": self.parts.directions.products,
            },
            "parts": {
                name: value.clone() if isinstance(value, Tensor) else value
                for name, value in self.parts.state_dict().items()
            },
            "ledger": self.ledger.state_dict(),
            "probes": [] if self.capture.deep else [probe.tensors() for probe in self._probes],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["n_examples"] != self.n_examples or state["config"] != self.config.to_dict():
            differing = [name for name, value in self.config.to_dict().items() if state["config"].get(name) != value]
            raise InfluenceError(
                f"this state is of {state['n_examples']} examples and other settings ({', '.join(differing) or 'none differ'}); "
                f"here there are {self.n_examples} examples"
            )
        self.parts.load_state_dict(state["parts"])
        self.ledger.load_state_dict(state["ledger"])
        progress = state["progress"]
        self.steps, self.checks, self.epoch = progress["steps"], progress["checks"], progress["epoch"]
        self.parts.directions.products = progress["products"]
        self._plan(progress["epoch_steps"])
        device = self.ledger.device
        self._probes = [
            FactoredBatch.from_tensors(self.capture.space, {name: t.to(device) for name, t in probe.items()})
            for probe in state["probes"]
        ]
