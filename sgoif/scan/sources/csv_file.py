"""A CSV of path and label as the source of a scan. Paths are relative to the file's own folder, or absolute."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from sgoif.errors import UserError
from sgoif.scan.sources.csv_rows import CsvHints, CsvRow, read_rows
from sgoif.scan.sources.image_listing import Listing
from sgoif.scan.sources.one_class import MULTI_LABEL, require_one_class
from sgoif.scan.sources.regular_files import NOT_REGULAR, is_special, open_image_file

HINTS = CsvHints(
    encoding=", or name its encoding, e.g. --encoding latin-1",
    columns=" (--path-column and --label-column choose others)",
)


def list_csv(path: Path, columns: tuple[str, str], encoding: str) -> Listing:
    """List the images of a CSV; every row is an example, except those of pipes, sockets and devices.

    Args:
        path: The CSV file.
        columns: Names of the path column and the label column.
        encoding: Encoding of the file.

    Raises:
        UserError: If the file cannot be read, a cell is empty, a path occurs twice, or an image is missing.
    """
    hints = HINTS if columns == ("path", "label") else replace(HINTS, columns="")
    rows = read_rows(path, columns, encoding, hints=hints)
    base = path.resolve().parent
    _check_rows(path, rows, columns, base)
    require_one_class(path, [row.line for row in rows], [row.cells[1] for row in rows])
    special = [row.cells[0] for row in rows if is_special(base / row.cells[0])]
    if len(special) == len(rows):
        raise UserError(f"{path}: {special[0]} is {NOT_REGULAR}, like every other of its {len(rows)}; list image files")
    skipped = set(special)
    used = [row.cells for row in rows if row.cells[0] not in skipped]
    names = [name for name, _ in used]
    labels = [label for _, label in used]
    classes = sorted(set(labels))
    number = {label: i for i, label in enumerate(classes)}
    return Listing(
        kind="csv",
        source=str(path),
        names=names,
        labels=[number[label] for label in labels],
        classes=classes,
        open=lambda i: open_image_file(base / names[i]),
        base=base,
        left_out=[(name, NOT_REGULAR) for name in special],
    )


def _check_rows(path: Path, rows: list[CsvRow], columns: tuple[str, str], base: Path) -> None:
    """Raise UserError, with the line, for empty cells, repeated paths and missing files."""
    first_row: dict[str, CsvRow] = {}
    missing: list[tuple[int, str]] = []
    for row in rows:
        for column, cell in zip(columns, row.cells, strict=True):
            if not cell:
                raise UserError(f"{path}, line {row.line}: the {column} is empty")
        name = row.cells[0]
        full = os.path.normpath(base / name)
        if full in first_row:
            lines = f"lines {first_row[full].line} and {row.line}"
            if first_row[full].cells[1] != row.cells[1]:
                raise UserError(f"{path}: {name} has several labels (multi-label), on {lines}, {MULTI_LABEL}")
            raise UserError(f"{path}: {name} is listed twice, on {lines}; keep one of them")
        first_row[full] = row
        if not os.path.isfile(full) and not is_special(full):
            missing.append((row.line, name))
    if missing:
        line, name = missing[0]
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise UserError(f"{path}, line {line}: no file {name}{more}; paths are relative to {base}")
