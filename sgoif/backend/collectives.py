"""Reductions over the processes of a distributed run; no-ops when there is only one process."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor


def active() -> bool:
    """Return whether several processes train together."""
    return bool(dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1)


def size() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if active() else 1


def sum_(*tensors: Tensor) -> None:
    """Replace each tensor by its sum over the processes, in place."""
    if active():
        for tensor in tensors:
            dist.all_reduce(tensor)


def max_(tensor: Tensor) -> None:
    """Replace the tensor by its maximum over the processes, in place."""
    if active():
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)


def share(count: int) -> int:
    """Return how many of `count` examples one process handles, rounded up."""
    return -(-count // size())
