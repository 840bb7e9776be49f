"""Data that comes inside scikit-learn: its 8x8 digits, and patches of its two sample photographs."""

from __future__ import annotations

import numpy as np

from sgoif.utils.digits import load_digit_images

Parts = dict[str, tuple[np.ndarray, np.ndarray]]  # part -> images (uint8), labels

TEST_SHARE = 0.2
PATCHES_PER_PHOTO = 500


def read(name: str) -> Parts:
    """The parts of an embedded dataset."""
    if name == "photo_patches":
        return {"test": photo_patches()}
    images, labels = load_digit_images()
    test = in_test(labels)
    if name == "digits":
        chosen = {"train": ~test, "test": test}
        first = 0
    elif name == "digits_id":
        chosen = {"train": ~test & (labels < 6), "test": test & (labels < 6)}
        first = 0
    elif name == "digits_aux":
        chosen, first = {"train": (labels == 6) | (labels == 7)}, 6
    elif name == "digits_near":
        chosen, first = {"test": labels >= 8}, 8
    else:
        raise KeyError(name)
    return {part: (images[rows], labels[rows] - first) for part, rows in chosen.items()}


def in_test(labels: np.ndarray, seed: int = 0) -> np.ndarray:
    """True for the same fifth of each class, whatever the version of scikit-learn."""
    rng = np.random.RandomState(seed)
    test = np.zeros(len(labels), dtype=bool)
    for y in np.unique(labels):
        members = np.flatnonzero(labels == y)
        test[rng.permutation(members)[: round(TEST_SHARE * len(members))]] = True
    return test


def photo_patches(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Grey 8x8 patches that do not overlap, half of them from each photograph; the label is the photograph."""
    from sklearn.datasets import load_sample_image

    rng = np.random.RandomState(seed)
    images, labels = [], []
    for label, photo in enumerate(("china.jpg", "flower.jpg")):
        pixels = np.asarray(load_sample_image(photo)).astype(np.uint32)  # height, width, RGB
        grey = ((pixels @ np.array([299, 587, 114], np.uint32) + 500) // 1000).astype(np.uint8)
        rows, columns = grey.shape[0] // 8, grey.shape[1] // 8
        tiles = grey[: rows * 8, : columns * 8].reshape(rows, 8, columns, 8).swapaxes(1, 2).reshape(-1, 8, 8)
        images.append(tiles[np.sort(rng.permutation(len(tiles))[:PATCHES_PER_PHOTO])])
        labels.append(np.full(PATCHES_PER_PHOTO, label, np.int64))
    return np.concatenate(images), np.concatenate(labels)
