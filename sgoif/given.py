"""Gradients of given anchor data (held-out or trusted examples) under the current parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.batch import FactoredBatch
from sgoif.capture import Capture
from sgoif.errors import BatchError

AnchorData = Iterable[tuple[Tensor, Tensor]]


def anchor_batches(
    capture: Capture, data: AnchorData, temperature: Tensor | float, at_once: int
) -> Iterator[FactoredBatch]:
    """Settled batches of the (x, y), in eval mode, outside head scope of `at_once` examples each; parameters,
    gradients, modes and buffers of the model stay as they were."""
    model, device, first = capture.model, capture.head.weight.device, 0
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        for x, y in data:
            if y.device.type == "cpu" and ((y < 0) | (y >= capture.n_classes)).any():
                raise BatchError(f"anchor_data: a label lies outside 0..{capture.n_classes - 1}")
            y = y.to(device)
            capture.start(scoring=False)
            with torch.set_grad_enabled(capture.deep):
                loss = F.cross_entropy(model(x.to(device)).float(), y)
                if capture.deep:  # fills the layers' output gradients and leaves every .grad alone
                    torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad], allow_unused=True)
            record = capture.stop()
            capture.validate(record, len(y))
            index = torch.arange(first, first + len(y), device=device)
            first += len(y)
            size = at_once if capture.deep else len(y)
            for start in range(0, len(y), size):
                yield capture.pass_batch(record, index, y, temperature, slice(start, start + size)).settled()
    finally:
        capture.recording = False
        for module, mode in modes:
            module.training = mode
