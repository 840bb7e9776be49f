"""Readers of archives of JPEG images, and the transform that every test image passes through."""

from __future__ import annotations

import io
import re
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from sgoif.bench.data.dataset import Dataset
from sgoif.bench.data.readers.bundled import Parts
from sgoif.errors import UserError
from sgoif.utils.image_ops import fit_square


def decode(raw: bytes, size: int, channels: int, name: str) -> np.ndarray:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(raw)) as picture:
            return fit_square(picture.convert("RGB" if channels == 3 else "L"), size)
    except (OSError, SyntaxError) as e:
        raise UserError(f"{name} is not a readable image ({e}); fetch the archive again") from None


def read_dtd(d: Dataset, files: Mapping[str, Path]) -> Parts:
    """dtd/images/<class>/<file>.jpg: sorted by class and name; the label is the class's place in the alphabet."""
    images = {}
    for match, raw in _tar_members(files[d.sources[0].filename], r"dtd/images/(\w+)/([^/]+\.jpg)"):
        images[match.groups()] = decode(raw, d.image_size, d.channels, match[0])
    classes = sorted({class_name for class_name, _ in images})
    order = sorted(images)
    labels = np.array([classes.index(class_name) for class_name, _ in order], np.int64)
    return {"test": (_stack(d, [images[key] for key in order]), labels)}


def read_places365(d: Dataset, files: Mapping[str, Path]) -> Parts:
    """val_256/Places365_val_<number>.jpg, by number; the labels are not in the archive and not needed: all are -1."""
    images = {}
    for match, raw in _tar_members(files[d.sources[0].filename], r"val_256/(Places365_val_\d+)\.jpg"):
        images[match[1]] = decode(raw, d.image_size, d.channels, match[0])
    return {"test": (_stack(d, [images[key] for key in sorted(images)]), np.full(len(images), -1, np.int64))}


def read_tinyimagenet(d: Dataset, files: Mapping[str, Path]) -> Parts:
    """Training images by class and number; the official validation images, by number, as the test part."""
    number = {wnid: i for i, wnid in enumerate(d.classes)}
    top = "tiny-imagenet-200/"
    with zipfile.ZipFile(files[d.sources[0].filename]) as z:
        lines = z.read(top + "val/val_annotations.txt").decode().splitlines()
        truth = {line.split("\t")[0]: number[line.split("\t")[1]] for line in lines if line}
        train = []
        for name in z.namelist():
            if match := re.fullmatch(top + r"train/(n\d+)/images/n\d+_(\d+)\.JPEG", name):
                train.append((number[match[1]], int(match[2]), name))
        test = [(truth[name], int(re.search(r"\d+", name)[0]), f"{top}val/images/{name}") for name in truth]
        parts = {}
        for part, listed in (("train", sorted(train)), ("test", sorted(test, key=lambda entry: entry[1]))):
            images = np.empty((len(listed), d.image_size, d.image_size, 3), np.uint8)
            for i, (_, _, name) in enumerate(listed):
                images[i] = decode(z.read(name), d.image_size, 3, name)
            parts[part] = (images, np.array([label for label, _, _ in listed], np.int64))
    return parts


def _stack(d: Dataset, images: list[np.ndarray]) -> np.ndarray:
    shape = (len(images), d.image_size, d.image_size) + ((d.channels,) if d.channels > 1 else ())
    return np.stack(images) if images else np.empty(shape, np.uint8)


def _tar_members(path: Path, pattern: str) -> Iterator[tuple[re.Match, bytes]]:
    """Plain files of a tar whose whole name matches, as they come. Links and odd names match nothing."""
    try:
        with tarfile.open(path) as tar:
            for member in tar:
                match = re.fullmatch(r"(?:\./)?" + pattern, member.name)
                if match and member.isfile():
                    yield match, tar.extractfile(member).read()
    except (tarfile.TarError, EOFError, OSError) as e:
        raise UserError(f"{path}: damaged archive ({e}); delete it and fetch it again") from None
