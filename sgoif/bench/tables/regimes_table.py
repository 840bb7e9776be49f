"""Builds the table of regimes: class balance, noise, length, size and optimiser; a column for each cell of the grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sgoif.bench.evaluation.table_layout import Panel
from sgoif.bench.tables.block import Field, absent_field, make_block, metric_field
from sgoif.bench.tables.captions import NOT_GIVEN, seeds_caption
from sgoif.bench.tables.model import Block, Column, Entry, Table
from sgoif.bench.tables.names import is_ranked
from sgoif.bench.tables.noisy_table import TRUSTED, over_panels
from sgoif.bench.tables.source import Source

MAX_COLUMNS = 6  # of a block: their headings are long
COUNT_ERROR = "removal_count_error"


def regimes(source: Source) -> Table:
    """Builds the table: mean and rank over all cells, AUC-PR of each cell, and estimated against true wrong labels."""
    rows = source.methods()
    ranked = [method for _, method in rows if is_ranked("noisy", method)]
    means, footer = over_panels(source, source.panels, "auc_pr", ranked)
    blocks = [make_block("All cells: AUC-PR (%)", means, rows, footer=footer)] if means else []
    for number, panels in enumerate(_parts(source.panels), start=1):
        fields = [metric_field(source, panel, _column(panel, "auc_pr")) for panel in panels]
        for panel, field in zip(panels, fields, strict=True):
            field.extra["base rate"] = source.entry(panel, "", "base_rate")
        blocks.append(make_block(f"AUC-PR (%), part {number}", fields, rows))
    for number, panels in enumerate(_parts(source.panels), start=1):
        block = make_block(f"Labels called wrong (%), part {number}", _estimates(source, panels), rows)
        blocks.append(_measured_rows(block))
    if source.layout.not_run:
        gaps = [absent_field(source, absent) for absent in source.layout.not_run]
        blocks.append(make_block("Not run", gaps, rows))
    caption = [
        "Each column is one cell of the grid: class balance (largest to smallest class), noise, images, and training "
        "where it is not the dataset's own recipe.",
        *seeds_caption(source),
        "AUC-PR: average precision of the ranking of labels. Base rate: the share of wrong labels, which is also the "
        "AUC-PR of a random ranking.",
        "Labels called wrong: the share that the method's own rule removes, beside the true share.",
        TRUSTED,
        NOT_GIVEN,
    ]
    return source.table(blocks, caption)


def _parts(panels: Sequence[Panel]) -> list[Sequence[Panel]]:
    return [panels[start : start + MAX_COLUMNS] for start in range(0, len(panels), MAX_COLUMNS)]


def _column(panel: Panel, metric: str, better: str = "higher") -> Column:
    return Column("", panel.title, metric, better)


def _estimates(source: Source, panels: Sequence[Panel]) -> list[Field]:
    fields = []
    for panel in panels:
        true_share = source.entry(panel, "", "base_rate")
        column = _column(panel, "share_called_wrong", better="")
        fields.append(Field(column, _called_wrong(source, panel, true_share.mean), extra={"true share": true_share}))
    return fields


def _called_wrong(source: Source, panel: Panel, true_share: float | None) -> Callable[[str], Entry]:
    """Returns the function that finds the share of labels that a method calls wrong.

    It is recorded by its relative error, (called wrong - wrong) / wrong.
    """

    def entry(method: str) -> Entry:
        found = source.entry(panel, method, COUNT_ERROR)
        if found.mean is None or true_share is None:
            return found
        std = None if found.std is None else true_share * found.std
        return Entry(true_share * (1 + found.mean), std, found.n_seeds, found.status, found.note)

    return entry


def _measured_rows(block: Block) -> Block:
    """Leaves out methods that have no rule of their own."""
    block.rows = [row for row in block.rows if any(entry.mean is not None for entry in row.entries)]
    return block
