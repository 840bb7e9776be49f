"""What the benchmarks share: CIFAR-10 as prepared, the recipe of configs/cifar.yaml, a clock, and the report.

Every script prints its figures as they come and writes them, with machine, versions, date and parameters, to `--out`
after each: what was measured before a run is stopped is kept.
"""

import argparse
import contextlib
import datetime
import gc
import json
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn

from baselines.noisy.sgoif import SGOIF
from sgoif import InfluenceResult, OnlineInfluence
from sgoif.bench.config import load_config
from sgoif.bench.data import catalogue, load
from sgoif.bench.execution.environment import environment
from sgoif.bench.methods.plain_training import train_plainly
from sgoif.bench.methods.tasks import NoisyTask
from sgoif.errors import UserError
from sgoif.training.images import ImageSet
from sgoif.training.learner import Learner
from sgoif.training.predict import predict
from sgoif.training.recipe import Recipe
from sgoif.training.session import Session

ROOT = Path(__file__).resolve().parents[1]


def parser(doc: str, limit: float) -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(description=doc.splitlines()[0])
    arguments.add_argument("--data", type=Path, default=Path("data"), help="folder of prepared datasets, with cifar10/")
    arguments.add_argument("--examples", type=int, default=50_000, help="training images: the first so many")
    arguments.add_argument("--model", default="resnet9")
    arguments.add_argument("--batch", type=int, default=512)
    arguments.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments.add_argument("--limit", type=float, default=limit, help="seconds after which nothing new is begun")
    arguments.add_argument("--out", type=Path, help="JSON file for the figures")
    return arguments


