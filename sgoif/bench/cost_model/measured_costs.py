"""What runs have cost where they were measured, and how that is scaled to runs that were not.

Measured: `results/published/costs.json` and the plain runs of every published run that used a GPU. Seconds of jobs that
shared one make no ratios. Scaled:

    training   seconds = measured * (images * epochs * FLOPs) / (those of the measured run); same network and image size
               first, alone on a GPU before shared, else the nearest by FLOPs
    method     (own seconds / plain training) as measured, + (retraining / plain training) where it retrains,
               + (seconds per test image / seconds per training image) * test images; GPU runs first, else CPU runs
    writing    logits of the training images: one forward pass each time, a third of a training pass
    streaming  not faster than the job's threads decode: images / (images per core second * threads)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sgoif.bench.config import load_config
from sgoif.bench.data import catalogue
from sgoif.bench.evaluation.overhead import SHARED_GPU
from sgoif.bench.methods import registry
from sgoif.errors import UserError
from sgoif.training.recipe import Recipe
from sgoif.utils.files import read_json
from sgoif.utils.paths import ROOT

PUBLISHED = ROOT / "results" / "published"


@dataclass(frozen=True)
class Shape:
    """A network on images: what one pass costs, and how large things are."""

    model: str
    size: int
    channels: int
    classes: int

    @cached_property
    def _network(self):
        import torch

        from sgoif.training.models import build_network

        with torch.device("meta"):  # shapes alone: nothing is allocated or computed
            return build_network(self.model, self.classes, self.channels, self.size).eval()

    @cached_property
    def flops(self) -> float:
        """Of one image passed forward."""
        import torch
        from torch.utils.flop_counter import FlopCounterMode

        counter = FlopCounterMode(display=False)
        with counter, torch.no_grad():
            self._network(torch.empty(1, self.channels, self.size, self.size, device="meta"))
        return float(counter.get_total_flops())

    @cached_property
    def parameters(self) -> int:
        return sum(p.numel() for p in self._network.state_dict().values())

    @cached_property
    def width(self) -> int:
        return self._network.head.in_features


@dataclass(frozen=True)
class Measured:
    """One measured training."""

    shape: Shape
    images: int
    epochs: int
    seconds: float
    hardware: str
    source: str
    shared: bool = False  # with other jobs on the GPU: more than it takes alone

    @property
    def seconds_per_image(self) -> float:
        return self.seconds / (self.images * self.epochs)


@dataclass(frozen=True)
class Ratio:
    """What a method costs: its answer (own) and training again on cleaned labels (again) in plain trainings, a test
    image (score) in training images."""

    own: float
    again: float
    score: float
    on: str  # GPU or CPU


class Costs:
    """Everything measured, ready to be scaled."""

    def __init__(self, trainings: Iterable[Measured], ratios: Mapping[tuple[str, str], Ratio], decoding: float):
        self.trainings, self.ratios, self.decoding = list(trainings), dict(ratios), decoding
        if not self.trainings:
            raise UserError("no measured training to scale from; see results/published/costs.json")

    def training(self, shape: Shape, images: int, epochs: int) -> tuple[float, Measured, bool]:
        """(seconds of plain training, what it was scaled from, whether network and image size were measured)."""
        same = [m for m in self.trainings if (m.shape.model, m.shape.size) == (shape.model, shape.size)]
        nearest = min(same or self.trainings, key=lambda m: (m.shared, abs(m.shape.flops / shape.flops - 1)))
        seconds = nearest.seconds_per_image * images * epochs * (shape.flops / nearest.shape.flops)
        return seconds, nearest, bool(same)

    def ratio(self, kind: str, method: str) -> Ratio | None:
        """Of the method, or of the one it is a variant of."""
        return self.ratios.get((kind, method)) or self.ratios.get((kind, registry.split_variant(method)[0]))


def measured(published: Path = PUBLISHED, configs: Path = ROOT / "configs") -> Costs:
    """The costs in a folder of published results."""
    known = read_json(published / "costs.json")
    trainings = [
        Measured(
            Shape(t["model"], t["size"], t["channels"], t.get("classes", 10)),
            t["images"], t["epochs"], t["seconds"], f"{t['hardware']}, {t['date']}", t["source"],
        )
        for t in known["training"]
    ]  # fmt: skip
    ratios: dict[tuple[str, str], Ratio] = {}
    for run in sorted(published.glob("*/summary.json"), key=lambda p: _on_gpu(p.parent)):  # GPU runs last: they count
        config = load_config(configs / f"{run.parent.name}.yaml", skip_missing=False)
        panels = list(_panels(read_json(run), config))
        on = "GPU" if _on_gpu(run.parent) else "CPU"
        ratios |= _ratios(panels, on)
        if on == "GPU":
            hardware = "; ".join(read_json(run.parent / "provenance.json")["hardware"])
            trainings += [p.training(hardware, run) for p in panels]
    return Costs(trainings, ratios, known["decoding"]["images_per_core_second"])


def _on_gpu(folder: Path) -> bool:
    return any("gpu" in h for h in read_json(folder / "provenance.json")["hardware"])


@dataclass
class Panel:
    """One dataset and setting of a published run: seconds by method and account."""

    task: str
    shape: Shape
    images: int
    epochs: int
    seconds: dict[str, dict[str, float]]
    shared: set[str]  # methods whose jobs shared a GPU

    @property
    def plain(self) -> float:
        return self.seconds[registry.PLAIN]["seconds_train"]

    def training(self, hardware: str, run: Path) -> Measured:
        shared = registry.PLAIN in self.shared
        source = f"{run.parent.name}/{run.name}" + (", several jobs on the GPU" if shared else "")
        return Measured(self.shape, self.images, self.epochs, self.plain, hardware, source, shared)


def _panels(records: list[dict[str, Any]], config: Mapping) -> Iterable[Panel]:
    tasks = {r["table"]: r["layout"]["task"] for r in records if r["metric"] == "layout"}
    found: dict[tuple, dict] = defaultdict(lambda: defaultdict(dict))
    for r in records:
        if r["metric"].startswith("seconds_") and not r.get("variant") and r.get("mean") is not None:
            found[tasks[r["table"]], r["dataset"], r["setting"]][r["method"]][r["metric"]] = r["mean"]
    shared = defaultdict(set)
    for r in records:
        if r.get("reason") == SHARED_GPU:
            shared[tasks[r["table"]], r["dataset"], r["setting"]].add(r["method"])
    for (task, dataset, setting), seconds in found.items():
        if seconds.get(registry.PLAIN, {}).get("seconds_train") and dataset in config[task]:
            recipe = Recipe.from_dict(config[task][dataset]["recipe"])
            images, crowd = catalogue.get(dataset).parts["train"], shared[task, dataset, setting]
            yield Panel(task, shape_of(dataset, recipe), images, recipe.epochs, seconds, crowd)


def shape_of(dataset: str, recipe: Recipe) -> Shape:
    d = catalogue.get(dataset)
    return Shape(recipe.model, d.image_size, d.channels, d.n_classes)


def _ratios(panels: Iterable[Panel], on: str) -> dict[tuple[str, str], Ratio]:
    """Means over panels. `seconds_own` is the overhead's numerator: it has neither retraining nor test scoring."""
    own, again, score = defaultdict(list), defaultdict(list), defaultdict(list)
    for p in panels:
        per_image = p.plain / (p.images * p.epochs)
        for method, seconds in p.seconds.items():
            if method != registry.PLAIN and "seconds_own" in seconds and not {registry.PLAIN, method} & p.shared:
                own[p.task, method].append(seconds["seconds_own"] / p.plain)
                again[p.task, method].append(seconds.get("seconds_retrain", 0.0) / p.plain)
                score[p.task, method].append(seconds.get("seconds_per_image", 0.0) / per_image)
    return {k: Ratio(*(sum(column[k]) / len(v) for column in (own, again, score)), on) for k, v in own.items()}
