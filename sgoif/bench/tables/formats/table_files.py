"""Writes a table to results/<run>/tables: <name>.md, .tex, .csv and .json.

The CSV has one line for each cell of the table (tidy data), so that nothing is lost in its layout.
"""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sgoif.bench.tables.formats.latex import to_latex
from sgoif.bench.tables.formats.markdown import to_markdown
from sgoif.bench.tables.model import BEST, CLOSE, Table, name_marks, one_line
from sgoif.utils.files import atomic_write_json, atomic_write_text

CSV_COLUMNS = (
    "table", "block", "row_group", "method", "row", "column_group", "column", "metric", "mean", "std", "n_seeds",
    "mark", "status", "reason",
)  # fmt: skip


def write_table(table: Table, folder: Path | str) -> list[Path]:
    """Write a table in all four formats.

    Returns:
        The paths of the Markdown, LaTeX, CSV and JSON files.
    """
    paths = [Path(folder) / f"{table.name}.{ending}" for ending in ("md", "tex", "csv", "json")]
    atomic_write_text(paths[0], to_markdown(table), seal=True)
    atomic_write_text(paths[1], to_latex(table), seal=True)
    atomic_write_text(paths[2], to_csv(table), seal=True)
    atomic_write_json(paths[3], to_json(table), seal=True)
    for path in paths:
        path.touch()  # Snakemake compares times, so an unchanged file must look new too
    return paths


def to_csv(table: Table) -> str:
    """Return the table as CSV, one line for each cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for block in table.blocks:
        for row in block.rows:
            for column, entry in zip(block.columns, row.entries, strict=True):
                has_content = entry.mean is not None or entry.status != "ok"
                status = entry.status if has_content else "not given"
                where = [table.name, block.title, row.group, row.method, row.title, column.group, column.title]
                numbers = ["" if v is None else repr(v) for v in (entry.mean, entry.std)]
                reason = one_line(table.notes[entry.note - 1]) if entry.note else ""
                writer.writerow([*where, column.metric, *numbers, entry.n_seeds, entry.mark, status, reason])
    return text.getvalue()


def to_json(table: Table) -> dict[str, Any]:
    """Return the table as a JSON value, without the values of single seeds, which the summary has."""
    value = asdict(table)
    value["caption"] = name_marks(" ".join(table.caption), BEST, CLOSE)
    for block in value["blocks"]:
        for row in block["rows"]:
            for entry in row["entries"]:
                del entry["pairs"]
    return value
