"""Defines the two classes that a method derives from, `NoisyLabelDetector` and `OODDetector`, and what it gives back.

Noisy labels: **higher score = more suspicious label.**   OOD: **higher score = more out-of-distribution.**

A method is a class in `baselines/<task>/<name>.py` whose `name` is the file's. It declares what it is called and what
it reads as class attributes. Its hyper-parameters are the frozen dataclass `Params`, with the paper's values as
defaults and checks that name the field. What it may see is in `sgoif.bench.methods.tasks`.

Shapes: N training images, M test images, K classes, E epochs.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from sgoif.bench.methods.tasks import NoisyTask, OODTask
from sgoif.errors import UserError, wrong_type
from sgoif.training.images import ImageSource
from sgoif.training.models import Network
from sgoif.utils.suggest import hint_at_number


@dataclass
class Detection:
    """What a noisy-label method gives back. Arrays follow the order of the training set.

    Attributes:
        scores: Finite, shape [N]; higher = more suspicious label.
        test_logits: Logits on the test images, shape [M, K], of the model that a robust trainer yields.
        remove: The method's own removal rule, bool, shape [N]; the benchmark trains again without these examples.
        class_weights: Weights of the classes in that training, shape [K]; None for equal ones.
        epoch_scores: Scores after each epoch, shape [E, N].
        traces: Quantities recorded during training, shape [T] each, for figures.
        variants: Other scores of the same method, shape [N] each.
        extras: Numbers worth a column, such as coverage or Hessian-vector products per step.
        curves: One number per epoch each, for MLflow.
    """

    scores: np.ndarray
    test_logits: np.ndarray | None = None
    remove: np.ndarray | None = None
    class_weights: np.ndarray | None = None
    epoch_scores: np.ndarray | None = None
    traces: dict[str, np.ndarray] = field(default_factory=dict)
    variants: dict[str, np.ndarray] = field(default_factory=dict)
    extras: dict[str, float] = field(default_factory=dict)
    curves: dict[str, list[float]] = field(default_factory=dict)


class Method:
    """Common part of `NoisyLabelDetector` and `OODDetector`: declarations and hyper-parameters.

    Declarations are class attributes. They are also read from the source without importing the class
    (`sgoif.bench.methods.declaration`), so write them as literals.

    Attributes:
        name: Name in configurations; that of the file.
        title: Name as printed in tables, figures and the report.
        group: Heading of the rows that the method stands among; see `sgoif.bench.tables.names.GROUPS`.
        order: Place within the group, smallest first; methods without one follow in the order of the configuration.
        ranked: False for a method that is shown but neither marked as best nor ranked.
        shown_variants: Variants with a row of their own: {variant: {"title": ..., "group": ..., "order": ...,
            "ranked": ...}}, all but the title optional.
        candidates: Scores that the method was declared with before any of them was evaluated, {name: what it is}; empty
            for a method with one score. One of them ranks, the others are variants of the result.
        ranked_by: The candidate that ranks, chosen on tuning data. A configuration may choose another one with
            `params.<method>.score`.
        parts: Further scores of the result that are shown beside the one that ranks but are no choice, {name: what it
            is}: what the score is made of.
        reads_plain: Reads the shared plain run, `task.plain`, instead of training.
        distributes: Gives the same answer when several processes each see a share of every batch.
        alone_with: Hyper-parameters with which it does not, {name: value}.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    group: ClassVar[str] = "Others"
    order: ClassVar[int] = 1000
    ranked: ClassVar[bool] = True
    shown_variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    candidates: ClassVar[Mapping[str, str]] = {}
    ranked_by: ClassVar[str] = ""
    parts: ClassVar[Mapping[str, str]] = {}
    reads_plain: ClassVar[bool] = False
    distributes: ClassVar[bool] = False
    alone_with: ClassVar[Mapping[str, Any]] = {}

    @dataclass(frozen=True)
    class Params:
        """Hyper-parameters of the method; none unless it declares some."""

    params: Any

    def __init__(self, **params: Any) -> None:
        """Set the hyper-parameters.

        Args:
            **params: Fields of `Params` that differ from their defaults, and `score`, the candidate that ranks.

        Raises:
            UserError: If there is no such hyper-parameter, or its value is out of range.
        """
        self.score_name: str = params.pop("score", self.ranked_by) if self.candidates else ""
        if self.score_name not in (self.candidates or {"": ""}):
            there = ", ".join(self.candidates)
            raise UserError(f"params.{self.name}.score: one of {there}, not {self.score_name!r}")
        known = {f.name for f in fields(self.Params)}
        for key in params:
            if key not in known:
                there = ", ".join(sorted(known)) or "none"
                raise UserError(f"params.{self.name}.{key}: no such hyper-parameter; there are: {there}")
        wrong = wrong_type(self.Params, params)
        if wrong:
            value = params[wrong[0]]
            raise UserError(f"params.{self.name}.{wrong[0]}: {wrong[1]}, not {value!r}{hint_at_number(value)}")
        self.params = self.Params(**params)

    def need(self, ok: bool, key: str, what: str) -> None:
        """Check a hyper-parameter.

        Args:
            ok: Whether its value is allowed.
            key: Field of `Params`.
            what: What it must be, for the message.

        Raises:
            UserError: If not `ok`; the message names the field and its value.
        """
        if not ok:
            raise UserError(f"params.{self.name}.{key}: {what}, not {getattr(self.params, key)!r}")


