"""The parts that make the state of a run, and the inputs of one check."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from sgoif.anchors.bank import AnchorBank, bank_size
from sgoif.curvature import Curvature
from sgoif.gradients.queue import Pass
from sgoif.scopes import Scope
from sgoif.scores.temperature import StreamingTemperature
from sgoif.solvers.directions import Directions
from sgoif.solvers.stability import StabilityController

REPORTED_EVENTS = ("nan_batches", "zero_confidence_steps", "coverage_refreshes")
EVENTS = (*REPORTED_EVENTS, "out_of_range")


@dataclass(frozen=True)
class CheckInputs:
    """What a check needs from the state of training at its step."""

    learning_rate: Tensor | float
    weight_decay: Tensor | float
    total_anchors: int | None = None  # number of external anchor examples, or None if all are used at every check
    anchor_passes: list[Pass] = field(default_factory=list)  # external anchors that passed through the model already

    def tensors(self) -> list[Tensor]:
        """Return the tensors of the training stream."""
        values = [t for t in (self.learning_rate, self.weight_decay) if isinstance(t, Tensor)]
        return [*values, *(t for p in self.anchor_passes for t in p.tensors())]


class Parts(nn.Module):
    """The parts of the method whose tensors make its state, and counters of events."""

    events: Tensor

    def __init__(self, scope: Scope, n_examples: int) -> None:
        super().__init__()
        config, hooks = scope.config, scope.hooks
        space, dtype, n_classes = hooks.space, hooks.dtype, hooks.n_classes
        count = bank_size(config, n_classes)
        self.curvature = Curvature.registry[config.curvature](space, config, hooks.closed_form, dtype)
        self.anchors = AnchorBank(config, count, n_classes, space.dim, dtype)
        self.directions = Directions(config, count, space.dim, dtype, n_classes)
        self.controller = StabilityController(config, count, n_examples, dtype)
        self.temperature = StreamingTemperature(dtype)
        self.register_buffer("events", torch.zeros(len(EVENTS), dtype=torch.float64))

    def count(self, event: str, amount: Tensor) -> None:
        """Add to the counter of an event."""
        self.events[EVENTS.index(event)].add_(amount)
