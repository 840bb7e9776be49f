"""The types that layouts and listing share: entries, problems and layouts of unpacked datasets."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sgoif.bench.data.dataset import Dataset
from sgoif.utils.files import atomic_write_text

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".webp")


class ImageEntry(NamedTuple):
    """One image of a part.

    Attributes:
        path: Its path inside the unpacked folder.
        true_label: Its true label; -1 if it is not known.
        file: The list it was read from.
        line: The line of that list.
        collected_label: The label it was collected with, where that is not the true one; else -1.
    """

    path: str
    true_label: int
    file: str
    line: int
    collected_label: int = -1


Entries = dict[str, list[ImageEntry]]  # part -> its images


class Problem(NamedTuple):
    """One fault of an unpacked dataset; line 0 means the file as a whole."""

    kind: str
    file: str
    line: int
    detail: str


@dataclass
class ProblemReport:
    """Everything that was found wrong with an unpacked dataset."""

    problems: list[Problem] = field(default_factory=list)

    def add(self, kind: str, file: str, line: int, detail: str) -> None:
        """Add a problem."""
        self.problems.append(Problem(kind, file, line, detail))

    def counts(self) -> dict[str, int]:
        """Return the number of problems of each kind."""
        return dict(sorted(Counter(p.kind for p in self.problems).items()))

    def __str__(self) -> str:
        return ", ".join(f"{n:,} × {kind}" for kind, n in self.counts().items()) or "nothing wrong"

    def write(self, path: Path) -> None:
        """Write all problems to a CSV file."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(Problem._fields)
        writer.writerows(self.problems)
        atomic_write_text(path, text.getvalue())


@dataclass(frozen=True)
class FolderLayout:
    """How one official layout is recognised and read.

    Attributes:
        read: Lists the images of all parts; takes the dataset, its folder and the report of problems.
        marks: Files or folders by which the layout is recognised, one is enough; {name} is the dataset's name.
    """

    read: Callable[[Dataset, Path, ProblemReport], Entries]
    marks: tuple[str, ...]