def run_command(main: Callable[[], object]) -> None:
    """Run a benchmark as a command: a mistake of the user is one line, with exit status 2."""
    try:
        main()
    except UserError as e:
        print(f"error: {e}", file=sys.stderr)
        raise SystemExit(2) from None


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder that is removed at the end; after an error it stays, because the message names logs in it."""
    folder = Path(tempfile.mkdtemp())
    yield folder
    shutil.rmtree(folder)


class TimeUp(BaseException):
    """Not an Exception: a package that tries again after errors must not swallow it."""


class Laps(Session):
    """A session in memory that keeps the seconds of every timed stretch (an epoch, a reading), not only their sums.

    Attributes:
        check: Called before each stretch; it may raise `TimeUp`.
        laps: Seconds of each stretch by timer.
    """

    def __init__(self, device: torch.device, check: Callable[[], None]):
        super().__init__(None, "benchmark", 0, device)
        self.check = check
        self.laps: dict[str, list[float]] = defaultdict(list)

    @contextlib.contextmanager
    def timer(self, name: str) -> Iterator[None]:
        self.check()
        before = self.timers.seconds.get(name, 0.0)
        with super().timer(name):
            yield
        self.laps[name].append(self.timers.seconds[name] - before)

    def progress(self, *_, **__) -> None:
        pass


class Report:
    """The figures of a benchmark so far, printed as they come and written to `--out`.

    Attributes:
        figures: The figures by name.
        extra: What is written beside the options under `parameters`.
    """

    def __init__(self, name: str, options: argparse.Namespace):
        self.name, self.options, self.start = name, options, time.perf_counter()
        self.figures: dict[str, Any] = {}
        self.extra: dict[str, Any] = {}

    def report(self, name: str, figures: Any, group: str | None = None) -> None:
        """Print figures and write the report with all figures so far.

        Args:
            name: Name of the figures.
            figures: Numbers, or a nested dict of them.
            group: Heading under which they are filed, or None.
        """
        (self.figures if group is None else self.figures.setdefault(group, {}))[name] = figures
        where = name if group is None else f"{group}, {name}"
        print(f"[{time.perf_counter() - self.start:6.1f} s] {where}: {json.dumps(rounded(figures))}", flush=True)
        if self.options.out:
            options = {k: str(v) if isinstance(v, Path) else v for k, v in vars(self.options).items() if k != "out"}
            write_report(self.options.out, self.name, {**options, **self.extra}, self.figures)


class Bench(Report):
    """The data on the device, the recipe, the time that is left, and the figures so far."""

    def __init__(self, name: str, options: argparse.Namespace):
        super().__init__(name, options)
        self.device = torch.device(options.device)
        self.deadline = float("inf")
        config = load_config(ROOT / "configs" / "cifar.yaml")
        recipe = Recipe.from_dict(config["noisy"]["cifar10"]["recipe"])
        self.recipe = replace(recipe, model=options.model, batch_size=options.batch)
        self.extra = {"recipe": asdict(self.recipe)}
        if self.device.type == "cuda":  # as jobs of the workflow have it
            torch.set_num_threads(config["execution"]["threads"])
            torch.backends.cuda.matmul.allow_tf32 = True
            torch.backends.cudnn.allow_tf32 = True
            torch.backends.cudnn.benchmark = True
        facts = catalogue.get("cifar10")
        try:
            pixels = {part: load.images(options.data, "cifar10", part) for part in ("train", "test")}
            labels = {part: load.true_labels(options.data, "cifar10", part) for part in ("train", "test")}
        except UserError as e:
            raise SystemExit(f"error: {e}") from None
        n = options.examples
        self.train = ImageSet(pixels["train"][:n], facts.mean, facts.std, self.device)
        self.test = ImageSet(pixels["test"][:n], facts.mean, facts.std, self.device)
        self.labels = torch.from_numpy(labels["train"][:n]).to(self.device)
        self.test_labels = torch.from_numpy(labels["test"][:n]).to(self.device)

    def left(self) -> float:
        """Return the seconds left of `--limit`."""
        return self.options.limit - (time.perf_counter() - self.start)

    @contextlib.contextmanager
    def at_most(self, seconds: float) -> Iterator[None]:
        """Make `check` raise `TimeUp` inside a `with` block after so many seconds.

        It is called before every epoch or batch. A signal would be sooner, but its exception may be raised in a
        destructor or an import, where it gets lost.
        """
        self.deadline = time.perf_counter() + seconds
        try:
            yield
        finally:
            self.deadline = float("inf")

    def check(self) -> None:
        """Raise `TimeUp` if the time of `at_most` is over."""
        if time.perf_counter() > self.deadline:
            raise TimeUp

    def task(self, n: int | None = None, **changes) -> NoisyTask:
        """Make a task on the first `n` images with changed fields of the recipe; its session is a `Laps`."""
        gc.collect()  # graphs of earlier networks
        train = self.train if n is None else self.train.subset(torch.arange(min(n, len(self.train))))
        recipe = replace(self.recipe, **changes)
        return NoisyTask(
            train=train,
            labels=self.labels[: len(train)],
            test=self.test,
            n_classes=10,
            seed=0,
            recipe=recipe,
            session=Laps(self.device, self.check),
        )

    def accuracy(self, net: nn.Module) -> float:
        """Return the accuracy on the test images."""
        return (predict(net, self.test)[0].argmax(1) == self.test_labels).float().mean().item()


def write_report(path: Path, name: str, parameters: dict[str, Any], figures: Any) -> None:
    """Write what was measured, with the date, the machine, the versions and the commit.

    Args:
        path: The file, JSON.
        name: Name of the benchmark.
        parameters: What it was measured with.
        figures: Numbers, or a nested dict of them.
    """
    content = {
        "name": name,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **environment(),
        "parameters": parameters,
        "figures": rounded(figures),
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


def rounded(value: Any) -> Any:
    """Round numbers to four decimals: microseconds are noise here."""
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return round(value, 4) if isinstance(value, float) else value


def plain(task: NoisyTask) -> Learner:
    """Ordinary training. Timers of the task's session: `train`, a lap an epoch, and `rest`, building the network."""
    with task.session.timer("rest"):
        return train_plainly(task)


def watched(task: NoisyTask, **params) -> None:
    """The detector that the benchmark runs, watching the same training. Further timers: `read`, the scores, and
    `estimate`, how many labels are wrong; whatever else it does is `rest`."""
    session = task.session
    with (
        _timed_method(session, "read", OnlineInfluence, "scores"),
        _timed_method(session, "estimate", InfluenceResult, "find_label_issues"),
        session.timer("rest"),
    ):
        SGOIF(**params).detect(task)


def _timed_method(session: Laps, timer: str, owner: Any, name: str):
    """`owner.name` is measured under a timer of its own."""
    function = getattr(owner, name)

    def timed(*args, **kw):
        with session.timer(timer):
            return function(*args, **kw)

    return mock.patch.object(owner, name, timed)


def turns(bench: Bench, rounds: int, params: dict, n: int | None = None, **changes) -> tuple[dict, nn.Module]:
    """Plain and watched runs in turns: the sessions of each kind, and the last plain network.

    `params` are SG-OIF's, `changes` the recipe's. After the first pair none is begun that would overrun the limit.
    """
    found, net = {"plain": [], "watched": []}, None
    for number in range(rounds):
        start = time.perf_counter()
        for kind in ("plain", "watched") if number % 2 == 0 else ("watched", "plain"):
            task = bench.task(n, **changes)
            if kind == "plain":
                net = plain(task).net
            else:
                watched(task, **params)
            found[kind].append(task.session)
        if bench.left() < time.perf_counter() - start:
            break
    return found, net
