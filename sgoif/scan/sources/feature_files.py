"""Files of features and labels: .npy, .npz, .parquet, a Hugging Face data set on disk, and a CSV or .npy of labels."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sgoif.errors import InfluenceError, UserError
from sgoif.features.labels import ClassLabels, encode_labels
from sgoif.scan.decode import Unreadable
from sgoif.scan.sources.arrow_tables import ArrowTable, open_huggingface, open_parquet
from sgoif.scan.sources.csv_rows import CsvHints, read_rows
from sgoif.scan.sources.image_listing import Listing
from sgoif.scan.sources.one_class import require_one_class
from sgoif.scan.sources.regular_files import open_image_file, require_no_special

SUFFIXES = ".npy, .npz, .parquet, or the folder of a Hugging Face data set (save_to_disk)"
FEATURE_NAMES = ("features", "embeddings", "embedding", "X", "x")  # of arrays in .npz, columns in tables
LABEL_NAMES = ("labels", "label", "y")
MAX_NAMED = 8  # columns in a message


@dataclass
class FeatureFile:
    """Features and labels of N examples.

    Attributes:
        listing: The examples; those without an image open as `Unreadable`.
        load: Returns the features, shape [N, d], given a folder where it may write a mapped file.
        state: What changes when the file does.
    """

    listing: Listing
    load: Callable[[Path], np.ndarray]
    state: str


def read_features(features: Path, labels: Path | None, columns: tuple[str, str], encoding: str) -> FeatureFile:
    """Open a file of features and the labels beside or inside it.

    Args:
        features: File or folder of the features.
        labels: CSV or .npy of the labels; None where the features' file has them.
        columns: Names of the columns with the image's path, which may be missing, and the label.
        encoding: Encoding of a CSV.

    Raises:
        UserError: If a file cannot be read, or holds no features or labels that can be used.
    """
    load, own, n = _open_features(features, columns[1])
    names, base = None, None
    classes: list[str] | None = None
    if labels is not None:
        given, names, base = _read_labels(labels, columns, encoding)
        where = str(labels)
    elif own is not None:
        given, classes = own
        where = str(features)
    else:
        raise UserError(f"{features} has no labels; name their file with --labels, a CSV with the column {columns[1]}")
    try:
        known = encode_labels(given, n)
    except InfluenceError as e:
        raise UserError(f"{where}: {e}") from None
    width = len(str(n - 1))
    found = names or [f"row/{i:0{width}d}" for i in range(n)]
    listing = Listing(
        kind="features",
        source=str(features),
        names=found,
        labels=known.codes.tolist(),
        classes=_class_names(where, known, classes),
        open=_opener(found, base),
        base=base,
    )
    state = features.stat()
    return FeatureFile(listing, load, f"{state.st_size}-{state.st_mtime_ns}")


def _class_names(where: str, labels: ClassLabels, names: list[str] | None) -> list[str]:
    """Return what the classes are called; `names` are those of a Hugging Face ClassLabel, by number."""
    classes = labels.classes.tolist()
    if names is None:
        return [str(c) for c in classes]
    nameless = [i for i, c in enumerate(classes) if not isinstance(c, int) or not 0 <= c < len(names)]
    if nameless:
        row = int(np.flatnonzero(np.isin(labels.codes, nameless))[0])
        raise UserError(
            f"{where}: row {row} has the label {classes[labels.codes[row]]!r}, which is none of its {len(names)} "
            f"classes (0 to {len(names) - 1}; -1 is no label); leave such rows out, or label them"
        )
    return [names[c] for c in classes]


def _opener(names: list[str], base: Path | None) -> Callable[[int], Any]:
    def open(i: int) -> Any:
        if base is None:
            raise Unreadable("features, no image")
        return open_image_file(base / names[i])

    return open


Own = tuple[Any, list[str] | None]  # labels, and the names of the classes that they number


def _open_features(path: Path, label: str) -> tuple[Callable[[Path], np.ndarray], Own | None, int]:
    """Return how to load the features, the labels that lie beside them, and the number of examples."""
    if path.is_dir():
        return _from_table(open_huggingface(path), path, label)
    require_no_special(path, f"expected a file of features: {SUFFIXES}")
    if not path.is_file():
        raise UserError(f"--features {path}: no such file or folder")
    if path.suffix == ".parquet":
        return _from_table(open_parquet(path), path, label)
    if path.suffix == ".npz":
        return _from_npz(path)
    if path.suffix != ".npy":
        raise UserError(f"--features {path}: unknown kind of file; expected {SUFFIXES}")
    mapped = _load(path)
    return lambda folder: mapped, None, len(mapped)


def _load(path: Path) -> Any:
    try:
        found = np.load(path, mmap_mode="r" if path.suffix == ".npy" else None, allow_pickle=False)
        kind = ".npy" if isinstance(found, np.ndarray) else ".npz"
        if path.suffix != kind:
            raise ValueError(f"it is a {kind}; give it that suffix")
        if isinstance(found, np.ndarray) and found.ndim == 0:
            raise ValueError("it holds a single number")
        return found
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as e:
        reason = "no array of numbers" if "pickle" in str(e) else " ".join(str(e).split())[:160]
        raise UserError(f"{path} cannot be read ({reason}); save plain arrays of numbers with numpy.save") from None


def _from_npz(path: Path) -> tuple[Callable[[Path], np.ndarray], Own | None, int]:
    with _load(path) as archive:
        named = [name for name in FEATURE_NAMES if name in archive.files]
        if not named:
            there = ", ".join(archive.files[:MAX_NAMED]) or "nothing"
            raise UserError(f"{path} holds {there}; call the array of features `features`, and that of labels `labels`")
        features = _member(path, archive, named[0])
        label = next((name for name in LABEL_NAMES if name in archive.files), None)
        own = None if label is None else (_member(path, archive, label), None)
    return lambda folder: features, own, len(features)


def _member(path: Path, archive: Any, name: str) -> np.ndarray:
    try:
        values = np.asarray(archive[name])
    except ValueError:
        raise UserError(f"{path}: {name} holds Python objects, which are not read; save numbers or texts") from None
    if values.ndim == 0:
        raise UserError(f"{path}: {name} holds a single number; save an array with a row for each example")
    return values


def _from_table(table: ArrowTable, path: Path, label: str) -> tuple[Callable[[Path], np.ndarray], Own | None, int]:
    own = None
    if label in table.columns:
        own = (table.labels(label), table.class_names(label))
    named = [name for name in FEATURE_NAMES if name in table.lists]
    chosen = named[:1] or table.lists[:1] or [name for name in table.numbers if name != label]
    if not chosen:
        there = ", ".join(table.columns[:MAX_NAMED])
        raise UserError(f"{path} has no column of numbers or of lists of numbers; its columns are: {there}")
    if unused := [name for name in table.columns if name not in {label, *chosen, *table.index}]:
        there = ", ".join(unused[:MAX_NAMED]) + (", …" if len(unused) > MAX_NAMED else "")
        what = "a column of lists is" if chosen[0] in table.lists else "columns of numbers are"
        print(f"note: {path}: {what} used, and not these columns: {there}", file=sys.stderr)
    return lambda folder: table.matrix(chosen, folder / "features.npy"), own, table.n


def _read_labels(path: Path, columns: tuple[str, str], encoding: str) -> tuple[Any, list[str] | None, Path | None]:
    """Return labels, the names of the examples, and the folder they are relative to where they are image files."""
    expected = f"expected a CSV with the column {columns[1]}, or a .npy"
    if path.is_dir() or not path.exists():
        raise UserError(f"--labels {path}: no such file; {expected}")
    if path.suffix == ".npy":
        return np.asarray(_load(path)), None, None
    if path.suffix not in (".csv", ".tsv", ".txt"):
        raise UserError(
            f"--labels {path}: unknown kind of file; expected a CSV with the column {columns[1]}, or a .npy"
        )
    hints = CsvHints(
        encoding=", or name its encoding, e.g. --encoding latin-1", columns=" (--label-column chooses one)"
    )
    rows = read_rows(path, columns[1:], encoding, hints=hints)
    empty = next((row.line for row in rows if not row.cells[0]), None)
    if empty is not None:
        raise UserError(f"{path}, line {empty}: the {columns[1]} is empty; leave such examples out, or label them")
    cells = [row.cells[0] for row in rows]
    require_one_class(path, [row.line for row in rows], cells)
    given = np.array(cells)
    try:
        names = [row.cells[0] for row in read_rows(path, columns[:1], encoding)]
    except UserError:  # no column of paths
        return given, None, None
    if len(set(names)) < len(names):
        raise UserError(f"{path}: a {columns[0]} is listed twice; every example needs its own")
    base = path.resolve().parent
    return given, names, base if (base / names[0]).is_file() else None
