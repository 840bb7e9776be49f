"""Parts that tables of variants share: titles that say what a row changes, and the comparison with the full method."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from sgoif.bench.evaluation import significance
from sgoif.bench.evaluation.draws import MIN_DRAWS, Draw
from sgoif.bench.methods.registry import split_variant
from sgoif.bench.tables.model import Block, Column, Entry, Row
from sgoif.bench.tables.source import Source

Differences = dict[str, tuple[Entry, Entry, Entry]]  # by method: number of draws, difference, interval or p-value


def has_test(source: Source) -> bool:
    """Tells whether there are enough independent draws for a test of differences; else an interval is shown."""
    return len(source.draws(source.panels)) >= MIN_DRAWS


def difference_caption(source: Source) -> str:
    """Return the sentence on the differences to the first row."""
    words = (
        "Difference to the first row, in points: paired by setting and seed, averaged over the settings of each "
        "independent draw (a seed of a dataset), mean ± standard deviation over the draws"
    )
    if has_test(source):
        return (
            f"{words}; p-value of a two-sided paired test (t-test below {significance.SMALLEST_WILCOXON} draws, else "
            "signed ranks), Holm-corrected over the rows."
        )
    return f"{words}. 95% ±: half-width of the mean's 95% interval; fewer than {MIN_DRAWS} draws allow no test."


def certainty_column(source: Source, group: str, metric: str) -> Column:
    """Return the column beside a difference: a p-value, or the interval where there are too few draws for a test."""
    if has_test(source):
        return Column(group, "p", f"{metric}:difference_p", "", "p")
    return Column(group, "95% ±", f"{metric}:difference_interval", "", "interval")


def entry_of_pairs(pairs: Mapping[Any, float]) -> Entry:
    """Return the entry of the mean over pairs."""
    mean, std = significance.mean_std(list(pairs.values()))
    return Entry(mean, std, len(pairs), pairs=dict(pairs))


def row_title(source: Source, method: str) -> str:
    """Return the title of a row: the paper's name of the change, else the change itself."""
    row = next(r for r in source.layout.rows if r.method == method)
    if source.layout.kind == "backends":
        return row.change.get("curvature") or f"{source.layout.full['curvature']} (full)"
    if row.name == "Full":
        return "SG-OIF (full)"
    if row.name:
        return row.name
    return _describe_change(row.change) or split_variant(method)[1].replace("_", " ")


def _describe_change(change: Mapping[str, Any]) -> str:
    return ", ".join(f"{field} = {_value(value)}" for field, value in change.items())


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def full_method_caption(source: Source) -> str:
    """Return the sentence on the settings of the full method and what the named rows change of them."""
    full = source.layout.full
    window = f"{100 * full['window']:g}%"
    parts = [f"Full: curvature {full['curvature']}, rank {full['rank']}, scores over the last {window} of training"]
    for row in source.layout.rows:
        if row.name:
            parts += [f"{row.name}: {f} = {_value(v)} (full: {_value(full[f])})" for f, v in row.change.items()]
    return "; ".join(parts) + "."


def differences(source: Source, column: Column) -> Differences:
    """Compare every other row with the first.

    Returns:
        For each method the entries of the number of independent draws, of the difference, and of its interval or, if
        there are enough draws, its Holm-corrected p-value.
    """
    first, *others = [r.method for r in source.layout.rows]
    full = source.pooled(source.panels, first, column.metric)
    draw_of: dict[Hashable, Draw] = {  # panel and seed -> independent draw
        (source.panels.index(panel), seed): draw
        for draw, members in source.draws(source.panels).items()
        for panel, only in members
        for seed in (panel.seeds if only is None else [only])
    }
    found: dict[str, Entry] = {}
    by_draw: dict[str, list[float]] = {}
    for method in others:
        mine = source.pooled(source.panels, method, column.metric)
        pairs = {k: mine.pairs[k] - full.pairs[k] for k in mine.pairs if k in full.pairs}
        if not pairs:
            found[method] = Entry(status=mine.status, note=mine.note)
            continue
        groups: dict[Draw, list[float]] = {}
        for key, difference in pairs.items():
            groups.setdefault(draw_of[key], []).append(difference)
        by_draw[method] = [sum(values) / len(values) for values in groups.values()]
        found[method] = Entry(*significance.mean_std(by_draw[method]), len(groups), pairs=pairs)
    told = _tests(by_draw) if has_test(source) else _intervals(by_draw)
    return {m: (Entry(float(e.n_seeds)) if e.pairs else Entry(), e, Entry(told.get(m))) for m, e in found.items()}


def _tests(by_draw: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return Holm-corrected p-values of the rows that have enough draws."""
    enough = {m: values for m, values in by_draw.items() if len(values) >= MIN_DRAWS}
    return significance.holm({m: significance.difference_p(v, [0.0] * len(v)) for m, v in enough.items()})


def _intervals(by_draw: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return half the widths of the 95% intervals (Student's t) of the means over draws; one draw has none."""
    found = {m: (significance.mean_std(values)[1], len(values)) for m, values in by_draw.items()}
    return {m: significance.t_factor(n) * std for m, (std, n) in found.items() if std is not None}


def difference_block(source: Source, columns: Sequence[Column]) -> Block:
    """Return the block of the number of draws, differences, and intervals or p-values of all rows but the first."""
    found = {c.metric: differences(source, c) for c in columns}
    heads = [Column("", "draws", "draws", "", "count")]
    for c in columns:
        heads.append(Column(f"Δ {c.title}", "points", f"{c.metric}:difference", "", "points"))
        heads.append(certainty_column(source, f"Δ {c.title}", c.metric))
    rows = []
    for row in source.layout.rows[1:]:
        method = row.method
        entries = [found[columns[0].metric][method][0]]
        for c in columns:
            entries += found[c.metric][method][1:]
        rows.append(Row("", method, row_title(source, method), entries))
    return Block("Difference to the full method", heads, rows, ("", "variant"), unchanged_rows_caption(source, found))


def unchanged_rows_caption(source: Source, found: Mapping[str, Differences]) -> str:
    """Return the sentence that lists rows without any difference, whose changed part never acted; may be empty."""
    same = []
    for row in source.layout.rows[1:]:
        pairs = [v for by_method in found.values() for v in by_method[row.method][1].pairs.values()]
        if pairs and not any(pairs):
            same.append(row_title(source, row.method))
    return f"No difference in any pair: {'; '.join(same)}." if same else ""
