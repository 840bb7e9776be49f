"""A training step as one CUDA graph: the launches of some hundred kernels become one."""

from collections.abc import Callable
from typing import Any

import torch

from sgoif.bench.images import Batch

WARM_UP = 3  # ordinary steps first: they allocate optimiser state and let cuDNN choose its algorithms


class Graphed:
    """`function(batch)` run as it is a few times, then captured once and replayed.

    The function may use device tensors only (no `.item()`, no branch on a value). What it returns is overwritten by the
    next call. Batches of another shape than the captured one run as they are.
    """

    def __init__(self, function: Callable[[Batch], Any]):
        self.function = function
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, batch: Batch) -> Any:
        self.calls += 1
        if self.calls <= WARM_UP:
            return self._aside(batch)
        if self.graph is None:
            self._capture(batch)
        if [t.shape for t in batch.tensors()] != self.shapes:
            return self.function(batch)
        for static, new in zip(self.inputs.tensors(), batch.tensors(), strict=True):
            static.copy_(new, non_blocking=True)
        self.graph.replay()
        return self.output

    def _aside(self, batch: Batch) -> Any:
        """On a stream of its own, as capturing asks of the steps before it."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            output = self.function(batch)
        torch.cuda.current_stream().wait_stream(stream)
        return output

    def _capture(self, batch: Batch) -> None:
        self.inputs = batch.clone()
        self.shapes = [t.shape for t in batch.tensors()]
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.output = self.function(self.inputs)
