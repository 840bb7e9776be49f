"""The numbers of the SG-OIF paper, as printed: one YAML file per table, and the public numbers they are compared with.

A printed number is one `Cell` (a field like `12.8/48.3/71.5` is three). Table 6 of the paper is a list of symbols and
has no numbers. Nothing here is measured, and nothing measured belongs here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from sgoif.errors import UserError

FOLDER = Path(__file__).parent
DATASETS = {  # the paper's name -> the name of the dataset in configurations
    "CIFAR-10": "cifar10", "CIFAR-100": "cifar100", "MNIST": "MNIST", "ImageNet": "imagenet1k",
    "WebVision": "webvision", "Clothing1M": "clothing1m",
}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """One column of numbers: its words as printed, and which quantity on which data they name."""

    group: str
    name: str
    unit: str
    dataset: str = ""
    task: str = "noisy"
    metric: str = ""  # the measured metric of the same name
    also: tuple[
        str, ...
    ] = ()  # other metrics the number may be (Table 1 prints test accuracies, by their public twins)
    kind: str = ""  # of the label noise
    noise: float | None = None
    sparsity: float | None = None
    undefined: str = ""  # key in undefined.yaml
    assumes: str = ""  # key in undefined.yaml
    derived: str = ""  # computed from other cells of the paper, in words

    @property
    def title(self) -> str:
        return " · ".join(w for w in (self.group, self.name) if w)


@dataclass(frozen=True)
class Row:
    name: str
    method: str = ""  # the project's method; with `variant` it is SG-OIF
    variant: str = ""  # a key of InfluenceConfig.ablations()
    group: str = ""


@dataclass(frozen=True)
class Cell:
    """One printed number. `half`: half of its last digit, so that `value` stands for value ± half."""

    table: str
    row: Row
    column: Column
    text: str

    @property
    def value(self) -> float:
        return float(self.text.rstrip("×"))

    @property
    def half(self) -> float:
        _, _, decimals = self.text.rstrip("×").partition(".")
        return 0.5 * 10.0 ** -len(decimals)

    @property
    def name(self) -> str:
        return f"{self.table}, {self.row.name}, {self.column.title}"


@dataclass(frozen=True)
class Table:
    name: str
    label: str
    shows: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    cells: Mapping[tuple[str, str], Cell]  # (row, column title) -> number

    def __iter__(self) -> Iterator[Cell]:
        return iter(self.cells.values())

    def cell(self, row: str, column: str) -> Cell:
        if (row, column) not in self.cells:
            raise UserError(f"{self.name} of the paper has no cell {row!r}, {column!r}")
        return self.cells[row, column]

    def value(self, row: str, column: str) -> float:
        return self.cell(row, column).value

    def row(self, name: str) -> list[float]:
        return [self.value(name, c.title) for c in self.columns]

    def column(self, title: str) -> dict[str, float]:
        return {r.name: self.value(r.name, title) for r in self.rows}


Paper = Mapping[str, Table]  # "Table 1" -> Table


def load(folder: Path = FOLDER) -> dict[str, Table]:
    """All tables with numbers, in the paper's order."""
    tables = [_table(read(path.name, folder), path) for path in sorted(folder.glob("table*.yaml"))]
    return {t.name: t for t in tables}


def read(name: str, folder: Path = FOLDER) -> dict[str, Any]:
    """One YAML file of this folder."""
    import yaml

    return yaml.safe_load((folder / name).read_text())


def digest(folder: Path = FOLDER) -> str:
    """Hash of all numbers, for the rule that writes the ledger."""
    text = "\n".join(f"{p.name}\n{p.read_text()}" for p in sorted(folder.glob("*.yaml")))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _table(raw: Mapping[str, Any], path: Path) -> Table:
    name = f"Table {raw['number']}"
    columns = tuple(_column({**raw.get("defaults", {}), **c}) for c in raw["columns"])
    rows, cells = [], {}
    for line in raw["rows"]:
        words = line["printed"].split()
        if len(words) != len(columns):
            raise UserError(f"{path}: row {line['row']!r} has {len(words)} numbers for {len(columns)} columns")
        method = line.get("method", "sgoif")
        rows.append(Row(line["row"], method, line.get("variant", ""), line.get("group", "")))
        for column, word in zip(columns, words, strict=True):
            cells[line["row"], column.title] = Cell(name, rows[-1], column, word)
    if len(cells) != len(rows) * len(columns):
        raise UserError(f"{path}: two rows or two columns have the same name")
    return Table(name, raw["label"], raw["shows"], tuple(rows), columns, cells)


def _column(raw: Mapping[str, Any]) -> Column:
    unknown = set(raw) - {f.name for f in fields(Column)}
    if unknown:
        raise UserError(f"column {raw.get('name')!r} of the paper's tables has unknown keys {sorted(unknown)}")
    return Column(**{**raw, "also": tuple(raw.get("also", ()))})
