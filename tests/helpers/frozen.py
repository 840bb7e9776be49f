"""A CUDA graph for the CPU: what a step did once is done again, whatever Python would say now.

The first steps of a shape run as they are, the next one is written down operation by operation, and from then on the
list is executed on the same memory. A Python number that changed since, a branch that would now go the other way or a
tensor that was replaced by another has no effect, as on a GPU; looking at a value is refused.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sgoif.training import learner
from sgoif.training.batches import Batch
from sgoif.training.cuda_graphs import WARM_UP_CALLS
from sgoif.training.learner import Learner

LOOKS = ("_local_scalar_dense", "item", "is_nonzero", "equal", "nonzero", "masked_select", "unique", "_unique2")
DRAWS = ("randperm", "rand", "randn", "randint", "bernoulli", "bernoulli_", "normal_", "uniform_", "multinomial")
FETCHES = ("lift_fresh",)  # torch.tensor(…): a copy from the host


class NotCapturable(RuntimeError):
    """A graph cannot hold this."""


class Recording(TorchDispatchMode):
    """Writes down every operation, of the backward pass and the optimiser too."""

    def __init__(self):
        super().__init__()
        self.done: list[tuple] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if name in (*LOOKS, *DRAWS, *FETCHES):
            raise NotCapturable(f"{function}: a value is looked at, drawn, or fetched from the host inside a step")
        if name.startswith("index"):
            places = [t for t in tree_leaves(args[1:]) if isinstance(t, torch.Tensor)]
            if any(t.dtype in (torch.bool, torch.uint8) for t in places[:1]):
                raise NotCapturable(f"{function}: how many examples a mask leaves is a value")
        output = function(*args, **(kwargs or {}))
        self.done.append((function, args, kwargs or {}, output))
        return output


class Frozen:
    """Stands in for `GraphedStep`."""

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
                _again(*operation)
        return output


def _again(function, args, kwargs, output) -> None:
    """Once more; what is new goes where it went the first time (a view or an in-place result is there already)."""
    for old, new in zip(tree_leaves(output), tree_leaves(function(*args, **kwargs)), strict=True):
        if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
            old.copy_(new)


def capture_steps(monkeypatch, *rooms) -> list[Frozen]:
    """From now on the steps of every learner are captured as on a GPU, and what the modules `rooms` capture themselves;
    gives the list of what captures them."""
    made: list[Frozen] = []
    build = Learner.__init__

    def graphed(function):
        made.append(Frozen(function))
        return made[-1]

    def capturing(self, *args, **kw):
        build(self, *args, **kw)
        self._uses_graphs = True

    monkeypatch.setattr(Learner, "__init__", capturing)
    for room in (learner, *rooms):
        monkeypatch.setattr(room, "GraphedStep", graphed)
    return made
