"""Where watching does its work: on a GPU stream of its own, beside training, or in line with it.

Head-scope scores never feed back into training and read copies only. On a GPU their few hundred small kernels can run
in the gaps that the training step leaves instead of after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class Lane:
    """`beside=False` (or no GPU): everything happens in line and both methods do nothing."""

    def __init__(self, device: torch.device, beside: bool) -> None:
        self.stream = torch.cuda.Stream(device) if beside and device.type == "cuda" else None

    @contextmanager
    def work(self, given: Iterable[Tensor] = ()) -> Iterator[None]:
        """Work that starts after everything training has asked for so far. `given`: tensors of training's that it
        reads; their memory is not handed out again before it is done."""
        if self.stream is None:
            yield
            return
        self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
        for tensor in given:
            tensor.record_stream(self.stream)
        with torch.cuda.stream(self.stream):
            yield

    def join(self) -> None:
        """What training asks for from now on starts after the lane's work: before results are read."""
        if self.stream is not None:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)
