"""Write and read the labels of one dataset under one noise setting.

A setting has two files: results/<run>/labels/<dataset>/<setting>.npz with the noisy labels, which methods may read, and
results/<run>/truth/<dataset>/<setting>.npz with the true labels, which only the evaluation may read.

Every seed of a run draws its own noise. Draw 0, that of seed 0, is the noise as the setting specifies it: with the
published matrices, the published labels. Draw d > 0 has the seed `seed + 1000 d` and the files <setting>.draw<d>.npz.
Labels that nobody draws (human, published, collected, of a file) are the same for all seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sgoif.bench.data import catalogue, load
from sgoif.bench.data.noise import subset
from sgoif.bench.data.noise.corrupt import Corruption, corrupt
from sgoif.bench.data.noise.label_file import read_label_file
from sgoif.bench.data.noise.spec import check_spec
from sgoif.errors import UserError
from sgoif.utils.files import load_npz, save_npz

TRAINING_KEYS = ("recipe",)  # of a setting: how networks are trained on it
UNDRAWN_KINDS = ("clean", "human", "published", "collected", "file")  # kinds of noise that no seed draws
SEED_STEP = 1000  # between the noise seeds of two draws: far from those of neighbouring settings
LABEL_FILES = {  # kind of noise -> dataset -> the dataset of its labels
    "human": {"cifar10": "cifar10n", "cifar100": "cifar100n"},
    "published": {"imagenette": "imagenette_noisy"},
}


class SettingFiles(NamedTuple):
    """The two files of a noise setting."""

    labels: Path
    truth: Path


def setting_files(run_dir: Path | str, dataset: str, setting: str, draw: int = 0) -> SettingFiles:
    """Return the paths of the labels and of the truth of a draw of a setting."""
    name = f"{setting}{draw_suffix(draw)}.npz"
    return SettingFiles(Path(run_dir) / "labels" / dataset / name, Path(run_dir) / "truth" / dataset / name)


def draw_suffix(draw: int) -> str:
    """Return what the names of a draw's files have after the name of the setting; nothing for draw 0."""
    return f".draw{draw}" if draw else ""


def is_drawn(spec: Mapping[str, Any]) -> bool:
    """Say whether a seed draws the noise of a setting; else its labels are the same for all seeds."""
    return spec["kind"] not in UNDRAWN_KINDS


def draw_of_seed(spec: Mapping[str, Any], seed: int) -> int:
    """Return which draw of a setting a seed of the run uses: its own, or 0 where nothing is drawn."""
    return seed if is_drawn(spec) else 0


def drawn(spec: Mapping[str, Any], draw: int) -> dict[str, Any]:
    """Return the specification of a draw of a setting; draw 0 is the setting itself."""
    if not draw:
        return dict(spec)
    return {**spec, "seed": (spec.get("seed", 0) + SEED_STEP * draw) % 2**32}


def check_setting(dataset: str, spec: Mapping[str, Any], where: str = "noise") -> None:
    """Check, without reading any data, that a noise specification can be applied to a dataset.

    Args:
        dataset: Name of the dataset.
        spec: Noise specification, see `noise/corrupt.py`.
        where: Path of the specification in the configuration, for messages.

    Raises:
        UserError: If it cannot be applied; the message names the key.
    """
    d = catalogue.get(dataset)
    if d.kind != "labelled":
        raise UserError(f"{where}: {dataset} is not a set to learn from ({d.kind}), so its labels cannot be corrupted")
    wanted = subset.read_subset(spec, d.n_classes, where)
    if wanted is not None and not d.layout:  # of unpacked images only the listing knows how many there are
        wanted.check_size(d.parts["train"], where)
    check_spec(noise_of(spec), d.n_classes, classes=d.classes, superclasses=d.superclasses, where=where)
    kind = spec["kind"]
    if dataset not in (known := LABEL_FILES.get(kind, {dataset: ""})):
        raise UserError(f"{where}.kind: {kind} labels exist for {' and '.join(known)}, not for {dataset}")
    has_collected_labels = d.truth != "all"
    if has_collected_labels and spec["kind"] != "collected":
        raise UserError(f"{where}.kind: {dataset} has labels of its own, which were never checked; use `collected`")
    if not has_collected_labels and spec["kind"] == "collected":
        raise UserError(f"{where}.kind: {dataset} has no collected labels")


def noise_of(setting: Mapping[str, Any]) -> dict[str, Any]:
    """Return the noise specification of a setting, without what it says of the images and of the training.

    `seed` also draws the part of the images; noise that is not drawn does not know it.
    """
    noise = {key: value for key, value in setting.items() if key not in (*subset.KEYS, *TRAINING_KEYS)}
    if subset.is_subset(setting) and setting["kind"] in UNDRAWN_KINDS:
        noise.pop("seed", None)
    return noise


