"""A CSV of path and label as the source of a scan. Paths are relative to the file's own folder, or absolute."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path

from sgoif.errors import UserError
from sgoif.scan.sources.image_list import Listing

SEPARATORS = (",", ";", "\t")


def from_csv(path: Path, columns: tuple[str, str], encoding: str) -> Listing:
    """Every row is an example; missing files, empty cells and repeated paths are told with their line."""
    from PIL import Image

    rows = read_rows(path, columns, encoding)
    base = path.resolve().parent
    first: dict[str, int] = {}
    missing = []
    for line, name, label in rows:
        if not name or not label:
            raise UserError(f"{path}, line {line}: the {columns[0] if not name else columns[1]} is empty")
        full = os.path.normpath(base / name)
        if full in first:
            raise UserError(f"{path}: {name} is listed twice, on lines {first[full]} and {line}; keep one of them")
        first[full] = line
        if not os.path.isfile(full):
            missing.append((line, name))
    if missing:
        line, name = missing[0]
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise UserError(f"{path}, line {line}: no file {name}{more}; paths are relative to {base}")
    names = [name for _, name, _ in rows]
    classes = sorted({label for _, _, label in rows})
    number = {label: i for i, label in enumerate(classes)}
    return Listing(
        kind="csv",
        source=str(path),
        names=names,
        labels=[number[label] for _, _, label in rows],
        classes=classes,
        open=lambda i: Image.open(base / names[i]),
        base=base,
    )


def read_rows(path: Path, columns: tuple[str, ...], encoding: str = "utf-8", strip: bool = True) -> list[tuple]:
    """(line, value of each column) for every row; separated by comma, semicolon or tab. `strip` off for tables that a
    scan wrote, where a blank may belong to a name."""
    try:
        text = path.read_bytes().decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except UnicodeDecodeError as e:
        line = path.read_bytes()[: e.start].count(b"\n") + 1
        raise UserError(
            f"{path}, line {line}: not {encoding}; save it as UTF-8, or say what it is, e.g. --encoding latin-1"
        ) from None
    except LookupError:
        raise UserError(f"--encoding {encoding}: no such encoding") from None
    if "\0" in text:
        raise UserError(f"{path} is not a text file; expected a CSV with the columns {', '.join(columns)}")
    header = text.split("\n", 1)[0]
    separator = max(SEPARATORS, key=header.count)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=strip)
    found = [name.strip() for name in reader.fieldnames or []]
    reader.fieldnames = found
    lacking = [name for name in columns if name not in found]
    if lacking:
        told = ", ".join(repr(name) for name in found[:8]) or "none"
        raise UserError(
            f"{path} has no column {' and no column '.join(map(repr, lacking))}; its columns are: {told}"
            + (" (--path-column and --label-column choose others)" if columns == ("path", "label") else "")
        )
    try:
        cells = [(reader.line_num, *(row[c] or "" for c in columns)) for row in reader]
    except csv.Error as e:
        raise UserError(f"{path}, line {reader.line_num}: {e}") from None
    rows = [(line, *(cell.strip() for cell in row)) for line, *row in cells] if strip else cells
    if not rows:
        raise UserError(f"{path} has a header and no rows")
    return rows
