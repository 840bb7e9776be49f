"""The model of a table: blocks of rows and columns, entries with their marks, and how a number is printed.

Builders fill it, `markdown`, `latex` and `table_files` write it down, the HTML report shows it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

BEST = "best"  # mark of the best entry of a column
CLOSE = "close"  # mark of entries that are not significantly worse
NO_VALUE = "–"


class NumberStyle(NamedTuple):
    """How the numbers of a column are printed.

    Attributes:
        factor: What a number is multiplied with.
        decimals: Digits after the point.
        unit: Sign behind the number.
        shows_spread: Whether the standard deviation is printed.
    """

    factor: float
    decimals: int
    unit: str
    shows_spread: bool


STYLES = {
    "percent": NumberStyle(100, 1, "", True),
    "times": NumberStyle(1, 2, "×", True),
    "seconds": NumberStyle(1, 1, "", False),
    "milliseconds": NumberStyle(1000, 3, "", False),
    "megabytes": NumberStyle(1, 0, "", False),
    "number1": NumberStyle(1, 1, "", False),
    "number2": NumberStyle(1, 2, "", True),
    "fraction": NumberStyle(1, 3, "", True),
    "points": NumberStyle(100, 2, "", True),
    "interval": NumberStyle(100, 2, "", False),
    "count": NumberStyle(1, 0, "", False),
    "p": NumberStyle(1, 3, "", False),
}


@dataclass
class Column:
    """A column.

    Attributes:
        group: Heading above neighbouring columns; may be empty.
        title: Heading of the column.
        metric: The metric it shows.
        better: "higher", "lower", or "" for a column without a best.
        style: One of `STYLES`.
    """

    group: str
    title: str
    metric: str
    better: str = "higher"
    style: str = "percent"


@dataclass
class Entry:
    """One cell of a table: a number, or a status (`failed`, `not run`, ...) instead, or nothing.

    Attributes:
        mean: The number, None if there is none.
        std: Its standard deviation, None if it is not known.
        n_seeds: Number of values behind the mean.
        status: "ok", or what happened instead of (all) numbers.
        note: Number of the note that gives the reason.
        mark: `BEST`, `CLOSE` or "".
        pairs: Single values by seed or setting, for paired tests.
        independent: Whether the pairs are of independent draws; if not, no test counts them.
    """

    mean: float | None = None
    std: float | None = None
    n_seeds: int = 0
    status: str = "ok"
    note: int | None = None
    mark: str = ""
    pairs: dict[Hashable, float] = field(default_factory=dict, repr=False)
    independent: bool = True


@dataclass
class Row:
    """A row: one method, or with method "" a reference such as the base rate."""

    group: str
    method: str
    title: str
    entries: list[Entry]


@dataclass
class Block:
    """A rectangle of rows and columns with a title above and a sentence below.

    Attributes:
        title: Title; may be empty.
        columns: The columns.
        rows: The rows, each with one entry for each column.
        corner: Headings of the column groups and of the rows.
        footer: Sentence below; may be empty.
    """

    title: str
    columns: list[Column]
    rows: list[Row]
    corner: tuple[str, str] = ("", "method")
    footer: str = ""

    @property
    def has_groups(self) -> bool:
        """Whether the rows stand under more than one heading."""
        return len({row.group for row in self.rows}) > 1

    def starts_group(self, index: int) -> bool:
        """Return whether a heading stands above the row of this index."""
        return self.has_groups and (index == 0 or self.rows[index].group != self.rows[index - 1].group)


@dataclass
class Table:
    """A table.

    Attributes:
        name: Name of its files.
        kind: One of `TABLE_KINDS`.
        title: Title.
        caption: Sentences; {best} and {close} stand for the marks of the format.
        blocks: The blocks.
        notes: Numbered reasons, which entries refer to.
    """

    name: str
    kind: str
    title: str
    caption: list[str]
    blocks: list[Block]
    notes: list[str]


def format_number(value: float, style: str) -> str:
    """Return a number as printed, without its unit."""
    factor, decimals, _, _ = STYLES[style]
    text = f"{factor * value:,.{decimals}f}"
    is_negative_zero = text.startswith("-") and not text.strip("-0.")
    return text[1:] if is_negative_zero else text


def format_entry(entry: Entry, style: str) -> tuple[str, str, str]:
    """Return mean, spread and unit of an entry with a number as printed; the spread is empty where there is none."""
    if entry.mean is None:
        raise ValueError("the entry has no number")
    _, _, unit, shows_spread = STYLES[style]
    spread = format_number(entry.std, style) if shows_spread and entry.std is not None else ""
    return format_number(entry.mean, style), spread, unit


def placeholder(entry: Entry) -> str:
    """Return what stands in the place of a number that is missing."""
    if entry.status == "ok":
        return NO_VALUE
    return f"{entry.status} [{entry.note}]" if entry.note else entry.status


def name_marks(text: str, best: str, close: str) -> str:
    """Fill {best} and {close} in a caption with how a format shows these marks."""
    return text.replace("{best}", best).replace("{close}", close)


def one_line(text: str) -> str:
    """Join the lines of a text by single spaces."""
    return " ".join(str(text).split())
