"""Given anchor data (held-out or trusted examples) under the current parameters: whose turn it is, its gradients, its
predictions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgoif.errors import BatchError
from sgoif.gradients.factored_batch import FactoredBatch
from sgoif.gradients.hooks import Capture
from sgoif.gradients.queue import Pass

AnchorData = Iterable[tuple[Tensor, Tensor]]
Numbered = tuple[Tensor, Tensor, int]  # a batch (x, y) and the place of its first example in the data


class Given:
    """Anchor data, and whose turn it is. At the first check all of it passes, so that every anchor has a target; then,
    if it holds more than `at_once` examples, the next batches that fit into so many (one at least), round and round.

    `pace`: the share of an epoch from one check to the next. However large the data, a round is to last about an
    epoch at most (batches are not divided), so that no gradient is much older than that.
    """

    def __init__(self, data: AnchorData, least: int) -> None:
        self.data, self.least, self.pace = data, least, 0.0
        self.size, self.place = 0, 0  # examples in a round, once known; those of this round that have had their turn
        self.passed = 0  # examples so far, each as often as it had its turn
        self._round: Iterator[Numbered] | None = None
        self._ahead: Numbered | None = None  # it did not fit any more

    @property
    def at_once(self) -> int:
        return max(self.least, math.ceil(self.pace * self.size))

    @property
    def all_at_once(self) -> bool:
        return self.size <= self.at_once

    def turn(self) -> Iterator[Numbered]:
        """The batches that pass at this check."""
        if self.all_at_once:
            for x, y, place in self.batches():
                self.passed += len(y)
                yield x, y, place
                self.size = place + len(y)
            return
        taken = 0
        while True:
            x, y, place = self._next()
            if taken and taken + len(y) > self.at_once:
                self._ahead = x, y, place
                return
            taken, self.place, self.passed = taken + len(y), place + len(y), self.passed + len(y)
            yield x, y, place

    def _next(self) -> Numbered:
        if self._round is None:
            self._round = (one for one in self.batches() if one[2] >= self.place)
        batch, self._ahead = self._ahead or next(self._round, None), None
        if batch is None:
            self._round, self.place = self.batches(), 0
            batch = next(self._round)
        return batch

    def batches(self) -> Iterator[Numbered]:
        """One round."""
        place = 0
        for x, y in self.data:
            yield x, y, place
            place += len(y)
        if place == 0:
            raise BatchError("anchor_data holds nothing; it is read again and again, so give a list or a DataLoader")

    def state_dict(self) -> dict[str, int]:
        return {"size": self.size, "place": self.place, "passed": self.passed}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.size, self.place, self.passed = state["size"], state["place"], state["passed"]
        self._round, self._ahead = None, None


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in eval mode; afterwards each of its modules is in the mode it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _checked(capture: Capture, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """On the model's device."""
    device = capture.head.weight.device
    if y.device.type == "cpu" and ((y < 0) | (y >= capture.n_classes)).any():
        raise BatchError(f"anchor_data: a label lies outside 0..{capture.n_classes - 1}")
    return x.to(device), y.to(device)


def anchor_passes(capture: Capture, batches: Iterable[Numbered]) -> Iterator[Pass]:
    """The batches as passes through the model in eval mode; its parameters, gradients, modes and buffers stay as they
    were."""
    model = capture.model
    with evaluating(model):
        for x, y, place in batches:
            x, y = _checked(capture, x, y)
            capture.start(scoring=False)
            try:
                with torch.set_grad_enabled(capture.deep):
                    loss = F.cross_entropy(model(x).float(), y)
                    if capture.deep:  # fills the layers' output gradients and leaves every .grad alone
                        torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad], allow_unused=True)
            finally:
                record = capture.stop()
            capture.validate(record, len(y))
            yield Pass(0, record, torch.arange(place, place + len(y), device=y.device), y)


def anchor_batches(
    capture: Capture, passes: Iterable[Pass], temperature: Tensor | float, at_once: int
) -> Iterator[FactoredBatch]:
    """Their gradients in settled batches, outside head scope of `at_once` examples each."""
    for p in passes:
        size = at_once if capture.deep else len(p)
        for start in range(0, len(p), size):
            rows = slice(start, start + size)
            yield capture.pass_batch(p.record, p.index, p.labels, temperature, rows).settled()


@torch.no_grad()
def anchor_predictions(capture: Capture, batches: Iterable[Numbered]) -> tuple[Tensor, Tensor]:
    """What the model says of the given data, as probabilities `[m, C]`, and the labels `[m]`."""
    with evaluating(capture.model):
        checked = (_checked(capture, x, y) for x, y, _ in batches)
        said = [(capture.model(x).to(capture.dtype).softmax(1), y) for x, y in checked]
    return torch.cat([p for p, _ in said]), torch.cat([y for _, y in said])
