"""Read archives of JPEG images, such as DTD and Imagenette. Members are decoded one by one, never unpacked."""

from __future__ import annotations

import io
import re
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from sgoif.bench.data.catalogue.photo_sets import IMAGENETTE_FOLDERS
from sgoif.bench.data.dataset import Dataset, Parts
from sgoif.errors import UserError
from sgoif.utils.image_ops import fit_square

TINYIMAGENET_TOP = "tiny-imagenet-200/"


def decode_image(raw: bytes, size: int, channels: int, name: str) -> np.ndarray:
    """Decode an image file and fit it to a square.

    Args:
        raw: The bytes of the file.
        size: Height and width of the result.
        channels: 1 (grey) or 3 (RGB).
        name: Name of the file, for messages.

    Returns:
        Pixels, uint8, shape [size, size] or [size, size, 3].

    Raises:
        UserError: If it is not a readable image.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(raw)) as picture:
            return fit_square(picture.convert("RGB" if channels == 3 else "L"), size)
    except (OSError, SyntaxError) as e:
        raise UserError(f"{name} is not a readable image ({e}); fetch the archive again") from None


def read_dtd(d: Dataset, files: Mapping[str, Path]) -> Parts:
    """Read dtd/images/<class>/<file>.jpg, sorted by class and name; classes are numbered alphabetically."""
    images: dict[tuple[str, ...], np.ndarray] = {}
    for match, raw in _tar_members(files[d.sources[0].filename], r"dtd/images/(\w+)/([^/]+\.jpg)"):
        images[match.groups()] = decode_image(raw, d.image_size, d.channels, match[0])
    classes = sorted({class_name for class_name, _ in images})
    order = sorted(images)
    labels = np.array([classes.index(class_name) for class_name, _ in order], np.int64)
    return {"test": (_stack(d, [images[key] for key in order]), labels)}


def read_imagenette(d: Dataset, files: Mapping[str, Path]) -> Parts:
    """Read imagenette2-160/{train,val}/<WordNet id>/<file>.JPEG, sorted by class and name; `val` is the test part."""
    images: dict[str, dict[tuple[int, str], np.ndarray]] = {"train": {}, "val": {}}
    label_of = {wnid: label for label, wnid in enumerate(IMAGENETTE_FOLDERS)}
    for match, raw in _tar_members(
        files[d.sources[0].filename], r"imagenette2-160/(train|val)/(n\d+)/([^/.][^/]*\.JPEG)"
    ):
        part, wnid, name = match.groups()
        if wnid not in label_of:
            raise UserError(f"{match[0]}: none of the ten classes of Imagenette; fetch the archive again")
        images[part][label_of[wnid], name] = decode_image(raw, d.image_size, d.channels, match[0])
    parts = {}
    for part, folder in (("train", "train"), ("test", "val")):
        order = sorted(images[folder])
        labels = np.array([label for label, _ in order], np.int64)
        parts[part] = (_stack(d, [images[folder][key] for key in order]), labels)
    return parts


def read_places365(d: Dataset, files: Mapping[str, Path]) -> Parts:
    """Read val_256/Places365_val_<number>.jpg, by number; all labels are -1, since the archive has none."""
    images = {}
    for match, raw in _tar_members(files[d.sources[0].filename], r"val_256/(Places365_val_\d+)\.jpg"):
        images[match[1]] = decode_image(raw, d.image_size, d.channels, match[0])
    return {"test": (_stack(d, [images[key] for key in sorted(images)]), np.full(len(images), -1, np.int64))}


def read_tinyimagenet(d: Dataset, files: Mapping[str, Path]) -> Parts:
    """Read training images by class and number; the official validation images, by number, are the test part."""
    with zipfile.ZipFile(files[d.sources[0].filename]) as archive:
        label_of = {wnid: i for i, wnid in enumerate(d.classes)}
        return {
            "train": _decode_members(d, archive, _tinyimagenet_train(archive, label_of)),
            "test": _decode_members(d, archive, _tinyimagenet_val(archive, label_of)),
        }


def _tinyimagenet_train(archive: zipfile.ZipFile, label_of: Mapping[str, int]) -> list[tuple[int, str]]:
    """Return (label, member) of the training images, sorted by label and number."""
    found = []
    for name in archive.namelist():
        if match := re.fullmatch(TINYIMAGENET_TOP + r"train/(n\d+)/images/n\d+_(\d+)\.JPEG", name):
            found.append((label_of[match[1]], int(match[2]), name))
    return [(label, name) for label, _, name in sorted(found)]


def _tinyimagenet_val(archive: zipfile.ZipFile, label_of: Mapping[str, int]) -> list[tuple[int, str]]:
    """Return (label, member) of the validation images, sorted by number."""
    lines = archive.read(TINYIMAGENET_TOP + "val/val_annotations.txt").decode().splitlines()
    labels = {line.split("\t")[0]: label_of[line.split("\t")[1]] for line in lines if line}
    names = sorted(labels, key=lambda name: int(re.findall(r"\d+", name)[0]))
    return [(labels[name], f"{TINYIMAGENET_TOP}val/images/{name}") for name in names]


def _decode_members(
    d: Dataset, archive: zipfile.ZipFile, listed: list[tuple[int, str]]
) -> tuple[np.ndarray, np.ndarray]:
    images = np.empty((len(listed), d.image_size, d.image_size, 3), np.uint8)
    for i, (_, name) in enumerate(listed):
        images[i] = decode_image(archive.read(name), d.image_size, 3, name)
    return images, np.array([label for label, _ in listed], np.int64)


def _stack(d: Dataset, images: list[np.ndarray]) -> np.ndarray:
    shape = (len(images), d.image_size, d.image_size) + ((d.channels,) if d.channels > 1 else ())
    return np.stack(images) if images else np.empty(shape, np.uint8)


def _tar_members(path: Path, pattern: str) -> Iterator[tuple[re.Match[str], bytes]]:
    """Yield (match, bytes) of the plain files of a tar whose whole name matches; links match nothing."""
    try:
        with tarfile.open(path) as tar:
            for member in tar:
                match = re.fullmatch(r"(?:\./)?" + pattern, member.name)
                content = tar.extractfile(member) if match and member.isfile() else None
                if match and content is not None:
                    yield match, content.read()
    except (tarfile.TarError, EOFError, OSError) as e:
        raise UserError(f"{path}: damaged archive ({e}); delete it and fetch it again") from None
