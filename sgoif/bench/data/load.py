"""Prepared data, as methods and evaluation read it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sgoif.errors import UserError
from sgoif.utils.files import load_npz, read_json, sha256_array


def images(root: Path | str, name: str, part: str) -> np.ndarray:
    """uint8 [N, H, W] or [N, H, W, 3], mapped from disk and read-only."""
    return _array(root, name, f"{part}_images", mmap=True)


def ids(root: Path | str, name: str, part: str) -> np.ndarray:
    """uint64 [N]: the content hash of each example."""
    return _array(root, name, f"{part}_ids")


def labels(root: Path | str, name: str, part: str) -> np.ndarray:
    """int64 [N]: the official labels, for `corrupt` and `evaluate` only."""
    return _array(root, name, f"{part}_labels")


def given(root: Path | str, name: str) -> np.ndarray:
    """int64 [N]: the labels the training images were collected with, where those are not the true ones."""
    return _array(root, name, "train_given")


def tree(root: Path | str, name: str) -> Path | None:
    """Where the images of an unpacked dataset lie; None for one that was prepared as arrays."""
    known = meta(root, name)
    return Path(known["tree"]) if "tree" in known else None


def paths(root: Path | str, name: str, part: str) -> np.ndarray:
    """bytes [N]: where in the tree each image lies, mapped from disk and read-only."""
    return _array(root, name, f"{part}_paths", mmap=True)


def human(root: Path | str, name: str) -> dict[str, np.ndarray]:
    """The columns of a human label file (cifar10n, cifar100n), int64 [N] each, with `clean_label` among them."""
    meta(root, name)
    return load_npz(Path(root) / name / "labels.npz")


def meta(root: Path | str, name: str) -> dict:
    """counts, classes, mean, std, sha256 of each array, content_hash, source."""
    path = Path(root) / name / "meta.json"
    if not path.is_file():
        raise UserError(f"{name} is not prepared in {root}; run again: `make tables` prepares it")
    return read_json(path)


def as_id(array: np.ndarray, channels: int, size: int) -> np.ndarray:
    """The test transform of an in-distribution set for images of another one: uint8 [N, size, size(, 3)].

    Grey to RGB by repeating, RGB to grey by luminance; shorter side to `size` (bilinear, antialiased), centre crop. One
    image is in work at a time; images that fit already are handed back as they are.
    """
    from PIL import Image

    from sgoif.bench.data.readers.jpeg_archives import fit

    if channels not in (1, 3) or array.ndim not in (3, 4) or (array.ndim == 4 and array.shape[3] != 3):
        raise UserError(f"as_id: images of shape {array.shape[1:]} cannot become {channels} channels")
    is_grey = array.ndim == 3
    if array.shape[1:3] == (size, size) and is_grey == (channels == 1):
        return array
    out = np.empty((len(array), size, size) + ((3,) if channels == 3 else ()), np.uint8)
    for i, image in enumerate(array):
        picture = Image.fromarray(np.ascontiguousarray(image))
        if is_grey != (channels == 1):
            picture = picture.convert("L" if channels == 1 else "RGB")
        out[i] = fit(picture, size)
    return out


def _array(root: Path | str, name: str, key: str, mmap: bool = False) -> np.ndarray:
    known = meta(root, name)["arrays"]
    if key not in known:
        has = sorted({k.rsplit("_", 1)[0] for k in known})
        raise UserError(f"{name} has no part {key.rsplit('_', 1)[0]!r}; it has {' and '.join(has) or 'none'}")
    path = Path(root) / name / f"{key}.npy"
    cure = f"delete {Path(root) / name / 'meta.json'} and run again"
    try:
        array = np.load(path, mmap_mode="r" if mmap else None, allow_pickle=False)
    except FileNotFoundError:
        raise UserError(f"{path} is missing; {cure}") from None
    except (ValueError, EOFError, OSError) as e:
        raise UserError(f"{path} is damaged ({e}); {cure}") from None
    if list(array.shape) != known[key]["shape"] or array.dtype.str != known[key]["dtype"]:
        raise UserError(f"{path} is not the array that meta.json describes; {cure}")
    if sha256_array(array) != known[key]["sha256"]:
        raise UserError(f"{path} is damaged (its sha256 is not that in meta.json); {cure}")
    return array
