"""Fills blocks of tables: one field for each column, which finds the entry of every method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sgoif.bench.evaluation.table_layout import AbsentDataset, Panel
from sgoif.bench.methods.registry import PLAIN
from sgoif.bench.tables import names
from sgoif.bench.tables.marks import mark_best
from sgoif.bench.tables.model import Block, Column, Entry, Row
from sgoif.bench.tables.names import REFERENCE
from sgoif.bench.tables.source import Source


@dataclass
class Field:
    """A column and how the entry of a method is found.

    Attributes:
        column: The column.
        entry: Returns the entry of a method.
        ranked: Whether the best entries are marked.
        extra: Entries of rows that are not methods, such as the base rate, by title of the row.
    """

    column: Column
    entry: Callable[[str], Entry]
    ranked: bool = True
    extra: dict[str, Entry] = field(default_factory=dict)


def make_block(
    title: str,
    fields: Sequence[Field],
    rows: Sequence[tuple[str, str]],
    task: str = "noisy",
    corner: tuple[str, str] = ("", "method"),
    footer: str = "",
) -> Block:
    """Fill a block and mark the best entries of its columns.

    Args:
        title: Title of the block.
        fields: Its columns.
        rows: (group, method) of its rows; a row without a number or a status is left out.
        task: The task that the methods are declared for.
        corner: Headings of the column groups and of the rows.
        footer: Sentence below the block.
    """
    columns = [{method: f.entry(method) for _, method in rows} for f in fields]
    for f, by_method in zip(fields, columns, strict=True):
        if f.ranked and f.column.better:
            mark_best(by_method, f.column, task)
    filled = []
    for group, method in rows:
        entries = [by_method[method] for by_method in columns]
        is_measured = any(e.mean is not None for e in entries)
        if is_measured or (method != PLAIN and any(e.status != "ok" for e in entries)):
            filled.append(Row(group, method, names.title(task, method), entries))
    for name in dict.fromkeys(name for f in fields for name in f.extra):
        filled.append(Row(REFERENCE, "", name, [f.extra.get(name, Entry()) for f in fields]))
    return Block(title, [f.column for f in fields], filled, corner, footer)


def metric_field(source: Source, panel: Panel, column: Column, ranked: bool = True) -> Field:
    """Return the field of a column that shows its metric for one panel."""
    return Field(column, lambda method: source.entry(panel, method, column.metric), ranked)


def pooled_field(source: Source, panels: Sequence[Panel], column: Column, ranked: bool = False) -> Field:
    """Return the field of a column that shows the mean of its metric over several panels."""
    return Field(column, lambda method: source.pooled(panels, method, column.metric), ranked)


def absent_field(source: Source, absent: AbsentDataset) -> Field:
    """Return the field of a column that says why a dataset has no numbers."""
    entry = Entry(status="not run", note=source.note(absent.reason))
    return Field(Column(absent.title, "", "status"), lambda method: entry, ranked=False)
