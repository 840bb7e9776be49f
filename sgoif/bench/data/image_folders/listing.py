"""Datasets that stay as they were unpacked: a list of image files instead of arrays, with every fault written down.

Preparing such a dataset reads its official lists, looks at every file, and writes data/<name>/<part>_{paths,labels,ids,
bytes}.npy (and `train_collected_labels.npy` where labels were collected, not assigned). Images are decoded in use.
A line or file that is wrong costs that one image: it is left out, counted in meta.json and named in problems.csv.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sgoif.bench.data.dataset import Dataset
from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_text

TAIL = 4096  # bytes at the end of a file in which the end of the image is looked for


class Entry(NamedTuple):
    """One image of a part: its path in the tree, its true label (-1: not known), and the list and line it came from."""

    path: str
    label: int
    file: str
    line: int
    collected_label: int = -1  # the label it was collected with, where that is not the true one


Parts = dict[str, list[Entry]]


class Problem(NamedTuple):
    kind: str
    file: str
    line: int  # 0: the file as a whole
    detail: str


@dataclass
class Report:
    """What was found wrong with a tree."""

    problems: list[Problem] = field(default_factory=list)

    def add(self, kind: str, file: str, line: int, detail: str) -> None:
        self.problems.append(Problem(kind, file, line, detail))

    def counts(self) -> dict[str, int]:
        return dict(sorted(Counter(p.kind for p in self.problems).items()))

    def __str__(self) -> str:
        return ", ".join(f"{n:,} × {kind}" for kind, n in self.counts().items()) or "nothing wrong"

    def write(self, path: Path) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(Problem._fields)
        writer.writerows(self.problems)
        atomic_write_text(path, text.getvalue())


@dataclass(frozen=True)
class Layout:
    """How one official layout is read. `marks`: files or folders ({name}: the dataset's name) by which a tree is
    recognised; one is enough."""

    read: Callable[[Dataset, Path, Report], Parts]
    marks: tuple[str, ...]


def places(d: Dataset, data_root: Path, mirror: Path | None) -> list[Path]:
    """Where the tree of a dataset may lie, the first choice first."""
    return [*([mirror / d.folder] if mirror else []), data_root / "downloads" / d.folder]


def locate(d: Dataset, data_root: Path, mirror: Path | None) -> Path | None:
    """The unpacked dataset, if it is on this machine."""
    from sgoif.bench.data.image_folders.layouts import LAYOUTS

    if d.tree is None:
        return None
    for place in places(d, data_root, mirror):
        if any((place / mark.format(name=d.name)).exists() for mark in LAYOUTS[d.tree].marks):
            return place
    return None


def how_to_get(d: Dataset, data_root: Path, mirror: Path | None = None) -> str:
    """Where to get a dataset, where to put it, how much room it needs."""
    room = f"{d.needs_mb / 1000:,.0f} GB" if d.needs_mb >= 1000 else f"{d.needs_mb} MB"
    here = places(d, data_root, mirror)[0]
    other = "" if mirror else f", or into {d.folder}/ of a folder that SGOIF_DATA names"
    return f"needs {d.gated}; unpack it into {here}{other}; {room} of disk"


def read(d: Dataset, tree: Path) -> tuple[dict[str, np.ndarray], Report]:
    """The arrays of every part, and what was left out."""
    from sgoif.bench.data.image_folders.layouts import LAYOUTS

    report = Report()
    parts = LAYOUTS[d.tree].read(d, tree, report)
    arrays: dict[str, np.ndarray] = {}
    for part, entries in parts.items():
        kept, sizes = _whole(tree, entries, report)
        if not kept:
            raise UserError(f"{d.name}: no usable {part} image in {tree} ({report}); unpack the dataset again")
        arrays[f"{part}_paths"] = np.array([os.fsencode(e.path) for e in kept])
        arrays[f"{part}_labels"] = np.array([e.label for e in kept], np.int64)
        arrays[f"{part}_bytes"] = np.array(sizes, np.int64)
        arrays[f"{part}_ids"] = path_ids([e.path for e in kept])
        if d.truth != "all" and part == "train":
            arrays["train_collected_labels"] = np.array([e.collected_label for e in kept], np.int64)
    return arrays, report


def path_ids(paths: list[str]) -> np.ndarray:
    """uint64 [N]: who an image is, by its path in the tree (no path occurs twice in a part)."""
    digests = (hashlib.blake2b(os.fsencode(p), digest_size=8).digest() for p in paths)
    return np.frombuffer(b"".join(digests), "<u8").copy()


def _whole(tree: Path, entries: list[Entry], report: Report) -> tuple[list[Entry], list[int]]:
    """The entries whose file is there and looks whole, and the files' sizes."""
    kept, sizes = [], []
    with ThreadPoolExecutor(min(32, 4 * (os.cpu_count() or 1))) as pool:
        for entry, (size, wrong) in zip(entries, pool.map(lambda e: fault(tree / e.path), entries), strict=True):
            if wrong:
                kind, detail = wrong
                report.add(kind, entry.path, 0, f"{detail} (listed in {entry.file}, line {entry.line})")
            else:
                kept.append(entry)
                sizes.append(size)
    return kept, sizes


def fault(path: Path) -> tuple[int, tuple[str, str] | None]:
    """(size, what is wrong with an image file or None). Only files without a proper end are decoded."""
    try:
        with open(path, "rb") as f:
            head = f.read(8)
            size = f.seek(0, os.SEEK_END)
            f.seek(max(0, size - TAIL))
            tail = f.read(TAIL)
    except FileNotFoundError:
        return 0, ("missing file", "no such file")
    except OSError as e:
        return 0, ("unreadable file", e.strerror or str(e))
    if not size:
        return 0, ("empty file", "0 bytes")
    ends = {b"\xff\xd8": b"\xff\xd9", b"\x89P": b"IEND"}
    if (end := ends.get(head[:2])) and end in tail:
        return size, None
    return size, _decodes(path)


def _decodes(path: Path) -> tuple[str, str] | None:
    from torchvision.io import ImageReadMode, decode_image, read_file

    try:
        decode_image(read_file(str(path)), ImageReadMode.RGB)
    except (RuntimeError, OSError) as e:
        return "broken image", " ".join(str(e).split())[:120]
    return None


# ------------------------------------------------------------------------------------------------ lists


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number, text) of the lines that are not empty, counted from 1."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as f:
            for number, line in enumerate(f, 1):
                if line.strip():
                    yield number, line.strip()
    except FileNotFoundError:
        raise UserError(f"{path} is missing; it is part of the dataset: unpack the dataset again") from None


