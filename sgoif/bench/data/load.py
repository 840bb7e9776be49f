"""Read prepared datasets: the arrays and meta.json that `prepare` writes to <data root>/<name>/."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sgoif.errors import UserError
from sgoif.utils.files import load_npz, read_json, sha256_array

PACKED = {"labels": "labels.npz", "weights": "weights.npz"}  # kind of dataset -> the one file that holds its arrays


def images(root: Path | str, name: str, part: str) -> np.ndarray:
    """Return the images of a part, uint8, shape [N, H, W] or [N, H, W, 3], mapped from disk and read-only."""
    return _array(root, name, f"{part}_images", mmap=True)


def ids(root: Path | str, name: str, part: str) -> np.ndarray:
    """Return the content hash of each example, uint64, shape [N]."""
    return _array(root, name, f"{part}_ids")


def true_labels(root: Path | str, name: str, part: str) -> np.ndarray:
    """Return the official labels, int64, shape [N]; -1 where none is known. No method may read those of training."""
    return _array(root, name, f"{part}_labels")


def collected_labels(root: Path | str, name: str) -> np.ndarray:
    """Return the labels the training images were collected with, where those are not the true ones, int64, [N]."""
    return _array(root, name, "train_collected_labels")


def image_folder(root: Path | str, name: str) -> Path | None:
    """Return the folder of a dataset that stays as it was unpacked; None for one that was prepared as arrays."""
    known = meta(root, name)
    return Path(known["tree"]) if "tree" in known else None


def paths(root: Path | str, name: str, part: str) -> np.ndarray:
    """Return the path of each image inside `image_folder`, bytes, shape [N], mapped from disk and read-only."""
    return _array(root, name, f"{part}_paths", mmap=True)


def label_columns(root: Path | str, name: str) -> dict[str, np.ndarray]:
    """Return the columns of a label file such as cifar10n, int64, shape [N] each; `clean_label` is the truth."""
    meta(root, name)
    return load_npz(Path(root) / name / PACKED["labels"])


def weights_file(root: Path | str, name: str) -> Path:
    """Return the file of weights that training starts from.

    Raises:
        UserError: If they are not prepared.
    """
    meta(root, name)
    return Path(root) / name / PACKED["weights"]


def meta(root: Path | str, name: str) -> dict[str, Any]:
    """Return meta.json: counts, classes, mean, std, sha256 of each array, content_hash, source.

    Raises:
        UserError: If the dataset is not prepared.
    """
    path = Path(root) / name / "meta.json"
    if not path.is_file():
        raise UserError(f"{name} is not prepared in {root}; run again: `make tables` prepares it")
    return read_json(path)


def convert_images(array: np.ndarray, channels: int, size: int) -> np.ndarray:
    """Give images the channels and size of another dataset, as its test transform does.

    Grey becomes RGB by repeating, RGB becomes grey by luminance; the shorter side is scaled to `size` (bilinear,
    antialiased), then the centre is cropped. Only one image at a time is held besides the result.

    Args:
        array: Images, uint8, shape [N, H, W] or [N, H, W, 3].
        channels: 1 or 3.
        size: Height and width of the result.

    Returns:
        Images, uint8, shape [N, size, size] or [N, size, size, 3]; `array` itself if it fits already.

    Raises:
        UserError: If the images cannot have that many channels.
    """
    from PIL import Image

    from sgoif.utils.image_ops import fit_square

    if channels not in (1, 3) or array.ndim not in (3, 4) or (array.ndim == 4 and array.shape[3] != 3):
        raise UserError(f"convert_images: images of shape {array.shape[1:]} cannot become {channels} channels")
    is_grey = array.ndim == 3
    if array.shape[1:3] == (size, size) and is_grey == (channels == 1):
        return array
    out = np.empty((len(array), size, size) + ((3,) if channels == 3 else ()), np.uint8)
    for i, image in enumerate(array):
        picture = Image.fromarray(np.ascontiguousarray(image))
        if is_grey != (channels == 1):
            picture = picture.convert("L" if channels == 1 else "RGB")
        out[i] = fit_square(picture, size)
    return out


def _array(root: Path | str, name: str, key: str, mmap: bool = False) -> np.ndarray:
    """Read one array and compare its shape, type and sha256 with meta.json."""
    known = meta(root, name)["arrays"]
    cure = f"delete {Path(root) / name / 'meta.json'} and run again"
    part = key.partition("_")[0]
    parts = sorted({other.partition("_")[0] for other in known})
    if part not in parts:
        raise UserError(f"{name} has no part {part!r}; it has {' and '.join(parts) or 'none'}")
    if key not in known:
        raise UserError(f"{name} was prepared without {key}; {cure}")
    path = Path(root) / name / f"{key}.npy"
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
