"""A training step as one CUDA graph: the launches of some hundred kernels become one."""

from collections.abc import Callable
from typing import Any

import torch

from sgoif.backend.collectives import active
from sgoif.backend.cuda import own_stream
from sgoif.training.images import Batch
from sgoif.training.recipe import Recipe

WARM_UP = 3  # ordinary steps first: they allocate optimiser state and let cuDNN choose its algorithms
SHAPES = 4  # graphs of one function at most, each holds memory of its own: the oldest makes room


def captures(recipe: Recipe, device: torch.device) -> bool:
    """Whether steps are captured here: on a GPU, unless the recipe says no or other processes share the step."""
    return recipe.graph and device.type == "cuda" and not active()


class Graphed:
    """`function(batch)` run as it is a few times, then captured once for each shape of batch and replayed.

    The function may use device tensors only (no `.item()`, no branch on a value); what differs from step to step is
    among `batch.tensors()`. What it returns is overwritten by the next call.
    """

    def __init__(self, function: Callable[[Batch], Any]):
        self.function = function
        self.calls: dict[tuple, int] = {}
        self.graphs: dict[tuple, tuple[torch.cuda.CUDAGraph, Batch, Any]] = {}

    def __call__(self, batch: Batch) -> Any:
        shape = tuple(t.shape for t in batch.tensors())
        self.calls[shape] = self.calls.get(shape, 0) + 1
        if self.calls[shape] <= WARM_UP:
            return self._aside(batch)
        if shape not in self.graphs:
            if len(self.graphs) == SHAPES:
                del self.graphs[next(iter(self.graphs))]
            self.graphs[shape] = self._capture(batch)
        graph, inputs, output = self.graphs[shape]
        for static, new in zip(inputs.tensors(), batch.tensors(), strict=True):
            static.copy_(new, non_blocking=True)
        graph.replay()
        return output

    def _aside(self, batch: Batch) -> Any:
        """Not on the default stream, as capturing asks of the steps before it."""
        stream = own_stream(torch.cuda.current_device(), "capture")
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            output = self.function(batch)
        torch.cuda.current_stream().wait_stream(stream)
        return output

    def _capture(self, batch: Batch) -> tuple[torch.cuda.CUDAGraph, Batch, Any]:
        inputs, graph = batch.clone(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = self.function(inputs)
        return graph, inputs, output
