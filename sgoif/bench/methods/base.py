"""The two contracts every method keeps, and what a method is given and gives back.

Noisy labels: **higher score = more suspicious label.**   OOD: **higher score = more out-of-distribution.**

A method is a class in `baselines/<task>/<name>.py` whose `name` is the file's stem. Its hyper-parameters are the frozen
dataclass `Params`, with the paper's values as defaults and checks that name the field.
"""

from dataclasses import dataclass, field, fields, replace
from typing import ClassVar

import numpy as np
from torch import Tensor

from sgoif.bench.methods.plain_run import PlainRun
from sgoif.errors import UserError
from sgoif.training.images import Batches, ImageSource, mix_seed
from sgoif.training.learner import Learner, predict
from sgoif.training.recipe import Recipe
from sgoif.training.session import Session


@dataclass
class NoisyTask:
    """What a noisy-label method may see. No true training label, no test label is among it."""

    train: ImageSource
    labels: Tensor  # [N] given (possibly wrong) labels, on the device
    test: ImageSource  # images alone; their labels belong to the evaluation
    n_classes: int
    seed: int
    recipe: Recipe
    session: Session
    plain: PlainRun | None = None  # for methods with reads_plain
    trusted: tuple[ImageSource, Tensor] | None = None  # a few images with clean labels, for methods with uses_trusted
    folds: np.ndarray | None = None  # [N, K] out-of-fold probabilities, for methods with reads_folds

    def batches(self, indices=None, seed: int | None = None, batch_size: int | None = None, **kw) -> Batches:
        """Training minibatches with the recipe's augmentation."""
        r = self.recipe
        seed = self.seed if seed is None else seed
        options = {"shift": r.shift, "flip": r.flip, **kw}
        return Batches(self.train, self.labels, batch_size or r.batch_size, seed, indices, **options)

    def learner(self, batches: Batches, seed: int | None = None, epochs: int | None = None, **changes) -> Learner:
        """A fresh network for the recipe (with `changes` to it)."""
        recipe = replace(self.recipe, **changes) if changes else self.recipe
        return Learner.for_batches(recipe, self.n_classes, batches, self.seed if seed is None else seed, epochs)

    def predict(self, net, images: ImageSource | None = None, indices=None, features: bool = False):
        """Logits [n, K] and features [n, d] or None, on the training images unless others are given."""
        images = self.train if images is None else images
        return predict(net, images, indices, precision=self.recipe.precision, features=features)


@dataclass
class Detection:
    """What a noisy-label method gives back. Arrays follow the order of the training set."""

    scores: np.ndarray  # [N] higher = more suspicious
    test_logits: np.ndarray | None = None  # [M, K] of the model a robust trainer yields
    remove: np.ndarray | None = None  # [N] bool: a detector's own removal rule; the harness retrains without these
    epoch_scores: np.ndarray | None = None  # [E, N] scores epoch by epoch
    traces: dict[str, np.ndarray] = field(default_factory=dict)  # what happened on the way, [T] each, for figures
    variants: dict[str, np.ndarray] = field(default_factory=dict)  # other scores of the same method, [N] each
    extras: dict[str, float] = field(default_factory=dict)  # numbers worth a column: coverage, HVPs per step, …
    curves: dict[str, list[float]] = field(default_factory=dict)  # per-epoch numbers for the tracking UI


@dataclass
class OODTask:
    """What an OOD method may see: labelled ID training data, ID validation data, perhaps auxiliary images."""

    train: ImageSource
    labels: Tensor  # [N]
    val: ImageSource
    val_labels: Tensor
    n_classes: int
    seed: int
    recipe: Recipe
    session: Session
    plain: PlainRun | None = None
    auxiliary: ImageSource | None = None  # unlabelled, disjoint from every test OOD set

    batches = NoisyTask.batches
    learner = NoisyTask.learner

    def predict(self, net, images: ImageSource | None = None, indices=None, features: bool = False):
        """Logits [n, K] and features [n, d] or None in float32 (OOD scores are sensitive to rounding)."""
        return predict(net, self.train if images is None else images, indices, features=features)


class Method:
    """Common part of the two contracts."""

    name: ClassVar[str]
    title: ClassVar[str]
    reads_plain: ClassVar[bool] = False  # post-processes the shared plain run instead of training
    distributes: ClassVar[bool] = False  # gives the same answer when several processes each see a share of every batch

    @dataclass(frozen=True)
    class Params:
        pass

    def __init__(self, **params):
        known = {f.name for f in fields(self.Params)}
        for key in params:
            if key not in known:
                there = ", ".join(sorted(known)) or "none"
                raise UserError(f"params.{self.name}.{key}: no such hyper-parameter; there are: {there}")
        self.params = self.Params(**params)

    def need(self, ok: bool, key: str, what: str) -> None:
        """Hyper-parameter check: names the field and the value."""
        if not ok:
            raise UserError(f"params.{self.name}.{key}: {what}, not {getattr(self.params, key)!r}")


class NoisyLabelDetector(Method):
    uses_trusted: ClassVar[bool] = False
    reads_folds: ClassVar[bool] = False  # needs out-of-fold probabilities; the folds are trained once for all who do

    def detect(self, task: NoisyTask) -> Detection:
        raise NotImplementedError


class OODDetector(Method):
    reads_plain: ClassVar[bool] = True
    uses_auxiliary: ClassVar[bool] = False

    def fit(self, task: OODTask) -> None:
        """Train or fit; keeps what `score` needs. The default keeps the plain run's network as `self.net`."""
        self.task, self.net = task, task.plain.network()

    def score(self, images: ImageSource) -> Tensor:
        """[n] higher = more OOD."""
        raise NotImplementedError

    def logits(self, images: ImageSource) -> Tensor:
        """[n, K] class logits, for the ID accuracy of what the method yields."""
        return self.task.predict(self.net, images)[0]

    def extras(self) -> dict[str, float]:
        return {}


def train_plainly(
    task: NoisyTask | OODTask,
    indices=None,
    phase: str = "train",
    account: str = "train",
    seed: int | None = None,
    **changes,
):
    """Ordinary training on `indices` for the recipe's number of steps; returns the learner."""
    full = task.batches().steps * task.recipe.epochs
    batches = task.batches(indices, seed=seed)
    epochs = max(round(full / batches.steps), 1)  # the same number of steps, however few examples are left
    learner = task.learner(batches, seed=seed, epochs=epochs, **changes)
    step = learner.plain_stepper()
    for epoch in task.session.epochs(epochs, learner, phase=phase, account=account):
        for batch in batches.epoch(epoch):
            step(batch)
    return learner


def seeded(*parts) -> np.random.Generator:
    """A numpy generator that is a function of `parts` alone."""
    return np.random.default_rng(mix_seed(*parts))
