"""Several processes that train one network together (torchrun), and nothing at all where there is one.

Every process runs the same cells. Each sees its share of every batch and of every prediction; gradients, statistics of
batch norms and scores are summed, so that the result is that of one process up to rounding. The first process alone
writes results. What decides the way of the computation (time is up, save now, resume here) is agreed on, since a
process that goes another way would wait for the others forever.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from sgoif.backend.collectives import active, size, sum_


def launched() -> bool:
    """Is this one of several processes that torchrun has started?"""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def launch(count: int, arguments: list[str]) -> int:
    """Runs `python -m sgoif.bench <arguments>` in `count` processes of one group on this machine; the exit status."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    return subprocess.run([*torchrun, "-m", "sgoif.bench", *arguments]).returncode


@contextlib.contextmanager
def together(device: str) -> Iterator[None]:
    """Joins the group that torchrun describes in the environment; with one process there is none."""
    if not launched():
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
    return dist.get_rank() if active() else 0


def first() -> bool:
    """The process that writes: the only one, or the first of several."""
    return rank() == 0


def wait() -> None:
    """Until all have come this far."""
    any_of(False)


def any_of(flag: bool) -> bool:
    """Is it so for any process?"""
    if not active():
        return flag
    count = torch.tensor(float(flag))
    sum_(count)
    return bool(count > 0)


def same(number: int) -> bool:
    """Do all processes hold this number?"""
    if not active():
        return True
    found = [None] * size()
    dist.all_gather_object(found, number)
    return len(set(found)) == 1


def shared(array: np.ndarray) -> np.ndarray:
    """The first process's array, in every process."""
    if not active():
        return array
    box = [array]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def union(items: Iterable[str]) -> set[str]:
    """What any process holds."""
    if not active():
        return set(items)
    found = [None] * size()
    dist.all_gather_object(found, set(items))
    return set().union(*found)


def total(number: float) -> float:
    """Sum over processes."""
    if not active():
        return number
    box = torch.tensor(float(number), dtype=torch.float64)
    sum_(box)
    return float(box)


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Mean over processes of every gradient, in one message."""
    if not active():
        return
    gradients = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([g.reshape(-1) for g in gradients])
    sum_(flat)
    flat /= size()
    at = 0
    for g in gradients:
        g.copy_(flat[at : at + g.numel()].view_as(g))
        at += g.numel()


def share_of(order: Tensor) -> Tensor:
    """This process's rows: one of as many stretches as there are processes. All of them where there are too few."""
    return order.tensor_split(size())[rank()] if active() and len(order) >= size() else order


def collect(rows: Tensor, n: int) -> Tensor:
    """[n, ...]: what every process has for its share of n rows, in order."""
    if not active() or n < size():
        return rows
    counts = [len(part) for part in torch.arange(n).tensor_split(size())]
    padded = rows.new_zeros((max(counts), *rows.shape[1:]))
    padded[: len(rows)] = rows
    found = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(found, padded.contiguous())
    return torch.cat([part[:count] for part, count in zip(found, counts, strict=True)])


class SyncedNorm(nn.BatchNorm2d):
    """Batch norm over the batches of all processes, on a CPU too (torch's own is for GPUs alone)."""

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and active()):
            return super().forward(x)
        count = x.numel() / x.shape[1] * size()  # shares are of one size
        mean = _sum(x.sum((0, 2, 3))) / count
        centred = x - mean[:, None, None]
        variance = _sum(centred.square().sum((0, 2, 3))) / count
        with torch.no_grad():
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * count / (count - 1), self.momentum)
        scale = self.weight / torch.sqrt(variance + self.eps)
        return centred * scale[:, None, None] + self.bias[:, None, None]


def _sum(x: Tensor) -> Tensor:
    """Sum over processes that gradients flow through."""
    from torch.distributed.nn.functional import all_reduce

    return all_reduce(x)


def synced(net: nn.Module, device: torch.device) -> nn.Module:
    """The network with batch norms over all processes; untouched where there is one."""
    if not active():
        return net
    if device.type == "cuda":
        return nn.SyncBatchNorm.convert_sync_batchnorm(net)
    for module in net.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = SyncedNorm
    return net
