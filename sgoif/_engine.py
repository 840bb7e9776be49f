"""What happens between two checks: watched passes are scored, then enter curvature and anchors; then the directions are
checked. `OnlineInfluence` is this engine with the methods that a training loop calls."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sgoif.anchors.bank import AnchorBank, bank_size
from sgoif.anchors.external import AnchorData, Given, anchor_batches, anchor_passes
from sgoif.backend import collectives
from sgoif.backend.cuda import Lane
from sgoif.backend.linalg import hold_unless, products
from sgoif.config import InfluenceConfig
from sgoif.curvature import Curvature
from sgoif.errors import BatchError, InfluenceError
from sgoif.gradients.factored_batch import FactoredBatch
from sgoif.gradients.hooks import Capture
from sgoif.gradients.queue import Intake, Pass, decay, spread, step_sizes
from sgoif.scores.temperature import StreamingTemperature
from sgoif.scores.visit_statistics import VisitStatistics
from sgoif.solvers.directions import Directions
from sgoif.solvers.stability import Controller

CHECK_SHARE = 0.05  # of training's arithmetic that checks may take outside head scope
UNNOTICED = 1e8  # floating-point operations a step that nobody notices beside the launches

EVENTS = ("nan_batches", "zero_confidence_steps", "coverage_refreshes", "out_of_range")
HALVES = (torch.bfloat16, torch.float16)


class Due(NamedTuple):
    """What a check takes along from training."""

    rate: Tensor | float  # learning rate
    decay: Tensor | float  # weight decay
    size: int | None  # of given anchors in turns: all of them together
    anchors: list[Pass]  # in head scope, those that are given and whose turn it is

    def tensors(self) -> list[Tensor]:
        pace = [t for t in (self.rate, self.decay) if isinstance(t, Tensor)]
        return [*pace, *(t for p in self.anchors for t in p.tensors())]


class Engine:
    """The parts of the method, by name in `parts`, and what moves them."""

    def __init__(
        self,
        model: nn.Module,
        n_examples: int,
        n_classes: int | None,
        config: InfluenceConfig,
        total_steps: int | None,
        anchor_data: AnchorData | None,
    ) -> None:
        self.config = config
        if n_examples < 1:
            raise InfluenceError(f"n_examples = {n_examples}: the data set must not be empty")
        if (anchor_data is None) != (config.source == "stream"):
            raise InfluenceError(
                f"source = {config.source!r}: anchor_data is for 'heldout' and 'trusted', and needed there"
            )
        self.capture = capture = Capture(model, config, n_classes)
        self.n_examples, self.n_classes = n_examples, capture.n_classes
        self.given = None if anchor_data is None else Given(anchor_data, config.anchor_examples)
        if self.n_classes < 2:
            raise InfluenceError("the last layer has one output: scores are of cross-entropy over two classes or more")
        self.intake = Intake(capture, n_examples)
        dtype, device = capture.dtype, capture.head.weight.device
        # collectives keep to training's order: they stay in line
        self.lane = Lane(device, beside=not capture.deep and not collectives.active())
        with self.lane.work(), device:  # vectors may have millions of entries: they are made where they stay
            self.parts = self._make_parts(bank_size(config, self.n_classes), dtype)
            kept = self.n_classes if config.memory else 0
            self.ledger = VisitStatistics(n_examples, config.window, total_steps, device, dtype, kept)
        # elsewhere only the inverses leave the line: long chains of small kernels, not needed before the next check
        chained = capture.deep and self.parts["curvature"].chained
        self.inverting = Lane(device, beside=chained and not collectives.active())
        capture.aim.at(self.parts.directions.combined)
        self.steps, self.checks, self.epoch, self.epoch_steps, self.step_arithmetic = 0, 0, 0, 0, 0

    def _make_parts(self, count: int, dtype: torch.dtype) -> nn.ModuleDict:
        config, capture, space = self.config, self.capture, self.capture.space
        parts = nn.ModuleDict(
            {
                "curvature": Curvature.registry[config.curvature](space, config, not capture.deep, dtype),
                "anchors": AnchorBank(config, count, self.n_classes, space.dim, dtype),
                "directions": Directions(config, count, space.dim, dtype, self.n_classes),
                "controller": Controller(config, count, self.n_examples, dtype),
                "temperature": StreamingTemperature(dtype),
            }
        )
        parts.register_buffer("events", torch.zeros(len(EVENTS), dtype=torch.float64))
        return parts

    def _plan(self, epoch_steps: int) -> None:
        """Space the checks; outside head scope, where a product with the curvature may cost as much as many examples'
        training, by what the first step was seen to cost."""
        self.epoch_steps = epoch_steps
        affordable = math.inf
        if self.capture.deep:
            product = self.parts.curvature.arithmetic() + 4 * self.config.deep_examples * self.capture.space.dim
            affordable = max(CHECK_SHARE * self.step_arithmetic, UNNOTICED) / product
        self.parts.directions.plan(epoch_steps, affordable)
        if self.given is not None:  # a state that was saved before the first step knows of no steps
            self.given.pace = self.parts.directions.interval / max(epoch_steps, 1)

    def temperature(self) -> Tensor | float:
        """What softens the softmax inside every gradient now."""
        if self.config.temperature == 0:
            return self.parts.temperature.value
        return self.config.softening(self.n_classes)

    def _count(self, event: str, amount: Tensor) -> None:
        self.parts.events[EVENTS.index(event)] += amount

    def _score(self) -> FactoredBatch | None:
        """Score the passes that have not been scored yet, by the direction that has stood since the last check. Returns
        their batch if these are all that are queued."""
        passes = self.intake.queue[self.intake.scored :]
        if not passes:
            return None
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
        self.ledger.add_predictions(batch.index, batch.valid, logits, batch.labels, steps - first, upto - first, upto)
        broken = torch.zeros(upto - first, device=score.device)
        broken.index_add_(0, steps - first, (~batch.valid).to(broken.dtype))
        self._count("nan_batches", (broken > 0).sum())
        self._count("out_of_range", wrong)
        self.intake.scored = len(self.intake.queue)
        return batch if len(passes) == len(self.intake.queue) else None

    def _taken_along(self, batch: FactoredBatch, passes: list[Pass]) -> tuple[FactoredBatch, Tensor]:
        """Scores outside head scope, from what the backward passes left; what is not finite there is not valid."""
        below = [p.record.along for p in passes]
        along = None if below[0] is None else torch.cat(below)
        total, valid = self.capture.along(batch, torch.cat([p.record.head_gradient for p in passes]), along)
        return replace(batch, valid=valid), -total

    def _learn(self, batch: FactoredBatch | None, due: Due | None) -> None:
        """Let the queue into curvature and anchors, then check if that is due. `batch`: the queue's, if it was built
        before."""
        config = self.config
        passes, self.intake.queue, self.intake.scored = self.intake.queue, [], 0
        if batch is None:
            batch, _ = self.intake.build(passes, self.temperature(), config.half_life)
        self._fold(batch, len(batch), passes)
        if due is not None:
            self._check(batch.newest(collectives.share(config.probe_examples)), due)

    def _learn_from(self, passes: list[Pass], due: Due | None) -> None:
        """Outside head scope: let a sample of one step's examples into curvature and anchors, for all the steps since
        the last turn, then check if due."""
        self.inverting.join()
        with products(fast=False):
            sample = self.intake.gradients(
                passes, self.temperature(), collectives.share(self.config.deep_examples)
            ).settled()
            self._fold(sample, sum(len(p) for p in passes) * self.config.update_every, passes)
            if due is not None:
                self._check(sample, due)

    def _fold(self, batch: FactoredBatch, examples: int, passes: list[Pass]) -> None:
        """Let a settled batch into curvature and anchors, that stands for so many examples of the stream."""
        config = self.config
        remains = decay(examples, config.half_life, self.n_examples)
        self.parts.curvature.update(batch, remains)
        if config.source == "stream":
            self.parts.anchors.fold(batch, remains)
        if config.temperature == 0:
            labels = torch.cat([p.labels for p in passes]).long().clamp(0, self.n_classes - 1)
            self.parts.temperature.update(torch.cat([p.record.logits for p in passes]), labels)

    def _check(self, probe: FactoredBatch, due: Due) -> None:
        """Check, certify and step the directions on the probe examples (see `Directions`), then refresh the
        curvature."""
        curvature, anchors, directions = self.parts.curvature, self.parts.anchors, self.parts.directions
        controller = self.parts.controller
        if self.checks == 0:
            curvature.refresh()
        if self.given is not None:
            # outside head scope they pass one batch at a time: the activations of all would not fit
            passes = anchor_passes(self.capture, self.given.turn()) if self.capture.deep else due.anchors
            batches = anchor_batches(self.capture, passes, self.temperature(), self.config.deep_examples)
            anchors.take(batches, due.size)
        count = probe.count
        mean = probe.weighted((probe.valid / count.clamp(min=1)).unsqueeze(1))
        collectives.sum_(mean, count)
        gradient_norm = torch.linalg.vector_norm(mean / collectives.size())
        sound = count > len(probe) * collectives.size() / 2  # a probe full of NaN certifies nothing
        with hold_unless(sound, controller, directions):
            controller.observe(due.rate, due.decay, gradient_norm, curvature.condition())
            directions.check(anchors.targets(), probe, curvature, controller)
        directions.remember()
        self.capture.aim.at(directions.combined)
        with self.inverting.work():
            curvature.refresh()  # only now: the probes must not have made the inverse that they certify
        self.checks += 1
        if self.checks % self.config.coverage_every == 0:
            anchors.smallest, chosen = anchors.redundant(directions.phi, controller.confidence)
            anchors.refresh(chosen)
            self._count("coverage_refreshes", chosen.any())
        self._count("zero_confidence_steps", (controller.confidence.sum() == 0) * directions.interval)

    def _due(self, optimizer: torch.optim.Optimizer | None) -> Due:
        """Learning rate and weight decay of the head's parameter group (of the first group if the head is in none), as
        they are now: a rate that lives on the device is copied. Given anchors pass through the model before it moves
        on, in the precision that training has."""
        rate, decay, size, anchors = 1.0, 0.0, None, []
        if optimizer is not None:
            head, groups = self.capture.head.weight, optimizer.param_groups
            group = next((g for g in groups if any(p is head for p in g["params"])), groups[0])
            rate, decay = group["lr"], group.get("weight_decay", 0.0)
        if self.given is not None and not self.given.all_at_once:
            size = self.given.size
        if self.given is not None and not self.capture.deep:
            features = self.intake.queue[-1].record.features
            half = features.dtype if features.dtype in HALVES else None
            with torch.autocast(features.device.type, half, enabled=half is not None):
                anchors = list(anchor_passes(self.capture, self.given.turn()))
        return Due(rate.detach().clone() if isinstance(rate, Tensor) else rate, decay, size, anchors)

    def _raise_deferred(self) -> None:
        wrong = int(self.parts.events[EVENTS.index("out_of_range")])
        if wrong:
            raise BatchError(
                f"{wrong} watched examples had an index outside 0..{self.n_examples - 1} "
                f"or a label outside 0..{self.n_classes - 1}"
            )
