"""Runs a training step as one CUDA graph, so that the launches of some hundred kernels become one.

`GraphedStep` is for whole training steps, whose inputs are a `Batch`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch

from sgoif.backend.collectives import active
from sgoif.backend.cuda import own_stream
from sgoif.training.batches import Batch
from sgoif.training.recipe import Recipe

WARM_UP_CALLS = 3  # ordinary steps first: they allocate optimiser state and let cuDNN choose its algorithms
MAX_GRAPHS = 4  # of one function; each graph holds memory of its own, so the oldest is dropped

Result = TypeVar("Result")
BatchShape = tuple[torch.Size, ...]


def uses_cuda_graphs(recipe: Recipe, device: torch.device) -> bool:
    """Say whether training steps are captured: on a GPU, if the recipe allows it, in a single process."""
    return recipe.graph and device.type == "cuda" and not active()


class GraphedStep(Generic[Result]):
    """Runs `function(batch)` as it is a few times, then captures it once per batch shape and replays the graph.

    Attributes:
        calls: Number of calls by batch shape.
        graphs: Graph, its input batch and its output, by batch shape.
    """

    def __init__(self, function: Callable[[Batch], Result]) -> None:
        """Wrap a function.

        Args:
            function: Does one step. It may use device tensors only: no `.item()`, no branch on a value. What differs
                from step to step is among `batch.tensors()`. What it returns is overwritten by the next call.
        """
        self.function = function
        self.calls: dict[BatchShape, int] = {}
        self.graphs: dict[BatchShape, tuple[torch.cuda.CUDAGraph, Batch, Result]] = {}

    def __call__(self, batch: Batch) -> Result:
        shape = tuple(t.shape for t in batch.tensors())
        self.calls[shape] = self.calls.get(shape, 0) + 1
        if self.calls[shape] <= WARM_UP_CALLS:
            return self._warm_up(batch)
        if shape not in self.graphs:
            if len(self.graphs) == MAX_GRAPHS:
                del self.graphs[next(iter(self.graphs))]
            self.graphs[shape] = self._capture(batch)
        graph, inputs, output = self.graphs[shape]
        for static, new in zip(inputs.tensors(), batch.tensors(), strict=True):
            static.copy_(new, non_blocking=True)
        graph.replay()
        return output

    def _warm_up(self, batch: Batch) -> Result:
        """Run the function on a side stream, as CUDA requires of the steps before a capture."""
        stream = own_stream(torch.cuda.current_device(), "capture")
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            output = self.function(batch)
        torch.cuda.current_stream().wait_stream(stream)
        return output

    def _capture(self, batch: Batch) -> tuple[torch.cuda.CUDAGraph, Batch, Result]:
        inputs = batch.clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = self.function(inputs)
        return graph, inputs, output
