"""Columns of mean and average rank over the columns of a block, and the test of the ranks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from sgoif.bench.evaluation import significance
from sgoif.bench.evaluation.draws import MIN_DRAWS, Draw
from sgoif.bench.evaluation.table_layout import Panel
from sgoif.bench.tables import names
from sgoif.bench.tables.block import Field
from sgoif.bench.tables.model import Column, Entry
from sgoif.bench.tables.source import Source


def over_panels(
    source: Source, panels: Sequence[Panel], metric: str, methods: Sequence[str]
) -> tuple[list[Field], str]:
    """Return the columns of mean and average rank over the panels, and the sentence on the test of the ranks.

    Only methods with all seeds in every panel have a mean and a rank. Tests count independent draws, not panels.
    """
    if len(panels) < 2:
        return [], ""
    found = {method: [source.entry(panel, method, metric) for panel in panels] for method in methods}
    ranked = {m: of for m, of in found.items() if all(e.mean is not None and e.status == "ok" for e in of)}
    draws = {m: source.by_draw(panels, m, metric) for m in ranked}
    footer = _test_of_ranks(source, panels, metric, list(ranked)) if len(ranked) > 2 else ""
    return mean_and_rank(metric, ranked, draws), footer


def mean_and_rank(
    metric: str, entries: Mapping[str, Sequence[Entry]], draws: Mapping[str, Mapping[Draw, float]] | None = None
) -> list[Field]:
    """Return the columns of mean and average rank of methods that have a number in every column.

    Args:
        metric: The metric of the columns.
        entries: Their entries by method.
        draws: Means by independent draw, which tests count; without them nothing is tested.
    """
    values = {method: [e.mean for e in of if e.mean is not None] for method, of in entries.items()}
    ranks = significance.mean_ranks(values) if len(values) > 1 else {}

    def mean(method: str) -> Entry:
        if method not in values:
            return Entry()
        found = draws[method].items() if draws else enumerate(values[method])
        pairs: dict[Hashable, float] = {key: value for key, value in found}
        return Entry(significance.mean_std(values[method])[0], pairs=pairs, independent=draws is not None)

    return [
        Field(Column("all", "mean", f"{metric}:mean"), mean),
        Field(Column("all", "rank", f"{metric}:rank", "", "number1"), lambda m: Entry(ranks.get(m)), ranked=False),
    ]


def _test_of_ranks(source: Source, panels: Sequence[Panel], metric: str, methods: Sequence[str]) -> str:
    """Return the sentence on which methods the independent draws tell apart from the best, or why there is no test."""
    n = len(source.draws(panels))
    if n < MIN_DRAWS:
        draws = "one independent draw" if n == 1 else f"{n} independent draws"
        return f"No test of the ranks: the columns are of {draws}, and fewer than {MIN_DRAWS} say nothing."
    by_draw = {m: source.by_draw(panels, m, metric) for m in methods}
    tested = {m: list(values.values()) for m, values in by_draw.items() if len(values) == n}
    if len(tested) < 3:
        return "No test of the ranks: fewer than three methods have all seeds."
    ranks = significance.mean_ranks(tested)
    difference = significance.critical_difference(len(tested), n)
    best = min(ranks, key=ranks.__getitem__)
    near = [names.title("noisy", m) for m in ranks if m != best and ranks[m] - ranks[best] < difference]
    p = significance.friedman_p(tested)
    return (
        f"{len(tested)} methods ranked in each of {n} independent draws (by the mean of its columns): Friedman p "
        f"{'< 0.001' if p < 0.001 else f'= {p:.3f}'}; not separated from {names.title('noisy', best)} (Nemenyi, "
        f"α = {significance.ALPHA}): {', '.join(near) or 'none'}."
    )
