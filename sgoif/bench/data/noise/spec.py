"""What a noise specification may say. Needs no data, so a configuration is refused before any job starts."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from numbers import Integral, Real

from sgoif.bench.data.catalogue.class_names import CIFAR10
from sgoif.errors import UserError

# Patrini et al. (2017): truck -> automobile, bird -> airplane, deer -> horse, cat <-> dog.
PATRINI = {9: 1, 2: 0, 4: 7, 3: 5, 5: 3}
HUMAN_COLUMNS = {
    10: ("aggre_label", "random_label1", "random_label2", "random_label3", "worse_label"),
    100: ("noisy_label",),
}
KEYS = {  # kind -> keys that must be there, keys that may be there
    "clean": ((), ()),
    "class_conditional": (("noise",), ("sparsity", "seed")),
    "symmetric": (("rate",), ("seed",)),
    "asymmetric": (("rate", "map"), ("seed",)),
    "superclass": (("rate",), ("seed",)),
    "human": (("column",), ()),
    "collected": ((), ()),
}


def check_spec(
    spec: Mapping,
    n_classes: int,
    *,
    classes: Sequence[str] | None = None,
    superclasses: Sequence[int] | None = None,
    where: str = "noise",
) -> None:
    """Raises UserError, naming the key as `where.key`, unless `spec` can be applied to `n_classes` classes."""
    if not isinstance(spec, Mapping):
        raise UserError(f"{where}: expected keys and values, got {spec!r}")
    kind = spec.get("kind")
    if kind not in KEYS:
        raise UserError(f"{where}.kind: {kind!r} is not a kind of noise; {_nearest(kind, KEYS)}")
    needed, optional = KEYS[kind]
    for key in spec:
        if key not in ("kind", *needed, *optional):
            raise UserError(f"{where}.{key}: unknown for {kind} noise; {_nearest(key, (*needed, *optional))}")
    for key in needed:
        if key not in spec:
            raise UserError(f"{where}.{key}: missing; {kind} noise needs it")
    seed = spec.get("seed", 0)
    if not isinstance(seed, Integral) or isinstance(seed, bool) or not 0 <= seed < 2**32:
        raise UserError(f"{where}.seed: expected a whole number from 0 to 2^32 - 1, got {seed!r}")
    if kind != "clean" and n_classes < 2:
        raise UserError(f"{where}.kind: {kind} noise needs two classes or more, the dataset has {n_classes}")
    if kind == "class_conditional":
        _check_class_conditional(spec, n_classes, where)
    elif kind == "human":
        _check_human(spec, n_classes, where)
    elif kind not in ("clean", "collected"):
        _number(spec, "rate", where, 0, 1)
        if kind == "asymmetric" and spec["map"] == "cifar10" and classes is not None and tuple(classes) != CIFAR10:
            raise UserError(f"{where}.map: 'cifar10' is for CIFAR-10's classes only; use 'next' or give the map")
        if kind != "symmetric":
            class_map(spec, n_classes, superclasses, where)


def class_map(
    spec: Mapping, n_classes: int, superclasses: Sequence[int] | None = None, where: str = "noise"
) -> dict[int, int]:
    """{true class: the class it is mistaken for} of asymmetric and superclass noise (empty for clean labels)."""
    if spec["kind"] == "clean":
        return {}
    if spec["kind"] == "superclass":
        return _next_in_superclass(n_classes, superclasses, where)
    wanted = spec["map"]
    if wanted == "cifar10":
        if n_classes != 10:
            raise UserError(f"{where}.map: 'cifar10' is for 10 classes, the dataset has {n_classes}; use 'next'")
        return dict(PATRINI)
    if wanted == "next":
        return {y: (y + 1) % n_classes for y in range(n_classes)}
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
    following = {}
    for group in set(superclasses):
        members = [y for y in range(n_classes) if superclasses[y] == group]
        if len(members) > 1:
            following |= dict(zip(members, members[1:] + members[:1], strict=True))
    return dict(sorted(following.items()))


def _check_class_conditional(spec: Mapping, k: int, where: str) -> None:
    noise = _number(spec, "noise", where, 0, 1, open_ends=True)
    sparsity = _number({"sparsity": 0.0, **spec}, "sparsity", where, 0, 1)
    most = 0.5 if k == 2 else (k - 2) / (k - 1)
    if sparsity > most + 1e-12:
        raise UserError(
            f"{where}.sparsity: {sparsity} leaves a noisy class no wrong label to flip to; "
            f"at most {most:.4g} for {k} classes"
        )
    if 1 - noise < 1e-4:
        raise UserError(f"{where}.noise: {noise} gives a trace of {k * (1 - noise):.3g}; at most 0.9999")
    if k == 2 and sparsity >= 0.5 and noise > 0.5:
        raise UserError(f"{where}.noise: {noise} with two classes, one of them without noise; at most 0.5")


def _check_human(spec: Mapping, k: int, where: str) -> None:
    if k not in HUMAN_COLUMNS:
        raise UserError(f"{where}.kind: human labels exist for cifar10 and cifar100, not for a dataset of {k} classes")
    if spec["column"] not in HUMAN_COLUMNS[k]:
        raise UserError(f"{where}.column: no {spec['column']!r}; {_nearest(spec['column'], HUMAN_COLUMNS[k])}")


def _number(spec: Mapping, key: str, where: str, low: float, high: float, open_ends: bool = False) -> float:
    value = spec[key]
    if not isinstance(value, Real) or isinstance(value, bool) or not low <= value <= high:
        raise UserError(f"{where}.{key}: expected a number from {low} to {high}, got {value!r}")
    if open_ends and value in (low, high):
        raise UserError(f"{where}.{key}: {value!r} must lie strictly between {low} and {high}")
    return float(value)


def _nearest(wrong: object, known: Sequence[str] | Mapping) -> str:
    close = difflib.get_close_matches(str(wrong), list(known), n=3, cutoff=0.4)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"known: {', '.join(known)}" if known else "it takes no keys"
