"""What is to be scanned: names, given labels and a way to open each picture, whatever the source.

`read` tells a folder of class folders, a CSV of path and label, and the name of a data set apart.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sgoif.errors import UserError

FEWEST = 5  # images a class needs: fewer make no anchor that could judge a label


@dataclass
class Listing:
    """Examples in a fixed order. `names` identify them in every file that a scan writes."""

    kind: str  # "folder", "csv" or "dataset"
    source: str  # as a person would name it
    names: list[str]
    labels: list[int]
    classes: list[str]
    open: Callable[[int], object]  # position -> PIL image, not yet decoded
    base: Path | None = None  # folder the names are relative to; None where the examples are not files
    left_out: list[tuple[str, str]] = field(default_factory=list)  # (name, reason)

    def __len__(self) -> int:
        return len(self.names)

    def path(self, i: int) -> Path:
        return self.base / self.names[i]

    def counts(self) -> Counter:
        return Counter(self.labels)

    def digest(self) -> str:
        """Identity of names, labels and, for files, sizes and times of change."""
        h = hashlib.sha256(repr((self.kind, self.classes)).encode())
        for i, (name, label) in enumerate(zip(self.names, self.labels, strict=True)):
            h.update(repr((name, label, self.base and _changed(self.path(i)))).encode())
        return h.hexdigest()[:16]

    def only(self, rows: Sequence[int]) -> Listing:
        """The examples at `rows`, with the classes that are left."""
        used = sorted({self.labels[i] for i in rows})
        number = {old: new for new, old in enumerate(used)}
        return Listing(
            kind=self.kind,
            source=self.source,
            names=[self.names[i] for i in rows],
            labels=[number[self.labels[i]] for i in rows],
            classes=[self.classes[c] for c in used],
            open=lambda i: self.open(rows[i]),
            base=self.base,
            left_out=list(self.left_out),
        )

    def judgeable(self, skip_tiny: bool) -> list[int]:
        """Positions of the examples whose label can be judged: there are two classes or more, none of them tiny.

        With `skip_tiny` the examples of tiny classes are left out, otherwise a tiny class is an error.
        """
        counts = self.counts()
        tiny = {c for c in range(len(self.classes)) if counts[c] < FEWEST}
        if tiny and not skip_tiny and len(self.classes) > 1:
            told = ", ".join(f"{self.classes[c]!r} ({counts[c]})" for c in sorted(tiny)[:5])
            more = f" and {len(tiny) - 5} more" if len(tiny) > 5 else ""
            raise UserError(
                f"too few images to judge the labels of {told}{more}: at least {FEWEST} a class are needed; "
                "add images, or leave such classes out with --skip-tiny"
            )
        if len(self.classes) - len(tiny) < 2:
            left = [self.classes[c] for c in range(len(self.classes)) if c not in tiny]
            found = f"one class, {left[0]!r}" if left else f"no class of {FEWEST} images"
            raise UserError(f"{self.source} has {found}; a wrong label can only be seen between two classes or more")
        for name, c in zip(self.names, self.labels, strict=True):
            if c in tiny:
                self.left_out.append((name, f"class {self.classes[c]!r} has fewer than {FEWEST} images"))
        return [i for i, c in enumerate(self.labels) if c not in tiny]


def read(source: str, *, columns=("path", "label"), encoding="utf-8", root="data", split="train", download=False):
    """The listing of a folder, a CSV file, or a data set by name."""
    path = Path(source)
    if path.is_dir():
        return from_folder(path)
    if path.is_file():
        from sgoif.scan.sources.csv_file import from_csv

        return from_csv(path, columns, encoding)
    if os.sep in source or path.suffix:
        raise UserError(f"no folder or file {source}")
    from sgoif.scan.sources.torchvision_sets import from_name

    return from_name(source, root, split, download)


def from_folder(folder: Path) -> Listing:
    """FOLDER/<class>/**/<image>: the label is the name of the first folder. Hidden files are not looked at."""
    from PIL import Image

    kinds = {suffix for suffix, plugin in Image.registered_extensions().items() if plugin in Image.OPEN}
    try:
        classes = sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    except PermissionError:
        raise UserError(f"{folder} may not be read: check its permissions") from None
    names, labels, left_out = [], [], []
    for name in classes:
        for inner, folders, files in os.walk(folder / name, onerror=_refuse):
            folders[:] = sorted(f for f in folders if not f.startswith("."))
            for file in sorted(files):
                if file.startswith(".") or Path(file).suffix.lower() not in kinds:
                    continue
                relative = (Path(inner) / file).relative_to(folder).as_posix()
                if printable(relative) is None:
                    left_out.append((os.fsencode(relative).decode("utf-8", "replace"), "its name is not UTF-8"))
                    continue
                names.append(relative)
                labels.append(name)
    if not names:
        loose = any(p.suffix.lower() in kinds for p in folder.iterdir())
        hint = "its images lie outside class folders" if loose else "there is no image in it"
        raise UserError(f"{folder}: {hint}; expected {folder.name}/<class>/<image>, or a CSV of path and label")
    used = sorted(set(labels))
    number = {name: i for i, name in enumerate(used)}
    return Listing(
        kind="folder",
        source=str(folder),
        names=names,
        labels=[number[name] for name in labels],
        classes=used,
        open=lambda i: Image.open(folder / names[i]),
        base=folder.resolve(),
        left_out=left_out,
    )


def _refuse(error: OSError) -> None:
    raise UserError(f"{error.filename} may not be read ({error.strerror}): check its permissions")


def _changed(path: Path) -> tuple[int, int] | None:
    """(size, time of change), or None for a link that leads nowhere."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_size, about.st_mtime_ns


def printable(name: str) -> str | None:
    """`name`, or None where it cannot be written as UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return None
    return name
