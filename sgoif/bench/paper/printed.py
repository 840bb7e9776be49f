"""The numbers of the SG-OIF paper as printed.

One YAML file per table, and the public numbers they are compared with. A printed number is one `PrintedNumber`; a field
like `12.8/48.3/71.5` is three. Table 6 of the paper is a list of symbols and has no numbers. Nothing here is measured.
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
class PrintedColumn:
    """One column of a printed table: its heading, and which quantity on which data it names.

    Attributes:
        group: Heading above several columns, or "".
        name: Heading of the column.
        unit: "%", "×" or "".
        dataset: The paper's name of the dataset.
        task: "noisy" or "ood".
        metric: The measured metric of the same name, or "".
        also: Other metrics that the number may be (Table 1 prints test accuracies, as public numbers show).
        kind: Kind of label noise, or "" where the paper names none.
        noise: Noise rate.
        sparsity: Sparsity of the noise matrix.
        undefined: Key in undefined.yaml where the paper does not define the quantity, or "".
        assumes: Key in undefined.yaml where the measurement needs an assumption, or "".
        derived: How the paper computes the column from other numbers, in words, or "".
    """

    group: str
    name: str
    unit: str
    dataset: str = ""
    task: str = "noisy"
    metric: str = ""
    also: tuple[str, ...] = ()
    kind: str = ""
    noise: float | None = None
    sparsity: float | None = None
    undefined: str = ""
    assumes: str = ""
    derived: str = ""

    @property
    def title(self) -> str:
        """Group and name joined."""
        return " · ".join(w for w in (self.group, self.name) if w)


@dataclass(frozen=True)
class PrintedRow:
    """One row of a printed table.

    Attributes:
        name: As printed.
        method: The project's method; "sgoif" where the row is a variant of SG-OIF.
        variant: A key of `InfluenceConfig.ablations()`, or "".
        group: Heading above several rows, or "".
    """

    name: str
    method: str = ""
    variant: str = ""
    group: str = ""


@dataclass(frozen=True)
class PrintedNumber:
    """One printed number, which stands for `value` ± `half_digit`."""

    table: str
    row: PrintedRow
    column: PrintedColumn
    text: str

    @property
    def value(self) -> float:
        """The number without its unit."""
        return float(self.text.rstrip("×"))

    @property
    def half_digit(self) -> float:
        """Half of the last printed digit."""
        _, _, decimals = self.text.rstrip("×").partition(".")
        return 0.5 * 10.0 ** -len(decimals)

    @property
    def name(self) -> str:
        """Table, row and column in words."""
        return f"{self.table}, {self.row.name}, {self.column.title}"


@dataclass(frozen=True)
class PrintedTable:
    """One table of the paper; iterating gives its numbers row by row.

    Attributes:
        name: "Table 1".
        label: The label in the paper's source.
        shows: What the table shows, in words.
        rows: Rows in printed order.
        columns: Columns in printed order.
        numbers: (row name, column title) -> number.
    """

    name: str
    label: str
    shows: str
    rows: tuple[PrintedRow, ...]
    columns: tuple[PrintedColumn, ...]
    numbers: Mapping[tuple[str, str], PrintedNumber]

    def __iter__(self) -> Iterator[PrintedNumber]:
        return iter(self.numbers.values())

    def number(self, row: str, column: str) -> PrintedNumber:
        """Return the number at a row name and a column title.

        Raises:
            UserError: If the table has no such place.
        """
        if (row, column) not in self.numbers:
            raise UserError(f"{self.name} of the paper has no number at row {row!r}, column {column!r}")
        return self.numbers[row, column]

    def value(self, row: str, column: str) -> float:
        """Return the value at a row name and a column title."""
        return self.number(row, column).value

    def column(self, title: str) -> dict[str, float]:
        """Return row name -> value of one column."""
        return {r.name: self.value(r.name, title) for r in self.rows}


Paper = Mapping[str, PrintedTable]  # "Table 1" -> table


def load(folder: Path = FOLDER) -> dict[str, PrintedTable]:
    """Read all tables with numbers, in the paper's order.

    Raises:
        UserError: If a row has too few or too many numbers, or two rows or columns have one name.
    """
    tables = [_table(read(path.name, folder), path) for path in sorted(folder.glob("table*.yaml"))]
    return {t.name: t for t in tables}


def read(name: str, folder: Path = FOLDER) -> dict[str, Any]:
    """Read one YAML file of this folder."""
    import yaml

    content: dict[str, Any] = yaml.safe_load((folder / name).read_text())
    return content


def digest(folder: Path = FOLDER) -> str:
    """Return a hash of all numbers, a parameter of the rule that writes the ledger."""
    text = "\n".join(f"{p.name}\n{p.read_text()}" for p in sorted(folder.glob("*.yaml")))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _table(raw: Mapping[str, Any], path: Path) -> PrintedTable:
    name = f"Table {raw['number']}"
    columns = tuple(_column({**raw.get("defaults", {}), **c}) for c in raw["columns"])
    rows: list[PrintedRow] = []
    numbers: dict[tuple[str, str], PrintedNumber] = {}
    for line in raw["rows"]:
        words = line["printed"].split()
        if len(words) != len(columns):
            raise UserError(f"{path}: row {line['row']!r} has {len(words)} numbers for {len(columns)} columns")
        row = PrintedRow(line["row"], line.get("method", "sgoif"), line.get("variant", ""), line.get("group", ""))
        rows.append(row)
        for column, word in zip(columns, words, strict=True):
            numbers[row.name, column.title] = PrintedNumber(name, row, column, word)
    if len(numbers) != len(rows) * len(columns):
        raise UserError(f"{path}: two rows or two columns have the same name")
    return PrintedTable(name, raw["label"], raw["shows"], tuple(rows), columns, numbers)


def _column(raw: Mapping[str, Any]) -> PrintedColumn:
    unknown = set(raw) - {f.name for f in fields(PrintedColumn)}
    if unknown:
        raise UserError(f"column {raw.get('name')!r} of the paper's tables has unknown keys {sorted(unknown)}")
    return PrintedColumn(**{**raw, "also": tuple(raw.get("also", ()))})
