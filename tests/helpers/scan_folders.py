"""Small folders of real images for the tests of `sgoif scan`: scikit-learn's digits as PNG files."""

import csv
from pathlib import Path

import numpy as np
from PIL import Image

from sgoif.cli import main
from sgoif.utils.digits import load_digit_images


def digit_folder(root: Path, n: int = 500, rate: float = 0.1, seed: int = 0) -> dict[str, tuple[str, bool]]:
    """Write ROOT/<label>/<number>.png; return name -> (true label, whether the label is wrong)."""
    images, labels = load_digit_images()
    rng = np.random.default_rng(seed)
    truth = {}
    for i in rng.permutation(len(labels))[:n]:
        wrong = bool(rng.random() < rate)
        label = (labels[i] + rng.integers(1, 10)) % 10 if wrong else labels[i]
        name = f"{label}/{i:04d}.png"
        (root / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(images[i]).save(root / name)
        truth[name] = (str(labels[i]), wrong)
    return truth


def blobs(root: Path, classes: dict[str, int], size: int = 8) -> Path:
    """ROOT/<class>/<number>.png: noise around one grey level for each class; enough to be listed and trained on."""
    rng = np.random.default_rng(1)
    for level, (name, count) in enumerate(classes.items()):
        (root / name).mkdir(parents=True)
        for i in range(count):
            pixels = rng.integers(0, 60, (size, size, 3)) + 60 * (level % 4)
            Image.fromarray(pixels.astype(np.uint8)).save(root / name / f"{i}.png")
    return root


def run(*words: object) -> int:
    return main([str(w) for w in words])


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f))
