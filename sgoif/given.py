"""Given anchor data (held-out or trusted examples) under the current parameters: its gradients, its predictions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgoif.batch import FactoredBatch
from sgoif.capture import Capture
from sgoif.errors import BatchError
from sgoif.intake import Pass

AnchorData = Iterable[tuple[Tensor, Tensor]]


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


def _checked(capture: Capture, data: AnchorData) -> Iterator[tuple[Tensor, Tensor]]:
    """The data on the model's device."""
    device, empty = capture.head.weight.device, True
    for x, y in data:
        empty = False
        if y.device.type == "cpu" and ((y < 0) | (y >= capture.n_classes)).any():
            raise BatchError(f"anchor_data: a label lies outside 0..{capture.n_classes - 1}")
        yield x.to(device), y.to(device)
    if empty:
        raise BatchError("anchor_data holds nothing; it is read again and again, so give a list or a DataLoader")


def anchor_passes(capture: Capture, data: AnchorData) -> Iterator[Pass]:
    """The (x, y) as passes through the model in eval mode; its parameters, gradients, modes and buffers stay as they
    were."""
    model, first = capture.model, 0
    with evaluating(model):
        for x, y in _checked(capture, data):
            capture.start(scoring=False)
            try:
                with torch.set_grad_enabled(capture.deep):
                    loss = F.cross_entropy(model(x).float(), y)
                    if capture.deep:  # fills the layers' output gradients and leaves every .grad alone
                        torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad], allow_unused=True)
            finally:
                record = capture.stop()
            capture.validate(record, len(y))
            yield Pass(0, record, torch.arange(first, first + len(y), device=y.device), y)
            first += len(y)


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
def anchor_predictions(capture: Capture, data: AnchorData) -> tuple[Tensor, Tensor]:
    """What the model says of the given data, as probabilities `[m, C]`, and the labels `[m]`."""
    with evaluating(capture.model):
        said = [(capture.model(x).to(capture.dtype).softmax(1), y) for x, y in _checked(capture, data)]
    return torch.cat([p for p, _ in said]), torch.cat([y for _, y in said])
