"""How fast the training engine is beside two usual loops: seconds of an epoch of ResNet-9 on CIFAR-10.

    python -m benchmarks.training_speed [--rounds 2] [--epochs 3] [--out training_speed.json]

The engine (compiled and captured, captured, ordinary) against a DataLoader of PIL images with torchvision's transforms
and against timm's loader, optimiser and schedule. All train the same network with batch 512, bf16 autocast,
channels-last memory, SGD with Nesterov momentum, random crops and flips; the loops use as many workers as there are
cores. They take turns in one process; the first epoch of each run warms up and does not count.
"""

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.common import Bench, parser, plain, run_command
from sgoif.training.models import build_network
from sgoif.training.seeds import seeded_weights


def torchvision_loop(bench: Bench) -> tuple[nn.Module, list[float]]:
    """A map-style dataset of PIL images, torchvision's transforms in worker processes, pinned memory, OneCycleLR."""
    from torchvision import transforms

    change = [transforms.ToTensor(), transforms.Normalize(bench.train.mean, bench.train.std)]
    data = pictures(bench, transforms.Compose([*augmentation(), *change]))
    loader = torch.utils.data.DataLoader(
        data,
        bench.recipe.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=bench.options.workers,
        pin_memory=bench.device.type == "cuda",
        persistent_workers=bench.options.workers > 0,
    )
    r, net = bench.recipe, network(bench)
    optimizer = torch.optim.SGD(net.parameters(), r.lr, r.momentum, weight_decay=r.weight_decay, nesterov=True)
    total = bench.options.epochs * len(loader)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, r.lr, total, pct_start=r.warmup)
    return net, run(bench, net, loader, optimizer, lambda _: schedule.step())


def timm_loop(bench: Bench) -> tuple[nn.Module, list[float]]:
    """timm's loader with its prefetcher (bytes are collated; a side stream copies and normalises), its SGD and cosine
    schedule. Its augmentation is replaced by the crops and flips of the others, which are cheaper."""
    from timm.data import create_loader
    from timm.optim import create_optimizer_v2
    from timm.scheduler import create_scheduler_v2
    from torchvision import transforms

    loader = create_loader(
        pictures(bench, None),
        input_size=(3, 32, 32),
        batch_size=bench.recipe.batch_size,
        is_training=True,
        mean=bench.train.mean,
        std=bench.train.std,
        num_workers=bench.options.workers,
        pin_memory=bench.device.type == "cuda",
        device=bench.device,
    )
    loader.dataset.transform = transforms.Compose([*augmentation(), transforms.PILToTensor()])
    r, net, epochs = bench.recipe, network(bench), bench.options.epochs
    optimizer = create_optimizer_v2(net, opt="sgd", lr=r.lr, weight_decay=r.weight_decay, momentum=r.momentum)
    schedule, _ = create_scheduler_v2(
        optimizer, "cosine", num_epochs=epochs, step_on_epochs=False, updates_per_epoch=len(loader)
    )
    return net, run(bench, net, loader, optimizer, schedule.step_update)


def run(
    bench: Bench, net: nn.Module, loader: Iterable, optimizer: torch.optim.Optimizer, pace: Callable[[int], object]
) -> list[float]:
    """Seconds of each epoch of an ordinary training loop; `pace(updates so far)` moves the learning rate."""
    cuda = bench.device.type == "cuda"
    laps, updates = [], 0
    for _ in range(bench.options.epochs):
        wait(cuda)
        start = time.perf_counter()
        for x, y in loader:
            x = x.to(bench.device, memory_format=torch.channels_last, non_blocking=True)
            y = y.to(bench.device, non_blocking=True)
            with torch.autocast("cuda", torch.bfloat16) if cuda else contextlib.nullcontext():
                loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            updates += 1
            pace(updates)
        wait(cuda)
        laps.append(time.perf_counter() - start)
    return laps


def wait(cuda: bool) -> None:
    if cuda:
        torch.cuda.synchronize()


def network(bench: Bench) -> nn.Module:
    with seeded_weights(0):
        net = build_network(bench.recipe.model, 10, 3, 32)
    return net.to(bench.device, memory_format=torch.channels_last)


def augmentation() -> list:
    from torchvision import transforms

    return [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()]


def pictures(bench: Bench, transform: Callable | None):
    """The training images as torchvision's own CIFAR10 hands them out: one PIL image at a time."""
    from PIL import Image
    from torchvision.datasets import VisionDataset

    class Pictures(VisionDataset):
        def __init__(self):
            super().__init__(root=None, transform=transform)
            self.data, self.targets = bench.train.pixels.cpu().numpy(), bench.labels.tolist()

        def __len__(self):
            return len(self.data)

        def __getitem__(self, index):
            image = Image.fromarray(self.data[index])
            return self.transform(image), self.targets[index]

    return Pictures()


RUNS = {  # name -> changes to the recipe of the engine, or a loop; in the order of importance
    "engine, compiled graph": {"graph": True, "compile": True},
    "torchvision loop": torchvision_loop,
    "timm loop": timm_loop,
    "engine, graph": {"graph": True, "compile": False},
    "engine, ordinary": {"graph": False, "compile": False},
}


def main(arguments: list[str] | None = None) -> None:
    options = parser(__doc__, limit=60)
    options.add_argument("--rounds", type=int, default=2)
    options.add_argument("--epochs", type=int, default=3, help="epochs of a run; the first one does not count")
    options.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    bench = Bench("training_speed", options.parse_args(arguments))
    found: dict[str, list[dict]] = {name: [] for name in RUNS}
    for _ in range(bench.options.rounds):
        for name, how in RUNS.items():
            runs = found[name]
            needed = bench.options.epochs * max(runs[-1]["epochs"]) if runs else 0.0
            if bench.left() < needed:
                continue
            if callable(how):
                net, laps = how(bench)
            else:
                task = bench.task(epochs=bench.options.epochs, **how)
                net, laps = plain(task).net, task.session.laps["train"]
            runs.append({"first_epoch": laps[0], "epochs": laps[1:], "accuracy": bench.accuracy(net)})
            bench.report(f"{name}, {len(runs)}", runs[-1], "runs")
    if not found["engine, compiled graph"]:
        raise SystemExit(f"error: --limit {bench.options.limit:g} leaves no time for a single run")
    seconds = {
        name: statistics.median(s for run in runs for s in run["epochs"]) for name, runs in found.items() if runs
    }
    bench.report("epoch_seconds", seconds)
    best = seconds["engine, compiled graph"]
    bench.report("times_the_compiled_engine", {name: s / best for name, s in seconds.items()})


if __name__ == "__main__":
    run_command(main)
