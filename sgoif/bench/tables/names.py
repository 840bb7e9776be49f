"""Titles of methods as printed, and the groups and the order in which they stand in tables.

Both are declared in the classes of the methods; only the order of the groups is kept here. A group that is not in the
list comes after those that are, and methods that declare none come last, under "Others".
"""

from __future__ import annotations

from collections.abc import Sequence

from sgoif.bench.methods import registry
from sgoif.bench.methods.declaration import OTHERS, RowDeclaration

REFERENCE = "Reference"  # heading of plain training and of rows that are not methods
GROUPS = {
    "noisy": (
        "Methods of the paper",
        "Later robust trainers",
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
SHARED_TITLES = {registry.PLAIN: "plain training"}


def row(task: str, method: str) -> RowDeclaration:
    """Return how a method is shown.

    Args:
        task: `noisy`, `tuning` or `ood`.
        method: The method, perhaps with a variant.

    Returns:
        The declaration of the method's class; for names it does not cover (variants without a row of their own,
        methods that this checkout does not have) a row among the others under the name itself.
    """
    kind, (name, variant) = registry.task_kind(task), registry.split_variant(method)
    declared = registry.declaration(kind, name).row(variant) if name in registry.available(kind) else None
    return declared or RowDeclaration(SHARED_TITLES.get(method, method))


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
