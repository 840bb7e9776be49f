"""Data-parallel helpers for torchrun; no-ops in a single process.

Every process runs the same cells. Each gets its share of every batch and of every prediction; gradients, batch-norm
statistics and scores are summed, so that the result is that of one process up to rounding. Only the main process writes
results. Decisions about the course of the computation (time is up, save now, resume here) are made together, since a
process that took another branch would wait for the others forever.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from sgoif.backend.collectives import active, size, sum_

ModuleT = TypeVar("ModuleT", bound=nn.Module)


# --- the group of processes -----------------------------------------------------------------------------------------


def launched_by_torchrun() -> bool:
    """Say whether this is one of several processes that torchrun has started."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def launch(count: int, arguments: list[str]) -> int:
    """Run `python -m sgoif.bench <arguments>` in several processes of one group on this machine.

    Args:
        count: Number of processes.
        arguments: Arguments of the command.

    Returns:
        The exit status.
    """
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    return subprocess.run([*torchrun, "-m", "sgoif.bench", *arguments]).returncode


@contextlib.contextmanager
def process_group(device: str) -> Iterator[None]:
    """Join the group that torchrun describes in the environment; do nothing in a single process.

    Args:
        device: "cpu", or anything else for a GPU where there is one.
    """
    if not launched_by_torchrun():
        yield
        return
    cuda = device != "cpu" and torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def rank() -> int:
    """Return this process's number in its group, or 0."""
    return dist.get_rank() if active() else 0


def is_main_process() -> bool:
    """Say whether this process writes results: the only one, or the first of several."""
    return rank() == 0


# --- agreement ------------------------------------------------------------------------------------------------------


def barrier() -> None:
    """Wait until all processes have come this far."""
    any_process(False)


def any_process(flag: bool) -> bool:
    """Say whether `flag` is true in any process."""
    if not active():
        return flag
    count = torch.tensor(float(flag))
    sum_(count)
    return bool(count > 0)


def all_equal(number: int) -> bool:
    """Say whether `number` is the same in all processes."""
    if not active():
        return True
    numbers = [0] * size()
    dist.all_gather_object(numbers, number)
    return len(set(numbers)) == 1


def broadcast_array(array: np.ndarray) -> np.ndarray:
    """Return the main process's array in every process."""
    if not active():
        return array
    box = [array]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def union_over_processes(items: Iterable[str]) -> set[str]:
    """Return the items that any process holds."""
    if not active():
        return set(items)
    sets: list[set[str]] = [set()] * size()
    dist.all_gather_object(sets, set(items))
    return set().union(*sets)


def sum_over_processes(number: float) -> float:
    """Return the sum of `number` over processes."""
    if not active():
        return number
    box = torch.tensor(float(number), dtype=torch.float64)
    sum_(box)
    return float(box)


# --- shares of tensors ----------------------------------------------------------------------------------------------


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Replace every gradient by its mean over processes, in one message."""
    if not active():
        return
    gradients = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([g.reshape(-1) for g in gradients])
    sum_(flat)
    flat /= size()
    start = 0
    for g in gradients:
        g.copy_(flat[start : start + g.numel()].view_as(g))
        start += g.numel()


def shard(order: Tensor) -> Tensor:
    """Return this process's contiguous share of the rows; all of them if there are fewer rows than processes."""
    return order.tensor_split(size())[rank()] if active() and len(order) >= size() else order


def gather_shards(rows: Tensor, n: int) -> Tensor:
    """Put the shards of all processes together.

    Args:
        rows: This process's rows for its `shard` of n rows, shape [m, ...].
        n: Number of rows of all processes together.

    Returns:
        The rows of all processes in order, shape [n, ...].
    """
    if not active() or n < size():
        return rows
    counts = [len(part) for part in torch.arange(n).tensor_split(size())]
    padded = rows.new_zeros((max(counts), *rows.shape[1:]))
    padded[: len(rows)] = rows
    gathered = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(gathered, padded.contiguous())
    return torch.cat([part[:count] for part, count in zip(gathered, counts, strict=True)])


# --- batch norm -----------------------------------------------------------------------------------------------------


class SyncedBatchNorm2d(nn.BatchNorm2d):
    """Batch norm over the batches of all processes, on a CPU too (torch's own needs a GPU)."""

    @classmethod
    def sharing(cls, norm: nn.BatchNorm2d) -> SyncedBatchNorm2d:
        """Make a synced norm that shares the parameters and statistics of `norm`."""
        synced = cls(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
        synced.weight, synced.bias = norm.weight, norm.bias
        synced.running_mean, synced.running_var = norm.running_mean, norm.running_var
        synced.num_batches_tracked = norm.num_batches_tracked
        return synced.train(norm.training)

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and active()):
            return super().forward(x)
        count = x.numel() / x.shape[1] * size()  # shares are of one size
        mean = _differentiable_sum(x.sum((0, 2, 3))) / count
        centred = x - mean[:, None, None]
        variance = _differentiable_sum(centred.square().sum((0, 2, 3))) / count
        self._update_statistics(mean, variance * count / (count - 1))
        scale = self.weight / torch.sqrt(variance + self.eps)
        return centred * scale[:, None, None] + self.bias[:, None, None]

    @torch.no_grad()
    def _update_statistics(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics towards a batch's mean and unbiased variance, shape [C] each."""
        assert self.num_batches_tracked is not None and self.momentum is not None
        assert self.running_mean is not None and self.running_var is not None
        self.num_batches_tracked += 1
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(variance, self.momentum)


def _differentiable_sum(x: Tensor) -> Tensor:
    """Sum over processes that gradients flow through."""
    from torch.distributed.nn.functional import all_reduce

    total: Tensor = all_reduce(x)
    return total


def sync_batch_norms(net: ModuleT, device: torch.device) -> ModuleT:
    """Make the batch norms of a network work over all processes; the network is unchanged in a single process.

    Args:
        net: A network whose batch norms lie inside other modules.
        device: Where the network is trained.

    Returns:
        The network.
    """
    if not active():
        return net
    if device.type == "cuda":
        converted: ModuleT = nn.SyncBatchNorm.convert_sync_batchnorm(net)
        return converted
    for parent in list(net.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.BatchNorm2d:
                setattr(parent, name, SyncedBatchNorm2d.sharing(child))
    return net