class NoisyLabelDetector(Method):
    """Base class of methods that find wrong labels: implement `detect`.

    Attributes:
        uses_trusted: Gets `task.trusted`, a few images with clean labels.
        reads_folds: Gets `task.folds`, out-of-fold probabilities; the folds are trained once for all methods.
        told_noise: Gets `task.noise`, rate and pattern of the noise, which a hyper-parameter may ask for.
    """

    uses_trusted: ClassVar[bool] = False
    reads_folds: ClassVar[bool] = False
    told_noise: ClassVar[bool] = False

    def detect(self, task: NoisyTask) -> Detection:
        """Score every training label; higher = more suspicious."""
        raise NotImplementedError

    def detection(self, scores: Mapping[str, np.ndarray], **rest: Any) -> Detection:
        """Make the result of a method with several candidates: one ranks, the others are variants.

        Args:
            scores: The candidates by name, shape [N] each. A candidate that needs what the task lacks may be missing.
            **rest: Further fields of `Detection`. A callable `remove` gets the scores that rank.

        Raises:
            ValueError: If a score was not declared, or the one that ranks is missing.
        """
        undeclared = set(scores) - set(self.candidates)
        if undeclared or self.score_name not in scores:
            raise ValueError(f"{self.name}: scores {sorted(scores)} for candidates {sorted(self.candidates)}")
        ranking = scores[self.score_name]
        if callable(rest.get("remove")):
            rest["remove"] = rest["remove"](ranking)
        variants = {**{k: v for k, v in scores.items() if k != self.score_name}, **rest.pop("variants", {})}
        return Detection(ranking, variants=variants, **rest)


class OODDetector(Method):
    """Base class of methods that find out-of-distribution images: implement `score`, and `fit` where needed.

    A method with several `candidates` implements `scores` instead of `score`.

    Attributes:
        uses_auxiliary: Gets `task.auxiliary`, unlabelled images of other classes.
        sweep: Values of fields of `Params` among which OpenOOD chooses on OOD validation images. With `search: true`
            among its hyper-parameters the method does so, too (`sgoif.bench.methods.ood.search`).
        search: Whether its hyper-parameters are chosen so.
        task: The task, kept by `fit`.
        net: The network that `logits` uses, kept by `fit`.
    """

    reads_plain: ClassVar[bool] = True
    uses_auxiliary: ClassVar[bool] = False
    sweep: ClassVar[Mapping[str, Sequence[Any]]] = {}

    task: OODTask
    net: Network

    def __init__(self, **params: Any) -> None:
        """Set the hyper-parameters.

        Args:
            **params: As of `Method`, and `search` for methods with a `sweep`.

        Raises:
            UserError: If there is no such hyper-parameter, or its value is out of range.
        """
        self.search: bool = params.pop("search", False) if self.sweep else False
        if not isinstance(self.search, bool):
            raise UserError(f"params.{self.name}.search: true or false, not {self.search!r}")
        super().__init__(**params)
        swept = sorted(set(params) & set(self.sweep)) if self.search else []
        if swept:
            raise UserError(f"params.{self.name}.{swept[0]}: it is searched for; leave it out, or `search`")

    def with_params(self, values: Mapping[str, Any]) -> OODDetector:
        """Return the same method, not fitted yet, with other values of some hyper-parameters."""
        other = copy.copy(self)
        other.params = replace(self.params, **values)
        return other

    def fit(self, task: OODTask) -> None:
        """Train or fit, and keep what `score` needs; the default keeps the network of the plain run as `self.net`."""
        assert task.plain is not None, f"{self.name} reads no plain run, so it must train a network itself"
        self.task, self.net = task, task.plain.network()

    def score(self, images: ImageSource) -> Tensor:
        """Score images, shape [n]; higher = more out-of-distribution."""
        if not self.candidates:
            raise NotImplementedError
        return self.scores(images)[self.score_name]

    def scores(self, images: ImageSource) -> dict[str, Tensor]:
        """Score images by every candidate, shape [n] each; a method without candidates has one score, ""."""
        return {"": self.score(images)}

    def logits(self, images: ImageSource) -> Tensor:
        """Return class logits, shape [n, K], from which the ID accuracy is measured."""
        return self.task.predict(self.net, images)[0]

    def extras(self) -> dict[str, float]:
        """Return numbers worth a column of their own."""
        return {}
