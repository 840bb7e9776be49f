"""Read labels that a user brings: noise of kind `file`.

    {kind: file, path: my-labels.csv}

* .csv: a header with `label` and with `id` (as in data/<dataset>/train_ids.npy) or `index` (position in the training
  set, from 0); one line for every training image, in any order. Labels are class numbers or names of classes.
* .npy: class numbers, integers of shape [N], in the order of the training set.

`sha256` in the setting pins the file; the configuration fills it in when it is resolved.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sgoif.errors import UserError
from sgoif.utils.files import sha256_file
from sgoif.utils.suggest import suggest

ENDINGS = (".csv", ".npy")


def seal(setting: Mapping[str, Any], where: str = "noise") -> dict[str, Any]:
    """Return a setting of kind `file` with the sha256 of its file.

    A file that is not on this machine is let pass if the setting has its sha256: records of it can then be merged here.

    Raises:
        UserError: If there is no such file, or it is not the one that `sha256` names.
    """
    path, pinned = Path(setting["path"]), setting.get("sha256")
    if not path.is_file():
        if pinned:
            return dict(setting)
        raise UserError(f"{where}.path: there is no file {path} (looked for in {Path.cwd()})")
    found = sha256_file(path)
    if pinned and pinned != found:
        raise UserError(f"{where}.sha256: {path} has sha256 {found}, not {pinned}; it was changed, or is another file")
    return {**setting, "sha256": found}


def read_label_file(
    setting: Mapping[str, Any], ids: np.ndarray, classes: Sequence[str], where: str = "noise"
) -> np.ndarray:
    """Read the labels of a setting of kind `file`.

    Args:
        setting: The setting, with `path` and perhaps `sha256`.
        ids: Identities of the training images, uint64, shape [N].
        classes: Names of the K classes.
        where: Path of the setting in the configuration, for messages.

    Returns:
        Labels in the order of `ids`, int64, shape [N].

    Raises:
        UserError: If the file is missing, is not the pinned one, or does not hold one known label for every image.
    """
    path = Path(setting["path"])
    if not path.is_file():
        raise UserError(f"{where}.path: there is no file {path} (looked for in {Path.cwd()})")
    seal(setting, where)
    labels = _read_npy(path, len(ids)) if path.suffix == ".npy" else _read_csv(path, ids, classes)
    bad = np.flatnonzero((labels < 0) | (labels >= len(classes)))
    if len(bad):
        at = int(bad[0])
        raise UserError(f"{path}: label {labels[at]} of image {at} is not a class; there are 0 to {len(classes) - 1}")
    return labels


def _read_npy(path: Path, n: int) -> np.ndarray:
    try:
        labels = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as e:
        raise UserError(f"{path} cannot be read as .npy ({e})") from None
    if labels.dtype.kind not in "iu" or labels.ndim != 1:
        raise UserError(f"{path}: expected whole numbers of shape [{n}], got {labels.dtype} of shape {labels.shape}")
    if len(labels) != n:
        raise UserError(f"{path}: {len(labels)} labels for {n} training images")
    return labels.astype(np.int64)


def _read_csv(path: Path, ids: np.ndarray, classes: Sequence[str]) -> np.ndarray:
    """Labels of a CSV, joined to the training images by `id` or `index`."""
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig"))))
    except (UnicodeDecodeError, csv.Error) as e:
        raise UserError(f"{path} cannot be read as CSV ({e})") from None
    columns = set(rows[0]) if rows else set()
    key = next((name for name in ("id", "index") if name in columns), None)
    if key is None or "label" not in columns:
        raise UserError(f"{path}: expected a header with `label` and with `id` or `index`, and a line for each image")
    names = ids.tolist() if key == "id" else range(len(ids))
    position = {name: at for at, name in enumerate(names)}
    labels = np.full(len(ids), -1, np.int64)
    seen: dict[int, int] = {}
    for line, row in enumerate(rows, start=2):
        name = _whole_number(row[key], f"{path}, line {line}: {key}")
        if name not in position:
            raise UserError(f"{path}, line {line}: no training image has {key} {name}; is the file of another dataset?")
        if name in seen:
            raise UserError(f"{path}: {key} {name} is there twice, in lines {seen[name]} and {line}")
        seen[name] = line
        labels[position[name]] = _class_number(row["label"], classes, f"{path}, line {line}")
    if len(seen) < len(ids):
        first = next(name for name in names if name not in seen)
        raise UserError(
            f"{path}: {len(ids) - len(seen)} of {len(ids)} training images have no label, first {key} {first}"
        )
    return labels


def _whole_number(text: str | None, where: str) -> int:
    try:
        return int(text or "")
    except ValueError:
        raise UserError(f"{where}: expected a whole number, got {text!r}") from None


def _class_number(text: str | None, classes: Sequence[str], where: str) -> int:
    text = (text or "").strip()
    if text in classes:
        return list(classes).index(text)
    if text.isdecimal() and int(text) < len(classes):
        return int(text)
    raise UserError(f"{where}: no class {text!r}; numbers 0 to {len(classes) - 1}, or names: {suggest(text, classes)}")
