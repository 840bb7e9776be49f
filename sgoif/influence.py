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

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from sgoif import distributed
from sgoif.anchors import AnchorBank, bank_size
from sgoif.batch import FactoredBatch
from sgoif.calibration import StreamingTemperature
from sgoif.capture import Capture, Record
from sgoif.config import InfluenceConfig
from sgoif.controller import Controller
from sgoif.curvature import Curvature
from sgoif.directions import Directions
from sgoif.errors import BatchError, CaptureError, InfluenceError
from sgoif.given import AnchorData, anchor_batches
from sgoif.intake import MOST_EXAMPLES, Intake, Pass, decay, spread, step_sizes
from sgoif.lane import Lane
from sgoif.ledger import Ledger
from sgoif.linalg import hold_unless, products
from sgoif.result import InfluenceResult

CHECK_SHARE = 0.05  # of training's arithmetic that checks may take outside head scope
UNNOTICED = 1e8  # floating-point operations a step that nobody notices beside the launches

PROGRESS = ("steps", "checks", "epoch", "epoch_steps", "step_arithmetic")
EVENTS = ("nan_batches", "zero_confidence_steps", "coverage_refreshes", "out_of_range")


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
        self.config = config = config or InfluenceConfig()
        if n_examples < 1:
            raise InfluenceError(f"n_examples = {n_examples}: the data set must not be empty")
        if (anchor_data is None) != (config.source == "stream"):
            raise InfluenceError(
                f"source = {config.source!r}: anchor_data is for 'heldout' and 'trusted', and needed there"
            )
        self.capture = capture = Capture(model, config, n_classes)
        self.n_examples, self.n_classes, self.anchor_data = n_examples, capture.n_classes, anchor_data
        self.intake = Intake(capture, n_examples)
        dtype, device = capture.dtype, capture.head.weight.device
        # where vectors have millions of entries, they are made where they stay
        with device if capture.deep else nullcontext():
            self.parts = self._make_parts(bank_size(config, self.n_classes), dtype)
        # held-out anchors pass through the model itself, and collectives keep to training's order: those stay in line
        alone = anchor_data is None and not distributed.active()
        self.lane = Lane(device, beside=not capture.deep and alone)
        # elsewhere only the inverses leave the line: long chains of small kernels, not needed before the next check
        chained = capture.deep and self.parts["curvature"].chained
        self.inverting = Lane(device, beside=chained and not distributed.active())
        with self.lane.work():
            self.parts.to(device)
            kept = self.n_classes if config.memory else 0
            self.ledger = Ledger(n_examples, config.window, total_steps, device, dtype, kept)
        capture.aim.at(self.parts.directions.combined)
        self.steps, self.checks, self.epoch, self.epoch_steps, self.step_arithmetic = 0, 0, 0, 0, 0

    def _make_parts(self, count: int, dtype: torch.dtype) -> nn.ModuleDict:
        config, capture, space = self.config, self.capture, self.capture.space
        parts = nn.ModuleDict(
            {
                "curvature": Curvature.registry[config.curvature](space, config, not capture.deep, dtype),
                "anchors": AnchorBank(config, count, self.n_classes, space.dim, dtype),
                "directions": Directions(config, count, space.dim, dtype),
                "controller": Controller(config, count, self.n_examples, dtype),
                "temperature": StreamingTemperature(dtype),
            }
        )
        parts.register_buffer("events", torch.zeros(len(EVENTS), dtype=torch.float64))
        return parts

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
            self._plan(-(-self.n_examples // (examples * distributed.size())))
        current = self.intake.of(self.steps)
        self.steps += 1
        due = self.steps % self.parts.directions.interval == 0
        full = due or len(self.intake) >= distributed.share(MOST_EXAMPLES)
        learn = due or self.steps % self.config.update_every == 0 if self.capture.deep else full
        if learn or self.steps == self.ledger.window_start:
            pace = self._pace(optimizer) if due else None
            given = [*self.intake.tensors(), *(t for t in pace or () if isinstance(t, Tensor))]
            with self.lane.work(given), torch.autocast(self.ledger.device.type, enabled=False):
                if full or not self.capture.deep or self.steps == self.ledger.window_start:
                    self._score()
                if learn and self.capture.deep:
                    self._learn_from(current, pace)
                elif learn:
                    self._learn(pace)
        self.intake.release()

    def _plan(self, epoch_steps: int) -> None:
        """Space the checks; outside head scope, where a product with the curvature may cost as much as many examples'
        training, by what the first step was seen to cost."""
        self.epoch_steps = epoch_steps
        affordable = math.inf
        if self.capture.deep:
            product = self.parts.curvature.arithmetic() + 4 * self.config.deep_examples * self.capture.space.dim
            affordable = max(CHECK_SHARE * self.step_arithmetic, UNNOTICED) / product
        self.parts.directions.plan(epoch_steps, affordable)

    def temperature(self) -> Tensor | float:
        """What softens the softmax inside every gradient now."""
        if self.config.temperature == 0:
            return self.parts.temperature.value
        return self.config.softening(self.n_classes)

    def _count(self, event: str, amount: Tensor) -> None:
        self.parts.events[EVENTS.index(event)] += amount

    def _score(self) -> None:
        """Score the passes that have not been scored yet, by the direction that has stood since the last check."""
        passes = self.intake.queue[self.intake.scored :]
        if not passes:
            return
        directions = self.parts.directions
        batch, wrong = self.intake.build(passes, self.temperature(), self.config.half_life)
        sizes = step_sizes(passes)
        steps = spread(list(sizes), list(sizes.values()), batch.index.device, torch.long)
        if self.capture.deep:
            batch, score = self._taken_along(batch, passes)
        else:
            score = -batch.inner(directions.combined)[:, 0]
        age = steps - self.checks * directions.interval
        first, upto = passes[0].step, passes[-1].step + 1
        self.ledger.add(batch.index, batch.valid, score, directions.certificate, age, upto)
        logits = torch.cat([p.record.logits for p in passes]).to(score.dtype)
        self.ledger.believe(batch.index, batch.valid, logits, batch.labels, steps - first, upto - first, upto)
        broken = torch.zeros(upto - first, device=score.device)
        broken.index_add_(0, steps - first, (~batch.valid).to(broken.dtype))
        self._count("nan_batches", (broken > 0).sum())
        self._count("out_of_range", wrong)
        self.intake.scored = len(self.intake.queue)

    def _taken_along(self, batch: FactoredBatch, passes: list[Pass]) -> tuple[FactoredBatch, Tensor]:
        """Scores outside head scope, from what the backward passes left; what is not finite there is not valid."""
        below = [p.record.along for p in passes]
        along = None if below[0] is None else torch.cat(below)
        total, valid = self.capture.along(batch, torch.cat([p.record.head_gradient for p in passes]), along)
        return replace(batch, valid=valid), -total

    def _learn(self, pace: tuple[Any, Any] | None) -> None:
        """Let the queue into curvature and anchors, then check if due, that is, if a `pace` is given."""
        config = self.config
        passes, self.intake.queue, self.intake.scored = self.intake.queue, [], 0
        batch, _ = self.intake.build(passes, self.temperature(), config.half_life)
        self._fold(batch, len(batch), passes)
        if pace is not None:
            self._check(batch.newest(distributed.share(config.probe_examples)), pace)

    def _learn_from(self, passes: list[Pass], pace: tuple[Any, Any] | None) -> None:
        """Outside head scope: let a sample of one step's examples into curvature and anchors, for all the steps since
        the last turn, then check if due."""
        self.inverting.join()
        with products(fast=False):
            sample = self.intake.gradients(
                passes, self.temperature(), distributed.share(self.config.deep_examples)
            ).settled()
            self._fold(sample, sum(len(p) for p in passes) * self.config.update_every, passes)
            if pace is not None:
                self._check(sample, pace)

    def _fold(self, batch: FactoredBatch, examples: int, passes: list[Pass]) -> None:
        """Let a settled batch into curvature and anchors, that stands for so many examples of the stream."""
        config = self.config
        remains = decay(examples, config.half_life, self.n_examples)
        self.parts.curvature.update(batch, remains)
        if config.source == "stream":
            self.parts.anchors.fold(batch, remains)
        if config.temperature == 0:
            labels = torch.cat([p.labels for p in passes]).long().clamp(0, self.n_classes - 1)
            self.parts.temperature.fold(torch.cat([p.record.logits for p in passes]), labels)

    def _check(self, probe: FactoredBatch, pace: tuple[Any, Any]) -> None:
        """Check, certify and step the directions on the probe examples (see `Directions`), then refresh the
        curvature."""
        curvature, anchors, directions = self.parts.curvature, self.parts.anchors, self.parts.directions
        controller = self.parts.controller
        if self.checks == 0:
            curvature.refresh()
        if self.anchor_data is not None:
            anchors.replace(
                anchor_batches(self.capture, self.anchor_data, self.temperature(), self.config.deep_examples)
            )
        count = probe.count
        mean = probe.weighted((probe.valid / count.clamp(min=1)).unsqueeze(1))
        distributed.sum_(mean, count)
        gradient_norm = torch.linalg.vector_norm(mean / distributed.size())
        sound = count > len(probe) * distributed.size() / 2  # a probe full of NaN certifies nothing
        with hold_unless(sound, controller, directions):
            controller.observe(*pace, gradient_norm, curvature.condition())
            directions.check(anchors.targets(), probe, curvature, controller)
        directions.remember()
        self.capture.aim.at(directions.combined)
        with self.inverting.work():
            curvature.refresh()  # only now: the probes must not have made the inverse that they certify
        self.checks += 1
        if self.checks % self.config.coverage_every == 0:
            _, chosen = anchors.redundant(directions.phi, controller.confidence)
            anchors.refresh(chosen)
            self._count("coverage_refreshes", chosen.any())
        self._count("zero_confidence_steps", (controller.confidence.sum() == 0) * directions.interval)

    def _pace(self, optimizer: torch.optim.Optimizer | None) -> tuple[Any, Any]:
        """Learning rate and weight decay of the head's parameter group (of the first group if the head is in none), as
        they are now: a rate that lives on the device is copied."""
        if optimizer is None:
            return 1.0, 0.0
        head = self.capture.head.weight
        groups = [g for g in optimizer.param_groups if any(p is head for p in g["params"])] or optimizer.param_groups
        rate = groups[0]["lr"]
        return rate.detach().clone() if isinstance(rate, Tensor) else rate, groups[0].get("weight_decay", 0.0)

    @torch.no_grad()
    def end_epoch(self) -> None:
        """Close a row of per-epoch scores. Also the moment at which a wrong index or label on a device is reported."""
        self.epoch += 1
        with self.lane.work(self.intake.tensors()):
            self._score()
            self.ledger.close(self.epoch)
            self._raise_deferred()

    def _raise_deferred(self) -> None:
        wrong = int(self.parts.events[EVENTS.index("out_of_range")])
        if wrong:
            raise BatchError(
                f"{wrong} watched examples had an index outside 0..{self.n_examples - 1} "
                f"or a label outside 0..{self.n_classes - 1}"
            )

    @torch.no_grad()
    def scores(self) -> InfluenceResult:
        """The score of every example over the window, with its certificate. Reading changes nothing that follows."""
        with self.lane.work(self.intake.tensors()):
            self._score()
        self.lane.join()
        self._raise_deferred()
        scope = {
            "layers": list(self.capture.layers),
            "left_out": self.capture.left_out,
            "dimension": self.capture.space.dim,
            "curvature": self.config.curvature,
            "anchors": self.parts.anchors.count,
        }
        return InfluenceResult.read(self.ledger, self.config, self.counters(), scope)

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
        progress = dict(state["progress"])
        self.parts.directions.products = progress.pop("products")
        for name, value in progress.items():
            setattr(self, name, value)
        self.capture.aim.at(self.parts.directions.combined)
        self._plan(self.epoch_steps)
