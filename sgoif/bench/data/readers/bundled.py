"""Read data that comes inside scikit-learn: its 8x8 digits, and patches of its two sample photographs."""

from __future__ import annotations

import numpy as np

from sgoif.bench.data.dataset import Parts
from sgoif.utils.digits import load_digit_images

TEST_SHARE = 0.2
PATCHES_PER_PHOTO = 500
PATCH_SIZE = 8
PHOTOS = ("china.jpg", "flower.jpg")


def read(name: str) -> Parts:
    """Return the parts of a bundled dataset: {part: (images [N, 8, 8] uint8, labels [N])}."""
    if name == "photo_patches":
        return {"test": photo_patches()}
    images, labels = load_digit_images()
    test = in_test(labels)
    rows_of = {  # dataset -> part -> which digits
        "digits": {"train": ~test, "test": test},
        "digits_regimes": {"train": ~test, "test": test},
        "digits_id": {"train": ~test & (labels < 6), "test": test & (labels < 6)},
        "digits_aux": {"train": (labels == 6) | (labels == 7)},
        "digits_near": {"test": labels >= 8},
    }
    first_class = {"digits_aux": 6, "digits_near": 8}.get(name, 0)
    return {part: (images[rows], labels[rows] - first_class) for part, rows in rows_of[name].items()}


def in_test(labels: np.ndarray, seed: int = 0) -> np.ndarray:
    """Return which examples are test examples, bool [N]: the same fifth of each class in every version."""
    rng = np.random.RandomState(seed)
    test = np.zeros(len(labels), dtype=bool)
    for y in np.unique(labels):
        members = np.flatnonzero(labels == y)
        test[rng.permutation(members)[: round(TEST_SHARE * len(members))]] = True
    return test


def photo_patches(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return grey 8x8 patches that do not overlap, half of them from each photograph, and the photograph of each."""
    from sklearn.datasets import load_sample_image

    rng = np.random.RandomState(seed)
    size = PATCH_SIZE
    images, labels = [], []
    for label, photo in enumerate(PHOTOS):
        pixels = np.asarray(load_sample_image(photo)).astype(np.uint32)  # height, width, RGB
        grey = ((pixels @ np.array([299, 587, 114], np.uint32) + 500) // 1000).astype(np.uint8)
        rows, columns = grey.shape[0] // size, grey.shape[1] // size
        blocks = grey[: rows * size, : columns * size].reshape(rows, size, columns, size)
        tiles = blocks.swapaxes(1, 2).reshape(-1, size, size)
        images.append(tiles[np.sort(rng.permutation(len(tiles))[:PATCHES_PER_PHOTO])])
        labels.append(np.full(PATCHES_PER_PHOTO, label, np.int64))
    return np.concatenate(images), np.concatenate(labels)
