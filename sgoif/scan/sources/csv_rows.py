"""The rows of a CSV, whatever its separator; every mistake in it is reported with its line."""

from __future__ import annotations

import codecs
import csv
import io
from dataclasses import dataclass
from pathlib import Path

from sgoif.errors import UserError
from sgoif.scan.sources.regular_files import require_no_special

SEPARATORS = (",", ";", "\t")
MAX_NAMED_COLUMNS = 8  # in an error message


@dataclass(frozen=True)
class CsvRow:
    """One row of a CSV: the line that it ends on, and the cells of the columns that were asked for."""

    line: int
    cells: tuple[str, ...]


@dataclass(frozen=True)
class CsvHints:
    """Options of the command that may help, as ends of messages; empty where the command has none.

    Attributes:
        encoding: For a file in another encoding.
        columns: For a file with other columns.
    """

    encoding: str = ""
    columns: str = ""


NO_HINTS = CsvHints()


def read_rows(
    path: Path, columns: tuple[str, ...], encoding: str = "utf-8", strip: bool = True, hints: CsvHints = NO_HINTS
) -> list[CsvRow]:
    """Read the named columns of a CSV separated by comma, semicolon or tab.

    Args:
        path: The CSV file; its first line is the header.
        columns: Names of the columns to read.
        encoding: Encoding of the file.
        strip: Remove blanks around cells. Off for files that a scan wrote, where a blank may belong to a name.
        hints: What the command offers for a file that cannot be read.

    Raises:
        UserError: If the file is not a regular file, not text in this encoding, lacks a column, has no rows, or has a
            row of more cells than columns.
    """
    text = _decode(path, encoding, hints)
    if "\0" in text:
        raise UserError(f"{path} is not a text file; expected a CSV with the columns {', '.join(columns)}")
    header = text.split("\n", 1)[0]
    separator = max(SEPARATORS, key=header.count)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=strip)
    found = [name.strip() for name in reader.fieldnames or []]
    reader.fieldnames = found
    _check_columns(path, columns, found, hints)
    rows = []
    try:
        for row in reader:
            if any(cell.strip() for cell in row.get(None, ())):
                raise UserError(
                    f"{path}, line {reader.line_num}: more cells than columns; put quotes around a cell that holds the "
                    f"separator {separator!r}"
                )
            cells = tuple(row[column] or "" for column in columns)
            rows.append(CsvRow(reader.line_num, tuple(cell.strip() for cell in cells) if strip else cells))
    except csv.Error as e:
        raise UserError(f"{path}, line {reader.line_num}: {e}") from None
    if not rows:
        raise UserError(f"{path} has a header and no rows")
    return rows


def _decode(path: Path, encoding: str, hints: CsvHints) -> str:
    """Return the text of a file without its byte order mark."""
    require_no_special(path, "save its content to a file and name that")
    data = path.read_bytes()
    try:
        "a".encode(encoding)
    except (LookupError, ValueError):  # unknown, or no encoding of text
        raise UserError(f"{path}: no such encoding of text as {encoding}; e.g. utf-8 or latin-1") from None
    try:
        return data.decode("utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding)
    except UnicodeError as e:
        line = data[: getattr(e, "start", 0)].count(b"\n") + 1
        raise UserError(f"{path}, line {line}: not {encoding}; save it as UTF-8{hints.encoding}") from None


def _check_columns(path: Path, columns: tuple[str, ...], found: list[str], hints: CsvHints) -> None:
    missing = [name for name in columns if name not in found]
    if missing:
        there = ", ".join(repr(name) for name in found[:MAX_NAMED_COLUMNS]) or "none"
        named = " and no column ".join(map(repr, missing))
        raise UserError(f"{path} has no column {named}; its columns are: {there}{hints.columns}")
    if twice := [name for name in columns if found.count(name) > 1]:
        raise UserError(f"{path} has the column {twice[0]!r} {found.count(twice[0])} times; give each another name")
