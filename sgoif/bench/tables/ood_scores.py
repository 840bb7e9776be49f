"""Builds the block of declared OOD scores, of methods that were declared with several: the ranking one comes first."""

from __future__ import annotations

from collections.abc import Sequence

from sgoif.bench.evaluation.table_layout import Panel
from sgoif.bench.methods import registry
from sgoif.bench.tables import names
from sgoif.bench.tables.model import Block, Column, Row
from sgoif.bench.tables.source import Source

COLUMNS = [
    Column(name, title, f"{metric}:{group}", better)
    for metric, name, better in (("auroc", "AUROC", "higher"), ("fpr95", "FPR@95", "lower"))
    for group, title in (("near", "near"), ("far", "far"), ("overall", "mean"))
]


def declared_scores(source: Source, panel: Panel, methods: Sequence[str]) -> Block | None:
    """Returns the block of one ID set; None if no method has several scores."""
    rows: list[Row] = []
    for method in methods:
        name, _ = registry.split_variant(method)
        others = source.variants(method)
        if not others or name not in registry.available("ood"):
            continue
        declared = registry.declaration("ood", name)
        words, title = declared.candidates, names.title("ood", method)
        ranking = [source.entry(panel, method, column.metric) for column in COLUMNS]
        rows.append(Row(title, method, f"{words.get(declared.ranked_by, 'the score above')} (ranks)", ranking))
        for variant in sorted(others, key=list(words).index if set(others) <= set(words) else str):
            entries = [source.variant_entry(panel, method, variant, column.metric) for column in COLUMNS]
            rows.append(Row(title, method, words.get(variant, variant), entries))
    rows = [row for row in rows if any(entry.mean is not None for entry in row.entries)]
    return Block(f"Declared scores, ID: {panel.title}", COLUMNS, rows, ("", "score"), "") if rows else None
