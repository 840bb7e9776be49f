"""Parts that tables of variants share: titles that say what a row changes, and the comparison with the full method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sgoif.bench.evaluation import significance
from sgoif.bench.methods.registry import split_variant
from sgoif.bench.tables.model import Block, Column, Entry, Row
from sgoif.bench.tables.source import Source

DIFFERENCE = (
    "Difference to the first row: mean ± standard deviation of the paired differences over settings and seeds, in "
    f"points, and the p-value of a two-sided paired test (t-test below {significance.SMALLEST_WILCOXON} pairs, else "
    "signed ranks), Holm-corrected over the rows."
)


Differences = dict[str, tuple[Entry, Entry, Entry]]  # by method: number of pairs, difference, p-value


def entry_of_pairs(pairs: Mapping[Any, float]) -> Entry:
    """Returns the entry of the mean over pairs."""
    mean, std = significance.mean_std(list(pairs.values()))
    return Entry(mean, std, len(pairs), pairs=dict(pairs))


def row_title(source: Source, method: str) -> str:
    """Returns the title of a row: the paper's name of the change, else the change itself."""
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
    """Returns the sentence on the settings of the full method and what the named rows change of them."""
    full = source.layout.full
    window = f"{100 * full['window']:g}%"
    parts = [f"Full: curvature {full['curvature']}, rank {full['rank']}, scores over the last {window} of training"]
    for row in source.layout.rows:
        if row.name:
            parts += [f"{row.name}: {f} = {_value(v)} (full: {_value(full[f])})" for f, v in row.change.items()]
    return "; ".join(parts) + "."


def differences(source: Source, column: Column) -> Differences:
    """Compares every other row with the first.

    Returns:
        For each method the entries of the number of pairs, the difference and its Holm-corrected p-value.
    """
    first, *others = [r.method for r in source.layout.rows]
    full = source.pooled(source.panels, first, column.metric)
    found: dict[str, Entry] = {}
    p_values: dict[str, float] = {}
    for method in others:
        mine = source.pooled(source.panels, method, column.metric)
        pairs = {k: mine.pairs[k] - full.pairs[k] for k in mine.pairs if k in full.pairs}
        found[method] = entry_of_pairs(pairs) if pairs else Entry(status=mine.status, note=mine.note)
        if len(pairs) > 1:
            p_values[method] = significance.difference_p([mine.pairs[k] for k in pairs], [full.pairs[k] for k in pairs])
    adjusted = significance.holm(p_values)
    return {m: (Entry(float(e.n_seeds)) if e.pairs else Entry(), e, Entry(adjusted.get(m))) for m, e in found.items()}


def difference_block(source: Source, columns: Sequence[Column]) -> Block:
    """Returns the block of the number of pairs, differences and p-values of all rows but the first."""
    found = {c.metric: differences(source, c) for c in columns}
    heads = [Column("", "pairs", "pairs", "", "count")]
    for c in columns:
        heads += [
            Column(f"Δ {c.title}", "points", f"{c.metric}:difference", "", "points"),
            Column(f"Δ {c.title}", "p", f"{c.metric}:difference_p", "", "p"),
        ]
    rows = []
    for row in source.layout.rows[1:]:
        method = row.method
        entries = [found[columns[0].metric][method][0]]
        for c in columns:
            entries += found[c.metric][method][1:]
        rows.append(Row("", method, row_title(source, method), entries))
    return Block("Difference to the full method", heads, rows, ("", "variant"), unchanged_rows_caption(source, found))


def unchanged_rows_caption(source: Source, found: Mapping[str, Differences]) -> str:
    """Returns the sentence that lists rows without any difference, whose changed part never acted; may be empty."""
    same = []
    for row in source.layout.rows[1:]:
        pairs = [v for by_method in found.values() for v in by_method[row.method][1].pairs.values()]
        if pairs and not any(pairs):
            same.append(row_title(source, row.method))
    return f"No difference in any pair: {'; '.join(same)}." if same else ""
