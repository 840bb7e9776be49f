"""A CSV of path and label as the source of a scan. Paths are relative to the file's own folder, or absolute."""

from __future__ import annotations

import csv
import io
import os
from dataclasses import dataclass
from pathlib import Path

from sgoif.errors import UserError
from sgoif.scan.sources.image_listing import Listing

SEPARATORS = (",", ";", "\t")
MAX_NAMED_COLUMNS = 8  # in an error message


@dataclass(frozen=True)
class CsvRow:
    """One row of a CSV: the line that it ends on, and the cells of the columns that were asked for."""

    line: int
    cells: tuple[str, ...]


def list_csv(path: Path, columns: tuple[str, str], encoding: str) -> Listing:
    """Lists the images of a CSV; every row is an example.

    Args:
        path: The CSV file.
        columns: Names of the path column and the label column.
        encoding: Encoding of the file.

    Raises:
        UserError: If the file cannot be read, a cell is empty, a path occurs twice, or an image is missing.
    """
    from PIL import Image

    rows = read_rows(path, columns, encoding)
    base = path.resolve().parent
    _check_rows(path, rows, columns, base)
    names = [row.cells[0] for row in rows]
    labels = [row.cells[1] for row in rows]
    classes = sorted(set(labels))
    number = {label: i for i, label in enumerate(classes)}
    return Listing(
        kind="csv",
        source=str(path),
        names=names,
        labels=[number[label] for label in labels],
        classes=classes,
        open=lambda i: Image.open(base / names[i]),
        base=base,
    )


def _check_rows(path: Path, rows: list[CsvRow], columns: tuple[str, str], base: Path) -> None:
    """Raises UserError, with the line, for empty cells, repeated paths and missing files."""
    first_line: dict[str, int] = {}
    missing: list[tuple[int, str]] = []
    for row in rows:
        for column, cell in zip(columns, row.cells, strict=True):
            if not cell:
                raise UserError(f"{path}, line {row.line}: the {column} is empty")
        name = row.cells[0]
        full = os.path.normpath(base / name)
        if full in first_line:
            lines = f"lines {first_line[full]} and {row.line}"
            raise UserError(f"{path}: {name} is listed twice, on {lines}; keep one of them")
        first_line[full] = row.line
        if not os.path.isfile(full):
            missing.append((row.line, name))
    if missing:
        line, name = missing[0]
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise UserError(f"{path}, line {line}: no file {name}{more}; paths are relative to {base}")


def read_rows(path: Path, columns: tuple[str, ...], encoding: str = "utf-8", strip: bool = True) -> list[CsvRow]:
    """Reads the named columns of a CSV separated by comma, semicolon or tab.

    Args:
        path: The CSV file; its first line is the header.
        columns: Names of the columns to read.
        encoding: Encoding of the file.
        strip: Remove blanks around cells. Off for files that a scan wrote, where a blank may belong to a name.

    Raises:
        UserError: If the file is not text in this encoding, lacks a column, or has no rows.
    """
    text = _decode(path, encoding)
    if "\0" in text:
        raise UserError(f"{path} is not a text file; expected a CSV with the columns {', '.join(columns)}")
    header = text.split("\n", 1)[0]
    separator = max(SEPARATORS, key=header.count)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=strip)
    found = [name.strip() for name in reader.fieldnames or []]
    reader.fieldnames = found
    _check_columns(path, columns, found)
    rows = []
    try:
        for row in reader:
            cells = tuple(row[column] or "" for column in columns)
            rows.append(CsvRow(reader.line_num, tuple(cell.strip() for cell in cells) if strip else cells))
    except csv.Error as e:
        raise UserError(f"{path}, line {reader.line_num}: {e}") from None
    if not rows:
        raise UserError(f"{path} has a header and no rows")
    return rows


def _decode(path: Path, encoding: str) -> str:
    """Returns the text of a file without its byte order mark."""
    data = path.read_bytes()
    try:
        return data.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except UnicodeDecodeError as e:
        line = data[: e.start].count(b"\n") + 1
        raise UserError(
            f"{path}, line {line}: not {encoding}; save it as UTF-8, or name its encoding, e.g. --encoding latin-1"
        ) from None
    except LookupError:
        raise UserError(f"--encoding {encoding}: no such encoding") from None


def _check_columns(path: Path, columns: tuple[str, ...], found: list[str]) -> None:
    missing = [name for name in columns if name not in found]
    if missing:
        there = ", ".join(repr(name) for name in found[:MAX_NAMED_COLUMNS]) or "none"
        hint = " (--path-column and --label-column choose others)" if columns == ("path", "label") else ""
        raise UserError(
            f"{path} has no column {' and no column '.join(map(repr, missing))}; its columns are: {there}{hint}"
        )
