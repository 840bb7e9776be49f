"""Check noise specifications without any data, so that a configuration is refused before any job starts.

`KINDS` lists the kinds of noise: the keys of each and the function that checks their values. `noise/corrupt.py`
explains what the kinds do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from sgoif.bench.data.catalogue.class_names import CIFAR10
from sgoif.bench.data.noise.label_file import ENDINGS
from sgoif.errors import UserError
from sgoif.utils.suggest import suggest

# Patrini et al. (2017): truck -> automobile, bird -> airplane, deer -> horse, cat <-> dog.
PATRINI_MAP = {9: 1, 2: 0, 4: 7, 3: 5, 5: 3}
HUMAN_COLUMNS = {  # number of classes -> columns of the human label file
    10: ("aggre_label", "random_label1", "random_label2", "random_label3", "worse_label"),
    100: ("noisy_label",),
}
# Share of wrong labels, counted in the files that are released with CIFAR-10N and CIFAR-100N (UCSC-REAL/cifar-10-100n).
# Table 1 of the paper (Wei et al., ICLR 2022) has the same numbers, but 9.03% for the aggregate.
HUMAN_RATES = {
    "aggre_label": 0.0901, "random_label1": 0.1723, "random_label2": 0.1812, "random_label3": 0.1764,
    "worse_label": 0.4021, "noisy_label": 0.4020,
}  # fmt: skip
PUBLISHED_RATES = (0.01, 0.05, 0.25, 0.5)  # shares of wrong labels that are published with Imagenette
MAX_CLASS_CONDITIONAL_NOISE = 0.9999


@dataclass(frozen=True)
class LabelSpace:
    """The classes a specification is checked against, and where in the configuration it stands."""

    n_classes: int
    classes: Sequence[str] | None
    superclasses: Sequence[int] | None
    where: str


@dataclass(frozen=True)
class NoiseKind:
    """One kind of noise: its keys besides `kind`, and the function that checks their values."""

    required: tuple[str, ...]
    optional: tuple[str, ...]
    check: Callable[[Mapping[str, Any], LabelSpace], None]


def check_spec(
    spec: Mapping[str, Any],
    n_classes: int,
    *,
    classes: Sequence[str] | None = None,
    superclasses: Sequence[int] | None = None,
    where: str = "noise",
) -> None:
    """Check that a noise specification can be applied to labels of `n_classes` classes.

    Args:
        spec: Noise specification.
        n_classes: Number of classes K.
        classes: Names of the classes, if known, length K.
        superclasses: Superclass of each class, if it has one, length K.
        where: Path of the specification in the configuration, for messages.

    Raises:
        UserError: If it cannot be applied; the message names the key as `where.key`.
    """
    if not isinstance(spec, Mapping):
        raise UserError(f"{where}: expected keys and values, got {spec!r}")
    name = spec.get("kind")
    if name not in KINDS:
        raise UserError(f"{where}.kind: {name!r} is not a kind of noise; {suggest(name, KINDS)}")
    kind = KINDS[name]
    _check_keys(spec, kind, where)
    _check_seed(spec.get("seed", 0), where)
    if name != "clean" and n_classes < 2:
        raise UserError(f"{where}.kind: {name} noise needs two classes or more, the dataset has {n_classes}")
    kind.check(spec, LabelSpace(n_classes, classes, superclasses, where))


def known_rate(spec: Mapping[str, Any], n_classes: int, superclasses: Sequence[int] | None = None) -> float | None:
    """Return the share of wrong labels that a specification stands for, for classes of equal size.

    Returns:
        None for labels as they were collected or brought, whose rate nobody knows.
    """
    kind = spec["kind"]
    if kind == "clean":
        return 0.0
    if kind in ("collected", "file"):
        return None
    if kind == "human":
        return HUMAN_RATES[spec["column"]]
    if kind == "class_conditional":
        return float(spec["noise"])
    if kind == "published":
        return float(spec["rate"])
    share = len(class_map(spec, n_classes, superclasses)) / n_classes if kind == "asymmetric" else 1.0
    return float(spec["rate"]) * share


def is_symmetric(spec: Mapping[str, Any]) -> bool:
    """Say whether wrong labels go to all other classes alike, or may: class-conditional noise of sparsity 0."""
    return spec["kind"] in ("symmetric", "published") or (
        spec["kind"] == "class_conditional" and not spec.get("sparsity")
    )


def label_column(spec: Mapping[str, Any]) -> str:
    """Return which column of the label file of a dataset human or published noise stands for."""
    return str(spec["column"]) if spec["kind"] == "human" else f"noisy_labels_{100 * spec['rate']:.0f}"


def class_map(
    spec: Mapping[str, Any], n_classes: int, superclasses: Sequence[int] | None = None, where: str = "noise"
) -> dict[int, int]:
    """Return {true class: the class it is mistaken for} of asymmetric and superclass noise; empty for clean labels.

    Args:
        spec: Noise specification.
        n_classes: Number of classes K.
        superclasses: Superclass of each class, length K; needed by superclass noise.
        where: Path of the specification in the configuration, for messages.

    Raises:
        UserError: If the map does not fit the classes.
    """
    if spec["kind"] == "clean":
        return {}
    if spec["kind"] == "superclass":
        return _next_in_superclass(n_classes, superclasses, where)
    wanted = spec["map"]
    if wanted == "cifar10":
        if n_classes != 10:
            raise UserError(f"{where}.map: 'cifar10' is for 10 classes, the dataset has {n_classes}; use 'next'")
        return dict(PATRINI_MAP)
    if wanted == "next":
        return {y: (y + 1) % n_classes for y in range(n_classes)}
    return _listed_map(wanted, n_classes, where)


def _listed_map(wanted: Any, n_classes: int, where: str) -> dict[int, int]:
    """Return the map of asymmetric noise that lists its pairs of classes."""
    if not isinstance(wanted, Mapping) or not wanted:
        raise UserError(f"{where}.map: expected 'cifar10', 'next' or pairs of classes (from: to), got {wanted!r}")
    try:
        pairs = {int(source): int(target) for source, target in wanted.items()}
    except (TypeError, ValueError):
        raise UserError(f"{where}.map: classes are whole numbers, got {dict(wanted)!r}") from None
    for source, target in pairs.items():
        if source == target or not (0 <= source < n_classes and 0 <= target < n_classes):
            raise UserError(f"{where}.map: {source} -> {target} needs two different classes of 0 .. {n_classes - 1}")
    return pairs


def _next_in_superclass(n_classes: int, superclasses: Sequence[int] | None, where: str) -> dict[int, int]:
    if superclasses is None:
        raise UserError(f"{where}.kind: superclass noise needs a dataset with superclasses, such as cifar100")
    if len(superclasses) != n_classes:
        raise UserError(f"{where}.kind: {len(superclasses)} superclass entries for {n_classes} classes")
    following: dict[int, int] = {}
    for group in set(superclasses):
        members = [y for y in range(n_classes) if superclasses[y] == group]
        if len(members) > 1:
            following |= dict(zip(members, members[1:] + members[:1], strict=True))
    return dict(sorted(following.items()))


# ------------------------------------------------------------------------------------------------ one checker a kind


def _check_nothing(spec: Mapping[str, Any], labels: LabelSpace) -> None:
    """Accept a kind that has no keys."""


def _check_class_conditional(spec: Mapping[str, Any], labels: LabelSpace) -> None:
    k, where = labels.n_classes, labels.where
    noise = _check_number(spec["noise"], f"{where}.noise")
    if noise in (0, 1):
        raise UserError(f"{where}.noise: {spec['noise']!r} must lie strictly between 0 and 1")
    sparsity = _check_number(spec.get("sparsity", 0.0), f"{where}.sparsity")
    max_sparsity = 0.5 if k == 2 else (k - 2) / (k - 1)
    if sparsity > max_sparsity + 1e-12:
        raise UserError(
            f"{where}.sparsity: {sparsity} leaves a noisy class no wrong label to flip to; "
            f"at most {max_sparsity:.4g} for {k} classes"
        )
    if 1 - noise < 1e-4:
        trace = k * (1 - noise)
        raise UserError(f"{where}.noise: {noise} gives a trace of {trace:.3g}; at most {MAX_CLASS_CONDITIONAL_NOISE}")
    if k == 2 and sparsity >= 0.5 and noise > 0.5:
        raise UserError(f"{where}.noise: {noise} with two classes, one of them without noise; at most 0.5")


def _check_symmetric(spec: Mapping[str, Any], labels: LabelSpace) -> None:
    _check_number(spec["rate"], f"{labels.where}.rate")


def _check_asymmetric(spec: Mapping[str, Any], labels: LabelSpace) -> None:
    _check_number(spec["rate"], f"{labels.where}.rate")
    if spec["map"] == "cifar10" and labels.classes is not None and tuple(labels.classes) != CIFAR10:
        raise UserError(f"{labels.where}.map: 'cifar10' is for CIFAR-10's classes only; use 'next' or give the map")
    class_map(spec, labels.n_classes, labels.superclasses, labels.where)


def _check_superclass(spec: Mapping[str, Any], labels: LabelSpace) -> None:
    _check_number(spec["rate"], f"{labels.where}.rate")
    class_map(spec, labels.n_classes, labels.superclasses, labels.where)


def _check_human(spec: Mapping[str, Any], labels: LabelSpace) -> None:
    k, where, column = labels.n_classes, labels.where, spec["column"]
    if k not in HUMAN_COLUMNS:
        raise UserError(f"{where}.kind: human labels exist for cifar10 and cifar100, not for a dataset of {k} classes")
    if column not in HUMAN_COLUMNS[k]:
        raise UserError(f"{where}.column: no {column!r}; {suggest(column, HUMAN_COLUMNS[k])}")


def _check_published(spec: Mapping[str, Any], labels: LabelSpace) -> None:
    if spec["rate"] not in PUBLISHED_RATES:
        known = ", ".join(f"{rate:g}" for rate in PUBLISHED_RATES)
        raise UserError(f"{labels.where}.rate: labels are published with {known} of them wrong, not {spec['rate']!r}")


def _check_file(spec: Mapping[str, Any], labels: LabelSpace) -> None:
    path, pinned = spec["path"], spec.get("sha256")
    if not isinstance(path, str) or not path.endswith(ENDINGS):
        raise UserError(f"{labels.where}.path: expected the name of a file that ends in .csv or .npy, got {path!r}")
    if pinned is not None and not re.fullmatch("[0-9a-f]{64}", str(pinned)):
        raise UserError(f"{labels.where}.sha256: expected 64 hexadecimal digits, got {pinned!r}")


KINDS = {
    "clean": NoiseKind((), (), _check_nothing),
    "class_conditional": NoiseKind(("noise",), ("sparsity", "seed"), _check_class_conditional),
    "symmetric": NoiseKind(("rate",), ("seed",), _check_symmetric),
    "asymmetric": NoiseKind(("rate", "map"), ("seed",), _check_asymmetric),
    "superclass": NoiseKind(("rate",), ("seed",), _check_superclass),
    "human": NoiseKind(("column",), (), _check_human),
    "published": NoiseKind(("rate",), (), _check_published),
    "collected": NoiseKind((), (), _check_nothing),
    "file": NoiseKind(("path",), ("sha256",), _check_file),
}


# ------------------------------------------------------------------------------------------------ keys and values


def _check_keys(spec: Mapping[str, Any], kind: NoiseKind, where: str) -> None:
    """Check that a specification has the keys of its kind, and no other."""
    known = (*kind.required, *kind.optional)
    for key in spec:
        if key != "kind" and key not in known:
            hint = suggest(key, known) if known else "it takes no keys"
            raise UserError(f"{where}.{key}: unknown for {spec['kind']} noise; {hint}")
    for key in kind.required:
        if key not in spec:
            raise UserError(f"{where}.{key}: missing; {spec['kind']} noise needs it")


def _check_seed(seed: Any, where: str) -> None:
    if not isinstance(seed, Integral) or isinstance(seed, bool) or not 0 <= int(seed) < 2**32:
        raise UserError(f"{where}.seed: expected a whole number from 0 to 2^32 - 1, got {seed!r}")


def _check_number(value: Any, where: str) -> float:
    """Return a value as a float, after checking that it is a number from 0 to 1."""
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) <= 1:
        raise UserError(f"{where}: expected a number from 0 to 1, got {value!r}")
    return float(value)
