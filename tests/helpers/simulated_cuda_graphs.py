"""CUDA graphs simulated on a CPU: a recorded step is replayed, whatever its Python code would do now.

The first steps of a shape run as they are, the next one is recorded operation by operation, and from then on the
recorded operations are executed on the same memory. A Python number that changed since, a branch that would now go the
other way or a tensor that was replaced by another has no effect, as on a GPU; reading a value raises an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sgoif.training import learner
from sgoif.training.batches import Batch
from sgoif.training.cuda_graphs import WARM_UP_CALLS
from sgoif.training.learner import Learner

READS = ("_local_scalar_dense", "item", "is_nonzero", "equal", "nonzero", "masked_select", "unique", "_unique2")
RANDOM = ("randperm", "rand", "randn", "randint", "bernoulli", "bernoulli_", "normal_", "uniform_", "multinomial")
HOST_COPIES = ("lift_fresh",)  # torch.tensor(…)


class NotCapturable(RuntimeError):
    """A CUDA graph cannot hold this operation."""


class Recording(TorchDispatchMode):
    """Records every operation, of the backward pass and the optimiser too."""

    def __init__(self):
        super().__init__()
        self.done: list[tuple] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if name in (*READS, *RANDOM, *HOST_COPIES):
            raise NotCapturable(f"{function}: a value is looked at, drawn, or fetched from the host inside a step")
        if name.startswith("index"):
            places = [t for t in tree_leaves(args[1:]) if isinstance(t, torch.Tensor)]
            if any(t.dtype in (torch.bool, torch.uint8) for t in places[:1]):
                raise NotCapturable(f"{function}: how many examples a mask leaves is a value")
        output = function(*args, **(kwargs or {}))
        self.done.append((function, args, kwargs or {}, output))
        return output


class SimulatedGraph:
    """Behaves like `GraphedStep` on a GPU."""

    def __init__(self, function: Callable[[Batch], Any]):
        self.function, self.calls, self.graphs = function, {}, {}

    def __call__(self, batch: Batch) -> Any:
        shape = tuple(t.shape for t in batch.tensors())
        self.calls[shape] = self.calls.get(shape, 0) + 1
        if self.calls[shape] <= WARM_UP_CALLS:
            return self.function(batch)
        if shape not in self.graphs:
            inputs = batch.clone()
            with Recording() as recording:
                output = self.function(inputs)
            self.graphs[shape] = recording.done, inputs, output
            return output
        done, inputs, output = self.graphs[shape]
        with torch.no_grad():
            for static, new in zip(inputs.tensors(), batch.tensors(), strict=True):
                static.copy_(new)
            for operation in done:
                _replay(*operation)
        return output


def _replay(function, args, kwargs, output) -> None:
    """Run an operation again and copy its results to where they were (views and in-place results are there)."""
    for old, new in zip(tree_leaves(output), tree_leaves(function(*args, **kwargs)), strict=True):
        if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
            old.copy_(new)


def capture_steps(monkeypatch, *modules) -> list[SimulatedGraph]:
    """Simulate CUDA graphs for the steps of every learner, and for what the named modules capture themselves.

    Returns:
        The simulated graphs, one for each captured function; it grows as functions are captured.
    """
    made: list[SimulatedGraph] = []
    init = Learner.__init__

    def graphed(function):
        made.append(SimulatedGraph(function))
        return made[-1]

    def capturing(self, *args, **kw):
        init(self, *args, **kw)
        self._uses_graphs = True

    monkeypatch.setattr(Learner, "__init__", capturing)
    for module in (learner, *modules):
        monkeypatch.setattr(module, "GraphedStep", graphed)
    return made
