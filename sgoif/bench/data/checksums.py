"""Ids of examples, and checks of arrays against the sha256 that the catalogue knows.

An example's id is a hash of its pixels, so labels, scores and truth are joined by what the image is and not by its
position. An image that occurs again in the same part gets another id, from the count of its occurrences.

The known checksums themselves stand in the catalogue: `Dataset.arrays` and `OfficialFile.checksum`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from sgoif.bench.data.dataset import Dataset
from sgoif.errors import UserError
from sgoif.utils.files import sha256_array


def example_ids(images: np.ndarray) -> np.ndarray:
    """Return the id of each image: blake2b of its shape, pixels and how often it has occurred before.

    Args:
        images: Images, uint8, shape [N, ...].

    Returns:
        Ids, all different, uint64, shape [N].
    """
    shape = repr(images.shape[1:]).encode()
    occurrences: dict[bytes, int] = {}
    ids = np.empty(len(images), dtype="<u8")
    for i, image in enumerate(images):
        pixels = hashlib.blake2b(shape + image.tobytes(), digest_size=16).digest()
        before = occurrences.get(pixels, 0)
        occurrences[pixels] = before + 1
        digest = hashlib.blake2b(pixels + before.to_bytes(4, "little"), digest_size=8).digest()
        ids[i] = int.from_bytes(digest, "little")
    check_ids(ids)
    return ids


def check_ids(ids: np.ndarray, where: str = "ids") -> None:
    """Check that ids are unique.

    Raises:
        UserError: If an id occurs twice.
    """
    unique, counts = np.unique(ids, return_counts=True)
    if len(unique) != len(ids):
        raise UserError(f"{where}: {int((counts > 1).sum())} ids occur more than once; prepare the dataset again")


def describe(array: np.ndarray) -> dict[str, Any]:
    """Return what meta.json holds of an array: dtype, shape and sha256."""
    return {"dtype": array.dtype.str, "shape": list(array.shape), "sha256": sha256_array(array)}


def content_hash(described: Mapping[str, Mapping[str, Any]]) -> str:
    """Return one sha256 over the descriptions of all arrays: same data, same hash, wherever it came from."""
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def check_part(d: Dataset, part: str, images: np.ndarray, labels: np.ndarray) -> None:
    """Check the shape, type, range and known sha256 of the images and labels of a part.

    Raises:
        UserError: If one of them is not that of the dataset.
    """
    shape = (d.parts[part], d.image_size, d.image_size) + ((d.channels,) if d.channels > 1 else ())
    if images.dtype != np.uint8 or images.shape != shape:
        raise UserError(f"{d.name} {part} images: expected uint8 of shape {shape}, got {images.dtype} {images.shape}")
    if labels.dtype.kind not in "iu" or labels.shape != shape[:1]:
        raise UserError(f"{d.name} {part} labels: expected {shape[0]} integers, got {labels.dtype} {labels.shape}")
    low, high = (0, d.n_classes - 1) if d.kind == "labelled" else (-1, max(d.n_classes, 1000) - 1)
    bad = np.flatnonzero((labels < low) | (labels > high))
    if len(bad):
        raise UserError(f"{d.name} {part}_labels[{bad[0]}] is {labels[bad[0]]}, outside {low} .. {high}")
    check_array(d, f"{part}_images", images)
    check_array(d, f"{part}_labels", labels)


def check_array(d: Dataset, key: str, array: np.ndarray) -> None:
    """Compare an array, as uint8, with its sha256 in the catalogue, if there is one.

    Raises:
        UserError: If they differ.
    """
    if key in d.arrays:
        actual = sha256_array(array.astype(np.uint8))
        if actual != d.arrays[key]:
            raise UserError(
                f"{d.name} {key}: sha256 {actual[:12]}... is not the expected {d.arrays[key][:12]}...; "
                "the file is damaged or another version: fetch it again"
            )
