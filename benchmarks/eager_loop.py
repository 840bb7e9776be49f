"""What `watch()` costs in an ordinary eager loop: watched over plain training, in turns in one process.

    python -m benchmarks.eager_loop [--networks resnet9 timm:resnet18] [--batches 128 512] [--out eager_loop.json]

Two networks with the same first weights are trained on the same batches, one of them watched as the README shows. A
stretch is as many steps as lie between two checks, or several times as many, so that each holds the same number of
checks; `end_epoch` is called where an epoch ends, and the device has finished when a stretch does. Stretches come in
pairs, plain and watched, and every second pair begins with the watched one. The figure is the median of the pairs'
ratios, with an interval that holds the true median with 95% or more, whatever the distribution. On a GPU the clock is
wall time and training runs under bfloat16 autocast with channels last, as fast loops do. On a CPU it is the time of
this process, which other processes hardly disturb.

Images are patterns of their classes under noise, and a fifth of the labels are wrong: the networks learn, as they
would on real data, and no dataset is needed.
"""

import argparse
import contextlib
import copy
import itertools
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.common import Report, run_command
from sgoif import InfluenceConfig, OnlineInfluence
from sgoif.training.models import build_network

N_CLASSES = 10
WRONG_LABELS = 0.2


@dataclass(frozen=True)
class Shape:
    """The data that a network gets where no option says otherwise."""

    channels: int
    size: int
    examples: int
    batches: tuple[int, ...]


SHAPES = {"tiny_cnn": Shape(1, 8, 1_437, (128,)), "lenet5": Shape(1, 28, 10_000, (128, 256))}  # as configs/ train them
CIFAR = Shape(3, 32, 50_000, (128, 512))


def main(arguments: list[str] | None = None) -> None:
    os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")  # else the first use of each kernel waits until it is loaded
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--networks", nargs="+", help="names of the library or timm:<name>")
    options.add_argument("--batches", type=int, nargs="+", help="batch sizes; left out: those of the network")
    options.add_argument("--examples", type=int, help="training images; left out: those of the network")
    options.add_argument("--pairs", type=int, default=15, help="pairs of a plain and a watched stretch")
    options.add_argument("--stretch", type=float, default=0.5, help="seconds of a stretch at least")
    options.add_argument("--limit", type=float, default=60, help="seconds after which a case begins no new pair")
    options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options.add_argument("--out", type=Path, help="JSON file for the figures")
    report = Report("eager_loop", options.parse_args(arguments))
    measure_all(report)


def measure_all(report: Report) -> None:
    """Measure every network with every batch size, and report each."""
    options = report.options
    on_gpu = torch.device(options.device).type == "cuda"
    if on_gpu:
        torch.backends.cudnn.benchmark = True
    else:
        torch.set_num_threads(1)
    for network in options.networks or (["resnet9", "timm:resnet18"] if on_gpu else ["tiny_cnn", "lenet5"]):
        shape = SHAPES.get(network, CIFAR)
        for batch in options.batches or shape.batches:
            n = options.examples or shape.examples
            loops = Loop.pair(network, shape, n, batch, torch.device(options.device))
            figures = measure(loops, options.pairs, options.stretch, options.limit)
            report.report(f"{network}, batch {batch}", figures)