def required_datasets(dataset: str, spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the datasets that must be prepared before a setting can be written."""
    labels = LABEL_FILES.get(spec["kind"])
    return (dataset, labels[dataset]) if labels else (dataset,)


def write_setting(
    data_root: Path | str, run_dir: Path | str, dataset: str, setting: str, spec: Mapping[str, Any], draw: int = 0
) -> Corruption:
    """Write the two files of a draw of a setting.

    The same specification gives the same bytes, and an unchanged file is left alone.

    Args:
        data_root: Folder of the prepared datasets.
        run_dir: Folder of the run.
        dataset: Name of the dataset.
        setting: Name of the setting.
        spec: Noise specification of this draw, see `drawn`.
        draw: Number of the draw, for the names of the files.

    Returns:
        What was written: `labels` and `ids` in the file of labels; `true_labels`, `wrong`, `ids`, `rate` and `matrix`
        in the file of the truth. The truth of collected labels has `known` [N] instead of a matrix. Of a setting
        with `balance` or `size`, both files hold the images that are kept, in the order of the dataset.

    Raises:
        UserError: If the specification cannot be applied, or the dataset is not prepared.
    """
    check_setting(dataset, spec)
    d = catalogue.get(dataset)
    true_labels = load.true_labels(data_root, dataset, "train")
    ids = load.ids(data_root, dataset, "train")
    files = setting_files(run_dir, dataset, setting, draw)
    if spec["kind"] == "collected":
        return _write_collected(load.collected_labels(data_root, dataset), true_labels, ids, files)
    label_file = LABEL_FILES.get(spec["kind"], {}).get(dataset)
    columns = load.label_columns(data_root, label_file) if label_file else None
    given = read_label_file(spec, ids, d.classes, setting) if spec["kind"] == "file" else None
    wanted = subset.read_subset(spec, d.n_classes, setting)
    if wanted is not None:
        kept = subset.draw_subset(wanted, true_labels, d.n_classes, setting)
        true_labels, ids = true_labels[kept], ids[kept]
        columns = {name: values[kept] for name, values in columns.items()} if columns else None
        given = given[kept] if given is not None else None
    done = corrupt(true_labels, d.n_classes, noise_of(spec), superclasses=d.superclasses, columns=columns, given=given)
    rate = np.array(done.rate)
    save_npz(files.truth, true_labels=true_labels, wrong=done.wrong, ids=ids, rate=rate, matrix=done.matrix)
    save_npz(files.labels, labels=done.labels, ids=ids)
    return done


def _write_collected(labels: np.ndarray, true_labels: np.ndarray, ids: np.ndarray, files: SettingFiles) -> Corruption:
    """Write labels as they were collected; `known` marks the images whose true label is known (>= 0)."""
    known = true_labels >= 0
    wrong = known & (labels != true_labels)
    rate = float(wrong[known].mean()) if known.any() else float("nan")
    save_npz(files.truth, true_labels=true_labels, wrong=wrong, known=known, ids=ids, rate=np.array(rate))
    save_npz(files.labels, labels=labels, ids=ids)
    return Corruption(labels, wrong, rate, np.empty((0, 0)))


def read_labels(file: Path | str, data_root: Path | str, dataset: str) -> np.ndarray:
    """Read the noisy labels of a setting, after checking that they belong to this dataset.

    Args:
        file: The file of labels that `write_setting` wrote.
        data_root: Folder of the prepared datasets.
        dataset: Name of the dataset.

    Returns:
        Labels in the order of the prepared dataset, int64, shape [N].

    Raises:
        UserError: If the file is damaged or belongs to other data.
    """
    labels = align_to_ids(load_npz(file), "labels", load.ids(data_root, dataset, "train"), str(file))
    return _checked_labels(labels, file, dataset)


def read_kept(file: Path | str, data_root: Path | str, dataset: str) -> tuple[np.ndarray, np.ndarray]:
    """Read the images that a setting keeps, and their noisy labels.

    Args:
        file: The file of labels that `write_setting` wrote.
        data_root: Folder of the prepared datasets.
        dataset: Name of the dataset.

    Returns:
        Positions in the prepared dataset, ascending, int64, and labels, int64, shape [n] each.

    Raises:
        UserError: If the file is damaged or belongs to other data.
    """
    table = load_npz(file)
    ids = load.ids(data_root, dataset, "train")
    if not {"ids", "labels"} <= set(table) or table["labels"].shape != table["ids"].shape:
        raise UserError(f"{file} does not hold one `labels` for each of its `ids`; delete it and run again")
    kept = np.flatnonzero(np.isin(ids, table["ids"]))
    labels = align_to_ids(table, "labels", ids[kept], str(file))
    return kept, _checked_labels(labels, file, dataset)


def _checked_labels(labels: np.ndarray, file: Path | str, dataset: str) -> np.ndarray:
    n = catalogue.get(dataset).n_classes
    if labels.dtype.kind not in "iu" or not labels.size or not (0 <= labels.min() and labels.max() < n):
        raise UserError(f"{file}: `labels` are not labels 0 .. {n - 1} of {dataset}; delete it and run again")
    return labels


def align_to_ids(table: Mapping[str, np.ndarray], column: str, ids: np.ndarray, where: str) -> np.ndarray:
    """Bring a column of a table with example ids into the order of other ids.

    Args:
        table: Arrays of shape [N], `ids` among them.
        column: Name of the wanted array.
        ids: Example ids in the wanted order, shape [N].
        where: The table's file, for messages.

    Returns:
        The column in the order of `ids`, shape [N].

    Raises:
        UserError: If an id is missing, unknown or occurs twice.
    """
    if not {"ids", column} <= set(table) or table["ids"].ndim != 1 or table[column].shape != table["ids"].shape:
        raise UserError(f"{where} does not hold one `{column}` for each of its `ids`; delete it and run again")
    theirs = table["ids"]
    if np.array_equal(theirs, ids):
        return table[column]
    their_order = np.argsort(theirs, kind="stable")
    wanted_order = np.argsort(ids, kind="stable")
    if len(theirs) != len(ids) or not np.array_equal(theirs[their_order], ids[wanted_order]):
        unknown = len(np.setdiff1d(theirs, ids))
        raise UserError(
            f"{where}: {len(theirs)} examples, {unknown} of them unknown, for a dataset of {len(ids)}; "
            "the file belongs to other data: delete it and run again"
        )
    aligned = np.empty_like(table[column])
    aligned[wanted_order] = table[column][their_order]
    return aligned
