"""Builds the sensitivity table: one setting of the method is changed at a time, its values in order."""

from __future__ import annotations

from typing import Any

from sgoif.bench.tables.block import absent_field, make_block
from sgoif.bench.tables.captions import NOT_GIVEN, describe_noise, seeds_caption, top_caption
from sgoif.bench.tables.common_seeds import OVER_COMMON_SEEDS, put_over_common_seeds
from sgoif.bench.tables.kinds.variants import (
    Differences,
    certainty_column,
    difference_caption,
    differences,
    full_method_caption,
    unchanged_rows_caption,
)
from sgoif.bench.tables.model import Block, Column, Entry, Row, Table
from sgoif.bench.tables.source import Source

FIELD_TITLES = {  # the paper's symbol and words by field, in the order of the rows
    "anchors": "K: anchors",
    "rank": "r: rank of the subspace",
    "solve_every": "T_r: steps between two checks, at most",
    "coverage_every": "T_a: checks between two looks at coverage",
    "kappa": "κ: stability scale",
    "temperature": "T: temperature",
    "damping": "λ: damping, relative",
    "window": "window: last share of training that is scored",
}
AUC = Column("", "AUC-PR", "auc_pr")
COLUMNS = (
    AUC,
    Column("", "P@1%", "p_at_1"),
    Column("", "τ top 1%", "tau_top1", "", "number2"),
    Column("overhead", "CPU", "overhead_cpu", "", "times"),
    Column("", "HVPs/step", "extra:hvps_per_step", "", "number1"),
)
DIFFERENCE = Column("Δ AUC-PR", "points", "auc_pr:difference", "", "points")


def sensitivity(source: Source) -> Table:
    """Build the table; rows are the values of one field after the other."""
    blocks = []
    if source.panels:
        found = differences(source, AUC)
        rows = [_row(source, found, *at) for at in _values(source)]
        put_over_common_seeds(rows, len(COLUMNS))
        heads = [*COLUMNS, DIFFERENCE, certainty_column(source, DIFFERENCE.group, AUC.metric)]
        blocks.append(Block("", heads, rows, ("", "value"), unchanged_rows_caption(source, {AUC.metric: found})))
    plain_rows = [("", r.method) for r in source.layout.rows]
    blocks += [make_block("", [absent_field(source, gap)], plain_rows) for gap in source.layout.not_run]
    where = ", ".join(f"{p.title} {describe_noise(p)}" for p in source.panels)
    caption = [
        f"One field changed at a time, all else the full method; mean over {where or 'nothing'} and the seeds. "
        "AUC-PR and P@1% in %.",
        full_method_caption(source),
        *(words.split(" {best}")[0] for words in seeds_caption(source)),
        f"{OVER_COMMON_SEEDS}, but for the differences.",
        top_caption(source) if source.panels else "",
        difference_caption(source) if source.panels else "",
        "K = 0: one anchor per class. A check also updates the subspace; coverage is the anchors'. Overhead: CPU "
        "seconds over those of plain training.",
        NOT_GIVEN,
    ]
    return source.table(blocks, caption)


def _values(source: Source) -> list[tuple[str, str, str]]:
    """Return (group, value, method) of the rows; the default stands among the values of every field."""
    full = source.layout.full
    by_field: dict[str, dict[Any, str]] = {}
    for row in source.layout.rows[1:]:
        for field, value in row.change.items():
            by_field.setdefault(field, {})[value] = row.method
    first = source.layout.rows[0].method
    rows = []
    known = [field for field in FIELD_TITLES if field in by_field]
    others = [field for field in by_field if field not in FIELD_TITLES]
    for field in [*known, *others]:
        values = {**by_field[field], full[field]: first}
        for value in sorted(values):
            default = " (default)" if values[value] == first else ""
            rows.append((FIELD_TITLES.get(field, field), f"{value:g}{default}", values[value]))
    return rows


def _row(source: Source, found: Differences, group: str, value: str, method: str) -> Row:
    entries = [source.pooled(source.panels, method, c.metric) for c in COLUMNS]
    entries += found[method][1:] if method in found else [Entry(), Entry()]
    return Row(group, method, value, entries)
