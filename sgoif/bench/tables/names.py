"""Titles of methods as printed, and the groups and the order in which they stand in tables.

Both are declared in the classes of the methods; only the order of the groups is kept here. A group that is not in the
list comes after those that are, and methods that declare none come last, under "Others".
"""

from __future__ import annotations

from collections.abc import Sequence

from sgoif.bench.data.catalogue.ood_sets import STAND_IN_SETS
from sgoif.bench.methods import registry
from sgoif.bench.methods.declaration import FOLDS, OTHERS, RowDeclaration

REFERENCE = "Reference"  # heading of plain training and of rows that are not methods
GROUPS = {
    "noisy": (
        "Methods of the paper",
        "Later robust trainers",
        "Told the noise rate",
        "Given all clean labels that were set aside",
        "Free detectors",
    ),
    "ood": (  # the paper's five groups; two of its names are wrong for most of their methods
        "Anomaly detection",
        "Energy and gradient",
        "Features",
        "Generative (so called)",
        "Augmentation (so called)",
        "Post hoc, not in the paper",
        "Trained, not in the paper",
        "Ours",
        "Free baseline",
    ),
}
SHARED_TITLES = {registry.PLAIN: "plain training", FOLDS: "cross-validation, shared"}
VARIANT_WORDS = {  # what a variant changes, where its name alone does not say it
    "kfac_alone": "the K-FAC inverse alone",
    "paper_no_gate": "the paper's score, without the gate",
    "paper_kfac_alone": "the paper's score, the K-FAC inverse alone",
    "paper_deep": "the paper's score, all layers",
    "paper_deep_no_gate": "the paper's score, all layers, without the gate",
    "paper_deep_kfac_alone": "the paper's score, all layers, the K-FAC inverse alone",
    "identity": "H = I",
    "no_gate": "without the gate",
    "moving_average": "moving-average gate",
    "no_sketch": "without the sketch",
    "no_calibration": "without calibration",
    "no_temperature": "without temperature",
    "no_lowrank": "without the low rank",
    "no_preconditioning": "without preconditioning",
    "no_trigger": "without triggers",
    "trigger": "with triggers",
    "all_trusted": "all clean labels",
    "fisher": "empirical Fisher",
}
SET_TITLES = {  # short names of OOD sets; STAND_IN_MARK follows where a set replaces an official one
    "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "MNIST": "MNIST", "FashionMNIST": "Fashion-MNIST",
    "KMNIST": "KMNIST", "svhn": "SVHN", "svhn10k_recropped": "SVHN", "dtd": "DTD", "dtd10": "DTD",
    "tinyimagenet": "Tiny ImageNet", "tinyimagenet9k": "Tiny ImageNet", "notmnist10k": "notMNIST",
    "places365": "Places365", "scenes3k": "scenes", "digits_near": "digits 8, 9",
    "photo_patches": "photo patches",
}  # fmt: skip
STAND_IN_MARK = "*"


def row(task: str, method: str) -> RowDeclaration:
    """Return how a method is shown.

    Args:
        task: `noisy`, `tuning` or `ood`.
        method: The method, perhaps with a variant.

    Returns:
        The declaration of the method's class; for names it does not cover (variants without a row of their own,
        methods that this checkout does not have) a row among the others, titled by the method and what is changed.
    """
    kind, (name, variant) = registry.task_kind(task), registry.split_variant(method)
    own = registry.declaration(kind, name) if name in registry.available(kind) else None
    declared = own.row(variant) if own else None
    if declared:
        return declared
    base = own.title if own else SHARED_TITLES.get(name, name)
    return RowDeclaration(f"{base} ({VARIANT_WORDS.get(variant, variant.replace('_', ' '))})" if variant else base)


def set_title(name: str) -> str:
    """Return the short name of an OOD set, with `STAND_IN_MARK` where it replaces an official one."""
    is_stand_in = any(dataset.name == name for dataset in STAND_IN_SETS)
    return SET_TITLES.get(name, name) + (STAND_IN_MARK if is_stand_in else "")


def title(task: str, method: str) -> str:
    """Return the name of a method as printed in tables."""
    return row(task, method).title


def is_ranked(task: str, method: str) -> bool:
    """Tell whether a method competes for the best of a column; some are shown beside the others only."""
    return row(task, method).ranked


def grouped(task: str, methods: Sequence[str]) -> list[tuple[str, str]]:
    """Return (group, method) of the rows of a table, in their order.

    Args:
        task: `noisy`, `tuning` or `ood`.
        methods: The methods of the table. Among equals their order is kept.
    """
    declared = {m: row(task, m) for m in methods}
    new_headings = [r.group for r in declared.values() if r.group != OTHERS]
    headings = [*dict.fromkeys([*GROUPS[registry.task_kind(task)], *new_headings]), OTHERS]
    ordered = sorted(declared, key=lambda m: (headings.index(declared[m].group), declared[m].order))
    return [(declared[m].group, m) for m in ordered]