class Loop:
    """An ordinary training loop, watched or not.

    Args:
        net: The network, trained in place.
        images: Training images, shape [N, C, H, W].
        labels: Their labels, shape [N].
        batch: Examples of a step.
        watched: Whether SG-OIF watches.
    """

    def __init__(self, net: nn.Module, images: Tensor, labels: Tensor, batch: int, watched: bool) -> None:
        self.net, self.images, self.labels, self.batch = net, images, labels, batch
        self.device = images.device
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, nesterov=True, weight_decay=5e-4)
        self.order = torch.Generator(self.device).manual_seed(0)
        self.influence = OnlineInfluence(net, len(labels), N_CLASSES) if watched else None
        self.stream = self.steps()

    @classmethod
    def pair(cls, network: str, shape: Shape, n: int, batch: int, device: torch.device) -> "tuple[Loop, Loop]":
        """Make a plain and a watched loop with the same weights and data."""
        torch.manual_seed(0)
        true_labels = torch.randint(N_CLASSES, (n,))
        patterns = torch.randn(N_CLASSES, shape.channels, shape.size, shape.size)
        images = torch.randn(n, shape.channels, shape.size, shape.size).add_(0.5 * patterns[true_labels]).to(device)
        wrong = torch.rand(n) < WRONG_LABELS
        labels = torch.where(wrong, torch.randint(N_CLASSES, (n,)), true_labels).to(device)
        first = build_network(network, N_CLASSES, shape.channels, shape.size)
        layout = torch.channels_last if device.type == "cuda" else torch.contiguous_format
        images = images.contiguous(memory_format=layout)
        nets = [net.to(device, memory_format=layout) for net in (first, copy.deepcopy(first))]
        return cls(nets[0], images, labels, batch, False), cls(nets[1], images, labels, batch, True)

    def autocast(self) -> contextlib.AbstractContextManager:
        """Return bfloat16 autocast on a GPU."""
        return torch.autocast("cuda", torch.bfloat16, enabled=self.device.type == "cuda")

    def train(self, index: Tensor) -> None:
        """Take one step; the watched and the plain line differ in `watch` and `step` alone."""
        x, y = self.images[index], self.labels[index]
        self.optimizer.zero_grad()
        with contextlib.nullcontext() if self.influence is None else self.influence.watch(index, y):
            with self.autocast():
                loss = F.cross_entropy(self.net(x), y)
            loss.backward()
        self.optimizer.step()
        if self.influence is not None:
            self.influence.step(self.optimizer)

    def steps(self) -> Iterator[None]:
        """Train step by step, without an end."""
        while True:
            order = torch.randperm(len(self.labels), device=self.device, generator=self.order)
            for index in order.split(self.batch):
                yield self.train(index)
            if self.influence is not None:
                self.influence.end_epoch()

    @property
    def steps_of_an_epoch(self) -> int:
        """Return the number of steps that see every image once."""
        return math.ceil(len(self.labels) / self.batch)

    def seconds(self, steps: int) -> float:
        """Return the seconds that some steps take: wall time on a GPU, time of this process on a CPU."""

        def work() -> None:
            for _ in itertools.islice(self.stream, steps):
                pass
            if self.device.type == "cuda":
                torch.cuda.synchronize()

        return timed(time.perf_counter if self.device.type == "cuda" else time.process_time, work)


def timed(clock: Callable[[], float], work: Callable[[], object]) -> float:
    start = clock()
    work()
    return clock() - start


def measure(loops: tuple[Loop, Loop], pairs: int, stretch: float, limit: float) -> dict:
    """Return the ratios of watched to plain stretches, their median and its interval.

    Args:
        loops: The plain and the watched loop.
        pairs: Number of pairs.
        stretch: Seconds of a plain stretch at least.
        limit: Seconds after which no new pair is begun.
    """
    start = time.perf_counter()
    plain, watched = loops
    interval = min(InfluenceConfig().solve_every, plain.steps_of_an_epoch)  # steps between two checks
    for loop in loops:  # chooses algorithms, allocates
        loop.seconds(2 * interval)
    steps = interval * max(1, math.ceil(stretch / min(loop.seconds(interval) for loop in loops)))
    found: list[tuple[float, float]] = []
    while len(found) < pairs and (not found or time.perf_counter() - start < limit):
        if len(found) % 2 == 0:
            found.append((plain.seconds(steps), watched.seconds(steps)))
        else:
            found.append((watched.seconds(steps), plain.seconds(steps))[::-1])
    ratios = [mine / base for base, mine in found]
    low, high = median_interval(ratios)
    return {
        "watching": statistics.median(ratios),
        "low": low,
        "high": high,
        "plain_ms_per_step": 1e3 * statistics.median(base for base, _ in found) / steps,
        "watched_ms_per_step": 1e3 * statistics.median(mine for _, mine in found) / steps,
        "clock": "wall" if plain.device.type == "cuda" else "process",
        "steps_of_a_stretch": steps,
        "seconds": [[base, mine] for base, mine in found],
    }


def median_interval(values: list[float], level: float = 0.95) -> tuple[float, float]:
    """Return order statistics that hold the median with at least `level`, or the extremes where too few values do.

    The number of values below the median is binomial, whatever the distribution.
    """
    ordered, n = sorted(values), len(values)
    left_out, miss = 0, 2 / 2**n  # values left out at each end, probability that the median lies beyond the rest
    while (miss := miss + 2 * math.comb(n, left_out + 1) / 2**n) <= 1 - level:
        left_out += 1
    return ordered[left_out], ordered[n - 1 - left_out]


if __name__ == "__main__":
    run_command(main)
