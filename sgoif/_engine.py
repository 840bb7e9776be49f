"""What happens between two checks, and at a check.

Watched passes are scored by the direction of the last check, then enter curvature and anchors; then the directions are
checked. `OnlineInfluence` is the public interface of this engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from sgoif._parts import EVENTS, CheckInputs, Parts
from sgoif.anchors.external import AnchorData, AnchorDataCycle
from sgoif.backend import collectives
from sgoif.backend.cuda import SideStream
from sgoif.backend.linalg import restore_buffers_unless
from sgoif.config import InfluenceConfig
from sgoif.errors import BatchError, CaptureError, InfluenceError
from sgoif.gradients.factored_batch import FactoredBatch
from sgoif.gradients.layer_ops import stored_weight
from sgoif.gradients.queue import MAX_QUEUED_NUMBERS, Pass, remaining_weight, repeat_each, step_sizes
from sgoif.label_noise.held_out_evidence import fitted_examples
from sgoif.label_noise.projection import MAX_FEATURES
from sgoif.scopes import LearningSample, create_scope
from sgoif.scores.features import MAX_NUMBERS, SAME_NORM, FeatureMemory, parameter_norms
from sgoif.scores.predictions import PredictedVisits, PredictionStatistics
from sgoif.scores.visit_statistics import VisitStatistics

STATE = {"config", "n_examples", "progress", "parts", "visits", "predictions", "features", "queue", "anchor_cycle"}
PROGRESS = ("steps", "checks", "epoch", "epoch_steps", "step_flops")


class Engine:
    """Moves the parts of the method from step to step.

    Args:
        model: The model that is trained.
        n_examples: Number of training examples.
        n_classes: Number of classes; the outputs of the last layer if None.
        config: Settings of the method.
        total_steps: Optimiser steps of the whole training, if known.
        anchor_data: External anchors, for the sources "heldout" and "trusted".
    """

    def __init__(
        self,
        model: nn.Module,
        n_examples: int,
        n_classes: int | None,
        config: InfluenceConfig,
        total_steps: int | None,
        anchor_data: AnchorData | None,
    ) -> None:
        if (anchor_data is None) != (config.source == "stream"):
            raise InfluenceError(
                f"source = {config.source!r}: anchor_data is for 'heldout' and 'trusted', and needed there"
            )
        self.config = config
        self.n_examples = n_examples
        self.scope = create_scope(model, n_examples, n_classes, config)
        self.hooks = self.scope.hooks
        self.queue = self.scope.queue
        self.n_classes = self.hooks.n_classes
        if self.n_classes < 2:
            raise InfluenceError("the last layer has one output: scores are of cross-entropy over two classes or more")
        self.anchor_cycle = None if anchor_data is None else AnchorDataCycle(anchor_data, config.anchor_examples)
        device = self.scope.device
        # Distributed runs stay on the main stream so that all ranks issue collectives in the same order.
        may_overlap = not collectives.active()
        self.stream = SideStream(device, enabled=self.scope.scores_on_side_stream and may_overlap)
        with self.stream.run(), device:  # vectors may have millions of entries: create them on the device
            self.parts = Parts(self.scope, n_examples)
            self.visits = VisitStatistics(n_examples, config.window, total_steps, device, self.hooks.dtype)
            self.predictions: PredictionStatistics | None = None
            if config.memory:
                with_influence = config.scope == "head"
                self.predictions = PredictionStatistics(
                    n_examples, self.n_classes, device, self.hooks.dtype, with_influence
                )
            self._left_alone: set[int] = set()  # parameters below the head that the first step did not change
            self.features = self._feature_memory()
            self._norms_before: Tensor | None = None  # of parameters below the head, before the first pass from here on
        # In deep scopes only the Kronecker inverses run on the side stream; they are first needed at the next check.
        overlap_refresh = not self.scope.scores_on_side_stream and self.parts.curvature.side_stream_refresh
        self.refresh_stream = SideStream(device, enabled=overlap_refresh and may_overlap)
        self.scope.set_scoring_direction(self.parts.directions.scoring_direction)
        self.steps = 0
        self.checks = 0
        self.epoch = 0
        self.epoch_steps = 0
        self.step_flops = 0

    def _feature_memory(self) -> FeatureMemory | None:
        """Return where features are kept, None unless only the head is trained and labels are judged without trust."""
        if not self._may_keep_features() or not self._only_head_is_trained():
            return None
        return FeatureMemory(self.n_examples, self.hooks.head.in_features, self.scope.device)

    def _may_keep_features(self) -> bool:
        wanted = self.predictions is not None and self.config.keep_features and self.config.source != "trusted"
        dim = self.hooks.head.in_features
        if not wanted or dim > MAX_FEATURES or self.n_examples * dim > MAX_NUMBERS:
            return False
        return bool(fitted_examples(self.n_examples, dim, self.n_classes))

    def _below_head(self) -> Iterator[nn.Parameter]:
        head = {id(p) for p in self.hooks.head.parameters()}
        return (p for p in self.hooks.model.parameters() if id(p) not in head)

    def _only_head_is_trained(self) -> bool:
        return not any(p.requires_grad and id(p) not in self._left_alone for p in self._below_head())

    def begin_pass(self) -> None:
        """Note the weights below the head before the first pass of a training, or of one that goes on."""
        if self._norms_before is None and self._may_keep_features():
            self._norms_before = parameter_norms(self._below_head())

    def drop_features_if_layers_were_trained(self) -> None:
        """Drop the features if weights below the head have changed since the first pass; waits for the device.

        Their values are compared: fused optimisers do not raise the version of a parameter, and loading weights does.
        """
        if self.features is None or self._norms_before is None:
            return
        now = parameter_norms(self._below_head())
        before = self._norms_before.to(now.device)  # the model may have been moved since
        if now.shape != before.shape or not torch.allclose(now, before, rtol=SAME_NORM, atol=0):
            self.features = None

    def _note_left_alone(self, optimizer: torch.optim.Optimizer | None) -> None:
        """Note which parameters the first step did not change: without a gradient, or not the optimiser's."""
        owned = None if optimizer is None else {id(p) for group in optimizer.param_groups for p in group["params"]}
        head_has_gradient = stored_weight(self.hooks.head).grad is not None
        for p in self._below_head():
            without_gradient = head_has_gradient and p.grad is None
            if without_gradient or (owned is not None and id(p) not in owned):
                self._left_alone.add(id(p))
        if self.features is None:
            self.features = self._feature_memory()

    def temperature(self) -> Tensor | float:
        """Return the temperature of the softmax inside every gradient."""
        if self.config.temperature == 0:
            return self.parts.temperature.value
        return self.config.softening(self.n_classes)

    def step(self, optimizer: torch.optim.Optimizer | None) -> None:
        """Score and learn from what was watched, if it is time to, and make a check if one is due."""
        current = self.queue.newest(self.steps)
        if not current:
            raise CaptureError(
                "step() without a watched pass: run forward and backward inside `with influence.watch(...)`"
            )
        if self.steps == 0:
            self._note_left_alone(optimizer)
            self.step_flops = self.scope.training_flops(current)
            batch_size = sum(len(p) for p in current) * collectives.size()
            self._plan_checks(-(-self.n_examples // batch_size))
        self.steps += 1
        check_due = self.parts.directions.schedule.is_due(self.steps)
        flush = check_due or self.queue.queued_numbers >= collectives.share(MAX_QUEUED_NUMBERS)
        window_starts = self.steps == self.visits.window_start
        learn = self.scope.learns_now(self.steps, check_due, flush)
        if learn or window_starts:
            check = self._check_inputs(optimizer) if check_due else None
            inputs = [*self.queue.tensors(), *(check.tensors() if check else ())]
            with self.stream.run(inputs), torch.autocast(self.scope.device.type, enabled=False):
                scored = self.score_queue() if self.scope.scores_now(flush, window_starts) else None
                if learn:
                    self._learn(current, scored, check)
        self.scope.end_step()

    def end_epoch(self) -> None:
        """Close a row of per-epoch scores and report indices or labels on a device that were out of range."""
        self.require_steps("end_epoch()")
        self.epoch += 1
        self.drop_features_if_layers_were_trained()
        with self.stream.run(self.queue.tensors()):
            self.score_queue()
            self.visits.close(self.epoch)
            self.raise_out_of_range()

    def require_steps(self, call: str) -> None:
        """Raise InfluenceError if passes were watched and no step was told."""
        if not self.steps and self.queue.newest(0):
            raise InfluenceError(
                f"{call}: passes were watched and no step was told; call influence.step(optimizer) after every "
                "optimizer.step()"
            )

    def _plan_checks(self, epoch_steps: int) -> None:
        """Space the checks; in deep scopes by the cost of the first step."""
        self.epoch_steps = epoch_steps
        schedule = self.parts.directions.schedule
        schedule.plan(epoch_steps, self.scope.affordable_products(self.parts.curvature, self.step_flops))
        if self.anchor_cycle is not None:  # a state that was saved before the first step has epoch_steps = 0
            self.anchor_cycle.epochs_per_check = schedule.interval / max(epoch_steps, 1)

    def score_queue(self) -> FactoredBatch | None:
        """Score the passes of finished steps that have not been scored, by the direction of the last check.

        Passes of a step that is still accumulated stay: a step is weighed as a whole.

        Returns:
            Their batch if they are the whole queue, else None.
        """
        passes = self.queue.unscored(self.steps)
        if not passes:
            return None
        directions = self.parts.directions
        batch, out_of_range = self.queue.to_batch(passes, self.temperature(), self.config.half_life)
        scored = self.scope.score(batch, passes)
        batch, score = scored.batch, scored.score
        sizes = step_sizes(passes)
        steps = repeat_each(list(sizes), list(sizes.values()), batch.index.device, torch.long)
        age = steps - self.checks * directions.schedule.interval
        first, end = passes[0].step, passes[-1].step + 1
        self.visits.add(batch.index, batch.valid, score, directions.certificate, age, end)
        if self.predictions is not None:
            visits = PredictedVisits(
                batch.index, batch.valid, batch.logits, batch.predicted, batch.labels, scored.class_influence
            )
            self.predictions.add(visits, steps - first, range(first, end), self.epoch_steps)
        if self.features is not None:
            features = torch.cat([p.features for p in passes])
            self.features.add(batch.index, batch.valid, features)
        invalid = torch.zeros(end - first, device=score.device)
        invalid.index_add_(0, steps - first, (~batch.valid).to(invalid.dtype))
        self.parts.count("nan_batches", (invalid > 0).sum())
        self.parts.count("out_of_range", out_of_range)
        whole_queue = len(passes) == len(self.queue.passes)
        self.queue.mark_scored(passes)
        return batch if whole_queue else None

    def _learn(self, current: list[Pass], scored: FactoredBatch | None, check: CheckInputs | None) -> None:
        """Update curvature, anchors and temperature, then make a check if there are inputs for one."""
        self.refresh_stream.synchronise()
        with self.scope.learning_precision():
            sample = self.scope.learning_sample(current, scored, self.temperature())
            self._update(sample)
            if check is not None:
                self._check(self.scope.probe(sample.batch), check)

    def _update(self, sample: LearningSample) -> None:
        config = self.config
        decay = remaining_weight(sample.represented, config.half_life, self.n_examples)
        self.parts.curvature.update(sample.batch, decay)
        self.parts.anchors.count_labels(sample.batch)
        if config.source == "stream":
            self.parts.anchors.update(sample.batch, decay)
        if config.temperature == 0:
            labels = torch.cat([p.labels for p in sample.passes]).long().clamp(0, self.n_classes - 1)
            self.parts.temperature.update(torch.cat([p.logits for p in sample.passes]), labels)

    def _check(self, probe: FactoredBatch, inputs: CheckInputs) -> None:
        """Check, certify and step the directions on the probe examples, then refresh the curvature."""
        curvature, anchors, directions = self.parts.curvature, self.parts.anchors, self.parts.directions
        controller = self.parts.controller
        if self.checks == 0:
            curvature.refresh()
        if self.anchor_cycle is not None:
            batches = self.scope.external_anchor_batches(inputs.anchor_passes, self.anchor_cycle, self.temperature())
            anchors.replace(batches, inputs.total_anchors)
        gradient_norm, sound = _probe_gradient_norm(probe)
        with restore_buffers_unless(sound, controller, directions):
            controller.update_tolerance(inputs.learning_rate, inputs.weight_decay, gradient_norm, curvature.condition())
            directions.check(anchors.targets(), anchors.prior(), probe, curvature, controller)
        directions.copy_flag_to_host()
        self.scope.set_scoring_direction(directions.scoring_direction)
        with self.refresh_stream.run():
            curvature.refresh()  # only now: the probe must not be part of the inverse that it certifies
        self.checks += 1
        if self.config.coverage_every and self.checks % self.config.coverage_every == 0:
            self._check_coverage()
        without_confidence = (controller.confidence.sum() == 0) * directions.schedule.interval
        self.parts.count("zero_confidence_steps", without_confidence)

    def _check_coverage(self) -> None:
        """Refresh an anchor if the directions are nearly linearly dependent."""
        anchors = self.parts.anchors
        anchors.lambda_min, chosen = anchors.find_redundant(self.parts.directions.phi, self.parts.controller.confidence)
        anchors.refresh(chosen)
        self.parts.count("coverage_refreshes", chosen.any())

    def _check_inputs(self, optimizer: torch.optim.Optimizer | None) -> CheckInputs:
        """Take learning rate and weight decay of the head's parameter group, and pass the external anchors.

        Without the head in any group the first group is used. A learning rate on the device is copied, because
        training may change it before the check reads it.
        """
        rate: Tensor | float = 1.0
        decay: Tensor | float = 0.0
        if optimizer is not None:
            head, groups = stored_weight(self.hooks.head), optimizer.param_groups
            group = next((g for g in groups if any(p is head for p in g["params"])), groups[0])
            rate, decay = group["lr"], group.get("weight_decay", 0.0)
        rate = rate.detach().clone() if isinstance(rate, Tensor) else rate
        cycle = self.anchor_cycle
        if cycle is None:
            return CheckInputs(rate, decay)
        total = None if cycle.fits_one_check else cycle.size
        return CheckInputs(rate, decay, total, self.scope.queue_external_anchors(cycle))

    def raise_out_of_range(self) -> None:
        """Raise BatchError if a watched index or label on a device was out of range; waits for the device."""
        wrong = int(self.parts.events[EVENTS.index("out_of_range")])
        if wrong:
            raise BatchError(
                f"{wrong} watched examples had an index outside 0..{self.n_examples - 1} "
                f"or a label outside 0..{self.n_classes - 1}"
            )

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a resumed run needs to give the same scores."""
        if self.queue.newest(self.steps):
            raise InfluenceError("state_dict() between watch() and step(): save after step()")
        self.stream.synchronise()
        self.refresh_stream.synchronise()
        self.drop_features_if_layers_were_trained()
        progress = {name: getattr(self, name) for name in PROGRESS}
        parts = self.parts.state_dict()
        return {
            "config": self.config.to_dict(),
            "n_examples": self.n_examples,
            "progress": {**progress, "hvps": self.parts.directions.hvps},
            "parts": {name: value.clone() if isinstance(value, Tensor) else value for name, value in parts.items()},
            "visits": self.visits.state_dict(),
            "predictions": None if self.predictions is None else self.predictions.state_dict(),
            "features": None if self.features is None else self.features.state_dict(),
            "queue": self.queue.state_dict(),
            "anchor_cycle": None if self.anchor_cycle is None else self.anchor_cycle.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state of the same configuration and number of examples."""
        if not isinstance(state, dict) or not STATE <= set(state) or not isinstance(state["config"], dict):
            raise InfluenceError("load_state_dict(): this is no state_dict() of an OnlineInfluence")
        own = self.config.to_dict()
        differing = [name for name, value in own.items() if state["config"].get(name) != value]
        if differing or state["n_examples"] != self.n_examples:
            raise InfluenceError(
                f"this state is of {state['n_examples']} examples, here there are {self.n_examples}; "
                f"settings that differ: {', '.join(differing) or 'none'}"
            )
        shapes = {name: value.shape for name, value in self.parts.state_dict().items() if isinstance(value, Tensor)}
        if any(state["parts"][name].shape != shape for name, shape in shapes.items() if name in state["parts"]):
            raise InfluenceError("load_state_dict(): this state is of a model with layers of other sizes")
        directions = self.parts.directions
        with self.stream.run():
            self.parts.load_state_dict(state["parts"])
            directions.forget_host_flag()
            self.visits.load_state_dict(state["visits"])
            if self.predictions is not None:
                self.predictions.load_state_dict(state["predictions"])
            self._norms_before = None  # weights may be loaded after this
            if state["features"] is None:
                self.features = None
            else:  # layers may be frozen only after this; if others are trained, the features are dropped again
                self.features = FeatureMemory(self.n_examples, self.hooks.head.in_features, self.scope.device)
                self.features.load_state_dict(state["features"])
                self._left_alone = {id(p) for p in self._below_head() if p.requires_grad}
        self.queue.load_state_dict(state["queue"], self.scope.device)
        if self.anchor_cycle is not None:
            self.anchor_cycle.load_state_dict(state["anchor_cycle"])
        progress = dict(state["progress"])
        directions.hvps = progress.pop("hvps")
        for name, value in progress.items():
            setattr(self, name, value)
        self.scope.set_scoring_direction(directions.scoring_direction)
        self._plan_checks(self.epoch_steps)


def _probe_gradient_norm(probe: FactoredBatch) -> tuple[Tensor, Tensor]:
    """Return the norm of the mean probe gradient, and whether more than half of the probe examples are finite."""
    count = probe.count
    mean = probe.weighted_sum((probe.valid / count.clamp(min=1)).unsqueeze(1))
    collectives.sum_(mean, count)
    norm = torch.linalg.vector_norm(mean / collectives.size())
    return norm, count > len(probe) * collectives.size() / 2
