"""Decides what is bold: marks the best entry of a column and those that are not significantly worse.

The test itself is in `sgoif.bench.evaluation.significance`; how a mark looks is decided by each format.
"""

from __future__ import annotations

from collections.abc import Mapping

from sgoif.bench.evaluation import significance
from sgoif.bench.evaluation.draws import MIN_DRAWS
from sgoif.bench.tables.model import BEST, CLOSE, Column, Entry, format_number
from sgoif.bench.tables.names import is_ranked


def has_power(best: Entry, other: Entry, n_comparisons: int) -> bool:
    """Tells whether a test between two entries could have found a difference, so that finding none means something.

    Args:
        best: The best entry of a column.
        other: The one that is compared with it.
        n_comparisons: How many entries are compared with the best, for Holm's correction.
    """
    pairs = len(best.pairs.keys() & other.pairs.keys())
    if pairs < MIN_DRAWS or not (best.independent and other.independent):
        return False
    smallest_p = 0.5**pairs if pairs >= significance.SMALLEST_WILCOXON else 0.0
    return n_comparisons * smallest_p <= significance.ALPHA


def mark_best(entries: Mapping[str, Entry], column: Column, task: str = "noisy") -> None:
    """Mark the best entries of a column, and those that are not significantly worse where a test could tell.

    The best is the method with the best mean, and every other whose mean looks the same as printed. Methods that are
    declared unranked do not compete, nor does one that lacks seeds: its mean may be good because the hard seed failed.
    Where that leaves one of several, or such a mean is the best, nothing is marked.

    Args:
        entries: Entries by method; their `mark` is set.
        column: The column, with the direction that is better.
        task: The task that the methods are declared for.
    """
    with_mean = {m: e.mean for m, e in entries.items() if e.mean is not None}
    ranked = {m: mean for m, mean in with_mean.items() if is_ranked(task, m)}
    competing = {m: mean for m, mean in ranked.items() if entries[m].status == "ok"}
    if len(competing) < 2 <= len(with_mean):
        return
    higher_is_better = column.better == "higher"
    best, not_worse = significance.not_worse({m: entries[m].pairs for m in competing}, higher_is_better)
    if best is None:
        return
    sign = 1 if higher_is_better else -1
    if any(sign * (mean - competing[best]) > 0 for m, mean in ranked.items() if m not in competing):
        return
    not_worse = {m for m in not_worse if has_power(entries[best], entries[m], len(competing) - 1)}
    printed = format_number(competing[best], column.style)
    for method, mean in competing.items():
        if format_number(mean, column.style) == printed:
            entries[method].mark = BEST
        elif method in not_worse:
            entries[method].mark = CLOSE
