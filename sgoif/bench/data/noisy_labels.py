"""A dataset with a noise setting: given labels for the methods in one file, the truth for the evaluation in another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from sgoif.bench.data import catalogue, load
from sgoif.bench.data.noise.corrupt import Corruption, check_spec, corrupt
from sgoif.errors import UserError
from sgoif.utils.files import load_npz, save_npz

HUMAN = {"cifar10": "cifar10n", "cifar100": "cifar100n"}  # dataset -> its human label file


def check_setting(dataset: str, spec: Mapping, where: str = "noise") -> None:
    """Refuses a specification that cannot be applied to this dataset. Needs no data."""
    d = catalogue.get(dataset)
    if d.kind != "labelled":
        raise UserError(f"{where}: {dataset} is not a set to learn from ({d.kind}), so its labels cannot be corrupted")
    check_spec(spec, d.n_classes, classes=d.classes, superclasses=d.superclasses, where=where)
    if spec["kind"] == "human" and dataset not in HUMAN:
        raise UserError(f"{where}.kind: human labels exist for {' and '.join(HUMAN)}, not for {dataset}")
    if (spec["kind"] == "collected") != (d.truth != "all"):
        have = "labels of its own that nobody checked: only `collected`" if d.truth != "all" else "no collected labels"
        raise UserError(f"{where}.kind: {dataset} has {have}")


def inputs(dataset: str, spec: Mapping) -> tuple[str, ...]:
    """The datasets that must be prepared for this setting."""
    return (dataset, HUMAN[dataset]) if spec["kind"] == "human" else (dataset,)


def write_setting(data_root: Path | str, results: Path | str, dataset: str, setting: str, spec: Mapping) -> Corruption:
    """Writes the given labels (given, ids) and the truth (clean, wrong, ids, rate, matrix) to their `paths`.

    The truth of collected labels has `known` instead of a matrix.

    The same specification gives the same bytes, and an unchanged file is left alone.
    """
    check_setting(dataset, spec)
    d = catalogue.get(dataset)
    clean, ids = load.labels(data_root, dataset, "train"), load.ids(data_root, dataset, "train")
    if spec["kind"] == "collected":
        return _write_collected(load.given(data_root, dataset), clean, ids, paths(results, dataset, setting))
    human = load.human(data_root, HUMAN[dataset]) if spec["kind"] == "human" else None
    done = corrupt(clean, d.n_classes, spec, superclasses=d.superclasses, human=human)
    labels_file, truth_file = paths(results, dataset, setting)
    save_npz(truth_file, clean=clean, wrong=done.wrong, ids=ids, rate=np.float64(done.rate), matrix=done.matrix)
    save_npz(labels_file, given=done.given, ids=ids)
    return done


def _write_collected(given: np.ndarray, clean: np.ndarray, ids: np.ndarray, files: tuple[Path, Path]) -> Corruption:
    """Labels as they were collected; `known` says for which images (clean >= 0) the truth is known."""
    known = clean >= 0
    wrong = known & (given != clean)
    rate = float(wrong[known].mean()) if known.any() else float("nan")
    save_npz(files[1], clean=clean, wrong=wrong, known=known, ids=ids, rate=np.float64(rate))
    save_npz(files[0], given=given, ids=ids)
    return Corruption(given, wrong, rate, np.empty((0, 0)))


def paths(results: Path | str, dataset: str, setting: str) -> tuple[Path, Path]:
    """Where the given labels and the truth of a setting lie."""
    return tuple(Path(results) / kind / dataset / f"{setting}.npz" for kind in ("labels", "truth"))


def read_given(file: Path | str, data_root: Path | str, dataset: str) -> np.ndarray:
    """The given labels int64 [N] in the dataset's order, after making sure that they belong to this dataset."""
    labels = joined(load_npz(file), "given", load.ids(data_root, dataset, "train"), str(file))
    n = catalogue.get(dataset).n_classes
    if labels.dtype.kind not in "iu" or not (0 <= labels.min() and labels.max() < n):
        raise UserError(f"{file}: `given` are not labels 0 .. {n - 1} of {dataset}; delete it and run again")
    return labels


def joined(table: Mapping[str, np.ndarray], column: str, ids: np.ndarray, where: str) -> np.ndarray:
    """A column of a table with `ids`, brought into the order of `ids`. An id too many, missing or double is refused."""
    if not {"ids", column} <= set(table) or table["ids"].ndim != 1 or table[column].shape != table["ids"].shape:
        raise UserError(f"{where} does not hold one `{column}` for each of its `ids`; delete it and run again")
    theirs = table["ids"]
    if np.array_equal(theirs, ids):
        return table[column]
    order, mine = np.argsort(theirs, kind="stable"), np.argsort(ids, kind="stable")
    if len(theirs) != len(ids) or not np.array_equal(theirs[order], ids[mine]):
        strangers = len(np.setdiff1d(theirs, ids))
        raise UserError(
            f"{where}: {len(theirs)} examples, {strangers} of them unknown, for a dataset of {len(ids)}; "
            "the file belongs to other data: delete it and run again"
        )
    out = np.empty_like(table[column])
    out[mine] = table[column][order]
    return out
