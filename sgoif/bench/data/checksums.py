"""Who an example is, and whether an array is what it should be.

An example's id is a hash of its pixels, so labels, scores and truth are joined by what the image is and not by where it
happens to stand. An image that occurs again in the same part gets another id, from the count of its occurrences.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import numpy as np

from sgoif.bench.data.dataset import Dataset
from sgoif.errors import UserError
from sgoif.utils.files import sha256_array


def example_ids(images: np.ndarray) -> np.ndarray:
    """uint64 [N], all different: blake2b of each image's shape, pixels and how often it has occurred before."""
    head = repr(images.shape[1:]).encode()
    seen: dict[bytes, int] = {}
    ids = np.empty(len(images), dtype="<u8")
    for i, image in enumerate(images):
        pixels = hashlib.blake2b(head + image.tobytes(), digest_size=16).digest()
        before = seen.get(pixels, 0)
        seen[pixels] = before + 1
        digest = hashlib.blake2b(pixels + before.to_bytes(4, "little"), digest_size=8).digest()
        ids[i] = int.from_bytes(digest, "little")
    check_ids(ids)
    return ids


def check_ids(ids: np.ndarray, where: str = "ids") -> None:
    """Refuses ids that are not unique."""
    unique, counts = np.unique(ids, return_counts=True)
    if len(unique) != len(ids):
        raise UserError(f"{where}: {int((counts > 1).sum())} ids occur more than once; prepare the dataset again")


def describe(array: np.ndarray) -> dict:
    """What meta.json says of an array."""
    return {"dtype": array.dtype.str, "shape": list(array.shape), "sha256": sha256_array(array)}


def content_hash(described: Mapping[str, Mapping]) -> str:
    """One sha256 over the descriptions of all arrays of a dataset: same data, same hash, wherever it came from."""
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def check_part(d: Dataset, part: str, images: np.ndarray, labels: np.ndarray) -> None:
    """Refuses images or labels whose shape, type, range or known sha256 is not that of the dataset's part."""
    shape = (d.parts[part], d.image_size, d.image_size) + ((d.channels,) if d.channels > 1 else ())
    if images.dtype != np.uint8 or images.shape != shape:
        raise UserError(f"{d.name} {part} images: expected uint8 of shape {shape}, got {images.dtype} {images.shape}")
    if labels.dtype.kind not in "iu" or labels.shape != shape[:1]:
        raise UserError(f"{d.name} {part} labels: expected {shape[0]} integers, got {labels.dtype} {labels.shape}")
    low, high = (0, d.n_classes - 1) if d.kind == "labelled" else (-1, max(d.n_classes, 1000) - 1)
    bad = np.flatnonzero((labels < low) | (labels > high))
    if len(bad):
        raise UserError(f"{d.name} {part}_labels[{bad[0]}] is {labels[bad[0]]}, outside {low} .. {high}")
    for key, array in ((f"{part}_images", images), (f"{part}_labels", labels)):
        check_array(d, key, array)


def check_array(d: Dataset, key: str, array: np.ndarray) -> None:
    """Compares an array, as uint8, with the sha256 the registry knows for it, if it knows one."""
    if key in d.arrays:
        got = sha256_array(array.astype(np.uint8))
        if got != d.arrays[key]:
            raise UserError(
                f"{d.name} {key}: sha256 {got[:12]}... is not the expected {d.arrays[key][:12]}...; "
                "the file is damaged or another version: fetch it again"
            )