def keys(path: Path, report: Report) -> dict[str, int]:
    """A list of paths, one per line: {path: line}."""
    found: dict[str, int] = {}
    for number, text in lines(path):
        _keep(found, text, number, number, path.name, report)
    return found


def pairs(path: Path, n_classes: int, report: Report) -> dict[str, tuple[int, int]]:
    """A list of `path label`: {path: (label, line)}. Labels must lie in 0 .. n_classes - 1."""
    found: dict[str, tuple[int, int]] = {}
    for number, text in lines(path):
        key, _, label = text.rpartition(" ")
        if not key or not label.lstrip("-").isdigit():
            report.add("malformed line", path.name, number, f"expected `path label`, got {text[:80]!r}")
        elif not 0 <= int(label) < n_classes:
            report.add("label out of range", path.name, number, f"{label} is not in 0 .. {n_classes - 1}")
        else:
            _keep(found, key.strip(), number, (int(label), number), path.name, report)
    return found


def _keep(found: dict, key: str, number: int, value, file: str, report: Report) -> None:
    if key.startswith("/") or ".." in key.split("/"):
        report.add("path outside the tree", file, number, key[:120])
    elif key in found:
        first = found[key] if isinstance(found[key], int) else found[key][1]
        report.add("duplicate key", file, number, f"{key} is in line {first} already, which counts")
    else:
        found[key] = value
