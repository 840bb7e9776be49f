"""Where watching does its work: on a GPU stream of its own, beside training, or in line with it.

Head-scope scores never feed back into training and read copies only. On a GPU their few hundred small kernels can run
in the gaps that the training step leaves instead of after it. And what is done again and again with the same tensors
need not be launched kernel by kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor


@functools.cache
def own_stream(device: int, purpose: str) -> torch.cuda.Stream:
    """The process's stream for a purpose. One for all: cuBLAS keeps a workspace for every stream it has met (32 MiB on
    an H200, for forward and for backward passes)."""
    return torch.cuda.Stream(device)


class Lane:
    """`beside=False` (or no GPU): everything happens in line and both methods do nothing."""

    def __init__(self, device: torch.device, beside: bool) -> None:
        self.stream = None
        if beside and device.type == "cuda":
            self.stream = own_stream(torch.cuda.current_device() if device.index is None else device.index, "beside")

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


class Replayed:
    """`step()`, which changes tensors in place and asks the device nothing: on a GPU, if it is called often, captured
    as a CUDA graph and replayed, one launch instead of dozens. The memory of one graph serves the next, so only one at
    a time may be in use."""

    AT_FIRST = 5  # calls that are not worth a capture, which takes about as long
    last: ClassVar[dict[int, torch.cuda.CUDAGraph]] = {}  # by device: its memory is kept while it lives

    def __init__(self, step: Callable[[], None], device: torch.device) -> None:
        self.step, self.device, self.calls = step, device, 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        self.calls += 1
        if self.device.type != "cuda" or self.calls <= self.AT_FIRST:
            self.step()
            return
        with torch.cuda.device(self.device):
            if self.graph is None:
                self.graph = self._capture(torch.cuda.current_device())
            self.graph.replay()

    def _capture(self, device: int) -> torch.cuda.CUDAGraph:
        graph, before = torch.cuda.CUDAGraph(), self.last.get(device)
        with torch.cuda.stream(own_stream(device, "capture")):
            graph.capture_begin(before and before.pool(), capture_error_mode="thread_local")
            try:
                self.step()
            finally:
                graph.capture_end()
        self.last[device] = graph
        return graph
