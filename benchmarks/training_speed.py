"""How fast the training engine is, and what SG-OIF adds: ResNet-9 on CIFAR-10 by the recipe of configs/cifar.yaml.

    python -m benchmarks.training_speed [--repeats 3] [--out speed.json]

Needs a GPU and the prepared CIFAR-10 (data/cifar10: any job of configs/cifar.yaml makes it). Variants alternate in one
process, so that clocks and caches treat them alike: the ordinary step, the step as a CUDA graph, with a compiled
backbone, and the graph with SG-OIF watching. Prints seconds (median), test accuracy and the ratios.
"""

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path

import torch

from baselines.noisy.sgoif import SGOIF
from sgoif import InfluenceConfig, OnlineInfluence
from sgoif.bench import config as configuration
from sgoif.bench.contracts import NoisyTask
from sgoif.bench.data import load, registry
from sgoif.bench.errors import UserError
from sgoif.bench.images import ImageSet
from sgoif.bench.recipe import Recipe
from sgoif.bench.session import Session

VARIANTS = {  # name -> (changes to the recipe, watched by SG-OIF)
    "ordinary": ({"graph": False}, False),
    "ordinary, watched": ({"graph": False}, True),
    "graph": ({"graph": True}, False),
    "graph, watched": ({"graph": True}, True),
    "graph, compiled": ({"graph": True, "compile": True}, False),
}


def train(task: NoisyTask, watched: bool) -> tuple[float, torch.nn.Module]:
    """Seconds of training alone, and the network."""
    batches = task.batches()
    learner = task.learner(batches)
    influence = None
    if watched:
        total = learner.total_steps
        influence = OnlineInfluence(learner.net, len(task.train), task.n_classes, InfluenceConfig(), total_steps=total)
    step = SGOIF._head_step(learner, influence) if watched else learner.plain_stepper()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for epoch in range(task.recipe.epochs):
        for batch in batches.epoch(epoch):
            step(batch)
            if watched:
                influence.step(learner.optimizer)
        if watched:
            influence.end_epoch()
    torch.cuda.synchronize()
    return time.perf_counter() - start, learner.net


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--out", type=Path)
    arguments = arguments.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("error: this measures a GPU, and torch sees none here")
    config = configuration.load("configs/cifar.yaml")
    root, facts = Path(config["data"]["root"]), registry.get("cifar10")
    recipe = Recipe.from_dict(config["noisy"]["cifar10"]["recipe"])
    try:
        train_set, test_set = (
            ImageSet(load.images(root, "cifar10", part), facts.mean, facts.std, "cuda") for part in ("train", "test")
        )
    except UserError as e:
        raise SystemExit(f"error: {e}") from None
    labels = {part: torch.from_numpy(load.labels(root, "cifar10", part)).cuda() for part in ("train", "test")}
    torch.backends.cudnn.benchmark = True
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in VARIANTS}
    for repeat in range(arguments.repeats + 1):  # the first round warms up: algorithms, compilation
        for name, (changes, watched) in VARIANTS.items():
            session = Session(None, name, repeat, "cuda")
            task = NoisyTask(train_set, labels["train"], test_set, 10, repeat, replace(recipe, **changes), session)
            seconds, net = train(task, watched)
            accuracy = (task.predict(net, test_set)[0].argmax(1) == labels["test"]).float().mean().item()
            if repeat:
                found[name].append((seconds, accuracy))
                print(f"{name:20s} {seconds:7.2f} s   {100 * accuracy:.2f}%", flush=True)
    medians = {name: statistics.median(s for s, _ in runs) for name, runs in found.items()}
    for kind in ("ordinary", "graph"):
        print(f"SG-OIF, {kind} step: {medians[kind + ', watched'] / medians[kind]:.3f}x plain training")
    if arguments.out:
        facts = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "runs": found, "median": medians}
        arguments.out.write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
