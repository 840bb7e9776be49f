"""Data-parallel helpers for torchrun; no-ops in a single process.

Every process runs the same cells. Each gets its share of every batch and of every prediction; gradients, batch-norm
statistics and scores are summed, so that the result is that of one process up to rounding. Only the main process writes
results. Decisions about the course of the computation (time is up, save now, resume here) are made together, since a
process that took another branch would wait for the others forever.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from sgoif.backend.collectives import active
from sgoif.backend.collectives import size as size
from sgoif.backend.collectives import sum_ as sum_

ModuleT = TypeVar("ModuleT", bound=nn.Module)
FIRST_PORT, N_PORTS = 20000, 20000  # where the nodes of a Slurm job meet, by its number


# --- the group of processes -----------------------------------------------------------------------------------------


def launched_by_torchrun() -> bool:
    """Say whether this is one of several processes that torchrun has started."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def n_nodes() -> int:
    """Return the number of machines of this Slurm job; 1 elsewhere."""
    return int(os.environ.get("SLURM_JOB_NUM_NODES", "1"))


def fitting(count: int, gpus: int) -> int:
    """Return how many of `count` processes have a GPU each: the largest divisor, since batches are dealt evenly.

    Args:
        count: Processes that the configuration asks for.
        gpus: GPUs of this machine, or of all machines of the job; 0 for processes on a CPU, which all fit.
    """
    return max(n for n in range(1, count + 1) if count % n == 0 and (n <= gpus or not gpus))


def launch_command(count: int) -> list[str]:
    """Return the command that starts a Python module in several processes of one group.

    On several nodes of a Slurm job, `srun` starts torchrun once on each of them, and they meet on the first.

    Args:
        count: Number of processes, of all nodes together.
    """
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    nodes = n_nodes()
    if nodes == 1:
        return [*torchrun, "--standalone", f"--nproc-per-node={count}"]
    job = int(os.environ["SLURM_JOB_ID"])
    meeting = f"--rdzv-endpoint={socket.gethostname()}:{FIRST_PORT + job % N_PORTS}"
    return [
        *("srun", "--overlap", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"),
        *(*torchrun, f"--nnodes={nodes}", f"--nproc-per-node={count // nodes}"),
        *("--rdzv-backend=c10d", meeting, f"--rdzv-id={job}"),
    ]


def launch(count: int, arguments: list[str]) -> int:
    """Run `python -m sgoif.bench <arguments>` in several processes of one group, see `launch_command`.

    Args:
        count: Number of processes.
        arguments: Arguments of the command.

    Returns:
        The exit status.
    """
    return subprocess.run([*launch_command(count), "-m", "sgoif.bench", *arguments]).returncode


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


def own_rows(rows: Tensor) -> Tensor:
    """Return this process's rows of a minibatch [B, ...], as `Batches` deals them: every n-th of n processes."""
    return rows[rank() :: size()] if active() else rows


def gather_batch(rows: Tensor) -> Tensor:
    """Put the rows that all processes have of a minibatch together, the inverse of `own_rows`.

    Args:
        rows: This process's rows, shape [B / processes, ...]; no gradient flows through.

    Returns:
        The rows of the whole minibatch in order, shape [B, ...].
    """
    if not active():
        return rows
    gathered = [torch.empty_like(rows) for _ in range(size())]
    dist.all_gather(gathered, rows.detach().contiguous())
    return torch.stack(gathered, 1).flatten(0, 1)


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
