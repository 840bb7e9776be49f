"""Reads what published runs have cost, and scales that to runs that were not measured.

Measured: `results/published/costs.json`, the published runs, and the plain runs of those that used a GPU. Seconds of
jobs that shared a GPU make no ratios; what methods cost alone on one, in runs that are not published any more, is in
that file. Scaled:

    training   seconds = measured * (images * epochs * FLOPs) / (those of the measured run); same network and image size
               first, alone on a GPU before shared, else the nearest by FLOPs; of equals the fastest, which had
               the fewest jobs beside it
    method     (own seconds / plain training) as measured, + (retraining / plain training) where it retrains,
               + (seconds per test image / seconds per training image) * test images; GPU runs first, else CPU runs
    writing    logits of the training images: one forward pass each time, a third of a training pass
    streaming  not faster than the job's threads decode: images / (images per core second * threads)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sgoif.bench.config import load_config
from sgoif.bench.data import catalogue
from sgoif.bench.evaluation.overhead import SHARED_GPU
from sgoif.bench.evaluation.summary_record import PUBLISHED_SUMMARY, read_published_summary
from sgoif.bench.methods import registry
from sgoif.errors import UserError
from sgoif.training.recipe import Recipe
from sgoif.utils.files import read_json
from sgoif.utils.paths import ROOT

PUBLISHED = ROOT / "results" / "published"


@dataclass(frozen=True)
class NetworkShape:
    """A network and its images, from which the cost of a pass and the sizes of files are computed.

    Attributes:
        model: Name of the network.
        size: Height and width of an image.
        channels: Channels of an image.
        classes: Number of classes.
    """

    model: str
    size: int
    channels: int
    classes: int

    @property
    def flops(self) -> float:
        """FLOPs of one forward pass of one image."""
        return _flops(self)

    @property
    def parameters(self) -> int:
        """Number of parameters and buffers."""
        return sum(p.numel() for p in _network(self).state_dict().values())

    @property
    def width(self) -> int:
        """Number of features before the classification layer."""
        return int(_network(self).head.in_features)


@cache  # by shape: a hundred measured trainings have a few networks
def _network(shape: NetworkShape) -> Any:
    import torch

    from sgoif.training.models import build_network

    with torch.device("meta"):  # shapes alone: nothing is allocated or computed
        return build_network(shape.model, shape.classes, shape.channels, shape.size).eval()


@cache
def _flops(shape: NetworkShape) -> float:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        _network(shape)(torch.empty(1, shape.channels, shape.size, shape.size, device="meta"))
    return float(counter.get_total_flops())


@dataclass(frozen=True)
class MeasuredTraining:
    """One measured training.

    Attributes:
        shape: Network and images.
        images: Number of training images.
        epochs: Number of epochs.
        seconds: Seconds of the whole training.
        hardware: What it ran on.
        source: Where it was published.
        shared: Whether other jobs ran on the same GPU; then it took longer than alone.
    """

    shape: NetworkShape
    images: int
    epochs: int
    seconds: float
    hardware: str
    source: str
    shared: bool = False

    @property
    def seconds_per_image(self) -> float:
        """Seconds of one training pass of one image."""
        return self.seconds / (self.images * self.epochs)


@dataclass(frozen=True)
class MethodCost:
    """What a method costs, relative to plain training.

    Attributes:
        own: Its own computation, in plain trainings.
        again: Training again on cleaned labels, in plain trainings.
        score: Scoring a test image, in training passes of an image.
        on: "GPU" or "CPU".
    """

    own: float
    again: float
    score: float
    on: str


class MeasuredCosts:
    """All measured costs, and how they are scaled.

    Args:
        trainings: Measured trainings.
        methods: (task kind, method) -> what it costs.
        decoding: Images that one core decodes per second.

    Raises:
        UserError: If there is no measured training.
    """

    def __init__(
        self, trainings: Iterable[MeasuredTraining], methods: Mapping[tuple[str, str], MethodCost], decoding: float
    ):
        self.trainings = list(trainings)
        self.methods = dict(methods)
        self.decoding = decoding
        if not self.trainings:
            raise UserError("no measured training to scale from; see results/published/costs.json")

    def training(self, shape: NetworkShape, images: int, epochs: int) -> tuple[float, MeasuredTraining, bool]:
        """Estimate a plain training.

        Returns:
            Its seconds, the training they are scaled from, and whether network and image size were measured.
        """
        same = [m for m in self.trainings if (m.shape.model, m.shape.size) == (shape.model, shape.size)]

        def distance(m: MeasuredTraining) -> tuple[bool, float, float]:
            return m.shared, abs(m.shape.flops / shape.flops - 1), m.seconds_per_image

        nearest = min(same or self.trainings, key=distance)
        seconds = nearest.seconds_per_image * images * epochs * (shape.flops / nearest.shape.flops)
        return seconds, nearest, bool(same)

    def method(self, kind: str, name: str) -> MethodCost | None:
        """Return what a method costs, or the one it is a variant of; None if neither was measured."""
        return self.methods.get((kind, name)) or self.methods.get((kind, registry.split_variant(name)[0]))


def load_costs(published: Path = PUBLISHED, configs: Path = ROOT / "configs") -> MeasuredCosts:
    """Read the costs of all published runs.

    Args:
        published: Folder of published results, with costs.json.
        configs: Folder of the configurations of these runs.
    """
    known = read_json(published / "costs.json")
    trainings = [
        MeasuredTraining(
            NetworkShape(t["model"], t["size"], t["channels"], t.get("classes", 10)),
            t["images"], t["epochs"], t["seconds"], f"{t['hardware']}, {t['date']}", t["source"],
        )
        for t in known["training"]
    ]  # fmt: skip
    methods: dict[str, dict[tuple[str, str], MethodCost]] = {"CPU": {}, "GPU": {}}
    for task, costs in known.get("methods", {}).items():
        if task in ("noisy", "ood"):
            methods["GPU"] |= {(task, m): MethodCost(c["own"], c["again"], 0.0, "GPU") for m, c in costs.items()}
    for run in sorted(published.glob(f"*/{PUBLISHED_SUMMARY}")):
        config = load_config(configs / f"{run.parent.name}.yaml", skip_missing=False)
        panels = list(published_panels(read_published_summary(run), config))
        on = "GPU" if _on_gpu(run.parent) else "CPU"
        methods[on] |= method_costs(panels, on)
        if on == "GPU":
            hardware = "; ".join(read_json(run.parent / "provenance.json")["hardware"])
            trainings += [p.training(hardware, run) for p in panels]
    together = methods["CPU"] | methods["GPU"]  # what was measured on a GPU counts
    return MeasuredCosts(trainings, together, known["decoding"]["images_per_core_second"])


def _on_gpu(folder: Path) -> bool:
    return any("gpu" in h for h in read_json(folder / "provenance.json")["hardware"])


@dataclass
class PublishedPanel:
    """One dataset and setting of a published run.

    Attributes:
        task: "noisy" or "ood".
        shape: Network and images.
        images: Number of training images.
        epochs: Number of epochs.
        seconds: Method -> metric -> seconds.
        shared: Methods whose jobs shared a GPU.
    """

    task: str
    shape: NetworkShape
    images: int
    epochs: int
    seconds: Mapping[str, Mapping[str, float]]
    shared: set[str]

    @property
    def plain(self) -> float:
        """Seconds of plain training."""
        return self.seconds[registry.PLAIN]["seconds_train"]

    def training(self, hardware: str, run: Path) -> MeasuredTraining:
        """Return its plain training as a measured training."""
        shared = registry.PLAIN in self.shared
        source = f"{run.parent.name}/{run.name}" + (", several jobs on the GPU" if shared else "")
        return MeasuredTraining(self.shape, self.images, self.epochs, self.plain, hardware, source, shared)


def published_panels(records: Sequence[Mapping[str, Any]], config: Mapping[str, Any]) -> Iterator[PublishedPanel]:
    """Yield the panels of a published summary that have a plain training."""
    tasks = {r["table"]: r["layout"]["task"] for r in records if r["metric"] == "layout"}
    found: dict[tuple[str, str, str], dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    shared: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for r in records:
        if r["metric"].startswith("seconds_") and not r.get("variant") and r.get("mean") is not None:
            found[tasks[r["table"]], r["dataset"], r["setting"]][r["method"]][r["metric"]] = r["mean"]
        if r.get("reason") == SHARED_GPU:
            shared[tasks[r["table"]], r["dataset"], r["setting"]].add(r["method"])
    for (task, dataset, setting), seconds in found.items():
        if seconds.get(registry.PLAIN, {}).get("seconds_train") and dataset in config[task]:
            recipe = Recipe.from_dict(config[task][dataset]["recipe"])
            images = catalogue.get(dataset).parts["train"]
            sharing = shared[task, dataset, setting]
            yield PublishedPanel(task, network_shape(dataset, recipe), images, recipe.epochs, seconds, sharing)


def network_shape(dataset: str, recipe: Recipe) -> NetworkShape:
    """Return the network of a recipe and the images of a dataset."""
    d = catalogue.get(dataset)
    return NetworkShape(recipe.model, d.image_size, d.channels, d.n_classes)


def method_costs(panels: Iterable[PublishedPanel], on: str) -> dict[tuple[str, str], MethodCost]:
    """Average the costs of methods over panels.

    `seconds_own` is the numerator of the overhead: it has neither retraining nor test scoring.

    Args:
        panels: Panels of one run; methods whose jobs shared a GPU are left out.
        on: "GPU" or "CPU".

    Returns:
        (task, method) -> what it costs.
    """
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = defaultdict(list)
    for p in panels:
        per_image = p.plain / (p.images * p.epochs)
        for method, seconds in p.seconds.items():
            if method != registry.PLAIN and "seconds_own" in seconds and not {registry.PLAIN, method} & p.shared:
                own = seconds["seconds_own"] / p.plain
                again = seconds.get("seconds_retrain", 0.0) / p.plain
                score = seconds.get("seconds_per_image", 0.0) / per_image
                found[p.task, method].append((own, again, score))
    costs = {}
    for key, values in found.items():
        own, again, score = (sum(column) / len(values) for column in zip(*values, strict=True))
        costs[key] = MethodCost(own, again, score, on)
    return costs
