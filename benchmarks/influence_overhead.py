"""What watching costs: watched against plain training of a ResNet-9 in one process, memory against K, time against
post-hoc scores.

    python benchmarks/influence_overhead.py [--out overhead.json]

Synthetic images (50,000 x 3 x 32 x 32) on the device, batch 512, bf16 autocast, channels last. Plain and watched
epochs alternate, so that clocks and caches treat them alike; the ratio is of medians. Post-hoc references
(kronfluence self-influence with EK-FAC, captum's TracInCPFast) score the same training images with one checkpoint
where those packages import; else they are left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from sgoif import InfluenceConfig, OnlineInfluence

CLASSES, BATCH = 10, 512


def block(inputs: int, outputs: int, pool: bool = False) -> nn.Sequential:
    layers = [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, *([nn.MaxPool2d(2)] if pool else []))


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(block(width, width), block(width, width))

    def forward(self, x):
        return x + self.inner(x)


def resnet9(classes: int = CLASSES) -> nn.Sequential:
    return nn.Sequential(
        block(3, 64), block(64, 128, pool=True), Residual(128), block(128, 256, pool=True), block(256, 512,
        pool=True), Residual(512), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(512, classes),
    )  # fmt: skip


class Bench:
    """One model, one optimiser, synthetic data on the device."""

    def __init__(self, device: torch.device, n_examples: int, classes: int = CLASSES) -> None:
        torch.manual_seed(0)
        self.device, self.n = device, n_examples
        self.images = torch.randn(n_examples, 3, 32, 32, device=device).to(memory_format=torch.channels_last)
        self.labels = torch.randint(classes, (n_examples,), device=device)
        self.model = resnet9(classes).to(device, memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def epoch(self, influence: OnlineInfluence | None, steps: int) -> float:
        """Seconds of `steps` training steps."""
        order = torch.randperm(self.n, device=self.device)[: steps * BATCH]
        self.wait()
        start = time.perf_counter()
        for index in order.split(BATCH):
            labels = self.labels[index]
            self.optimizer.zero_grad(set_to_none=True)
            with influence.watch(index, labels) if influence else nullcontext():
                with torch.autocast(self.device.type, torch.bfloat16):
                    loss = F.cross_entropy(self.model(self.images[index]), labels)
                loss.backward()
            self.optimizer.step()
            if influence:
                influence.step(self.optimizer)
        self.wait()
        return time.perf_counter() - start


def overhead(
    device: torch.device, n: int, steps: int, rounds: int, config: InfluenceConfig, classes: int = CLASSES
) -> dict:
    """Median seconds of plain and watched epochs in turns, their ratio, and the extra peak memory of watching."""
    bench = Bench(device, n, classes)
    plain, watched, peaks = [], [], []
    for turn in range(rounds + 1):
        for kind in ("plain", "watched"):
            influence = None
            if kind == "watched":
                influence = OnlineInfluence(bench.model, n, classes, config)
                bench.epoch(influence, min(steps, 45))  # past the first checks
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            seconds = bench.epoch(influence, steps)
            if device.type == "cuda":
                peaks.append((kind, torch.cuda.max_memory_allocated() / 2**20))
            if influence:
                influence.close()
            if turn:  # the first turn warms up
                (watched if kind == "watched" else plain).append(seconds)
    megabytes = {kind: max((m for k, m in peaks if k == kind), default=0.0) for kind in ("plain", "watched")}
    one, two = statistics.median(plain), statistics.median(watched)
    return {
        "plain_ms_per_step": 1000 * one / steps,
        "watched_ms_per_step": 1000 * two / steps,
        "ratio": two / one,
        "plain_spread": (max(plain) - min(plain)) / one,
        "extra_peak_mb": megabytes["watched"] - megabytes["plain"],
        "added_seconds_per_50000": (two - one) * 50_000 / (steps * BATCH),
    }


def captum_seconds(bench: Bench, count: int) -> float:
    """Self-influence of `count` images by TracInCPFast with one checkpoint."""
    from captum.influence import TracInCPFast

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.pt"
        torch.save(bench.model.state_dict(), path)

        def load(model, file):
            model.load_state_dict(torch.load(file, weights_only=True))
            return 1.0

        data = torch.utils.data.TensorDataset(bench.images[:count], bench.labels[:count])
        scorer = TracInCPFast(
            bench.model.eval(),
            bench.model[-1],
            data,
            [str(path)],
            load,
            nn.CrossEntropyLoss(reduction="sum"),
            batch_size=BATCH,
        )
        bench.wait()
        start = time.perf_counter()
        scorer.self_influence(torch.utils.data.DataLoader(data, BATCH), outer_loop_by_checkpoints=True)
        bench.wait()
    return time.perf_counter() - start


def kronfluence_seconds(bench: Bench, count: int) -> float:
    """EK-FAC factors and self-influence of `count` images, last layer only."""
    from kronfluence.analyzer import Analyzer, prepare_model
    from kronfluence.task import Task
    from kronfluence.utils.dataset import DataLoaderKwargs

    class Classification(Task):
        def compute_train_loss(self, batch, model, sample=False):
            logits = model(batch[0])
            labels = torch.distributions.Categorical(logits=logits.detach()).sample() if sample else batch[1]
            return F.cross_entropy(logits, labels, reduction="sum")

        def compute_measurement(self, batch, model):
            return self.compute_train_loss(batch, model)

        def get_influence_tracked_modules(self):
            return [f"{len(bench.model) - 1}"]

    task = Classification()
    data = torch.utils.data.TensorDataset(bench.images[:count].cpu(), bench.labels[:count].cpu())
    with tempfile.TemporaryDirectory() as folder:
        analyzer = Analyzer(
            "bench", prepare_model(bench.model.eval(), task), task, output_dir=folder, disable_tqdm=True
        )
        analyzer.set_dataloader_kwargs(DataLoaderKwargs())
        start = time.perf_counter()
        analyzer.fit_all_factors("factors", data, per_device_batch_size=BATCH)
        analyzer.compute_self_scores("scores", "factors", data, per_device_train_batch_size=BATCH)
        bench.wait()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--examples", type=int, default=50_000)
    parser.add_argument("--steps", type=int, default=97)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", help="names of the settings to run, e.g. head all; left out = every one")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = torch.device(options.device)
    torch.backends.cudnn.benchmark = True
    report: dict = {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
    }
    settings = {
        "head": (InfluenceConfig(), CLASSES),
        "all": (InfluenceConfig(scope="all"), CLASSES),
        "head, 100 classes": (InfluenceConfig(), 100),
        **{f"head, K={k}": (InfluenceConfig(anchors=k), CLASSES) for k in (10, 50, 100)},
    }
    for name, (config, classes) in settings.items():
        if options.only and name not in options.only:
            continue
        report[name] = overhead(device, options.examples, options.steps, options.rounds, config, classes)
        print(name, json.dumps(report[name]), flush=True)
    bench = Bench(device, options.examples)
    for name, measure in (("captum TracInCPFast", captum_seconds), ("kronfluence self-influence", kronfluence_seconds)):
        if options.only and name not in options.only:
            continue
        try:
            report[name] = {"seconds": measure(bench, options.examples), "examples": options.examples}
        except ImportError as error:
            report[name] = {"left_out": str(error)}
        print(name, json.dumps(report[name]), flush=True)
    if options.out:
        options.out.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
