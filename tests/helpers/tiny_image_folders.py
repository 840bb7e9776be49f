"""Tiny datasets in the official unpacked layouts, and ways to break them."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from sgoif.bench.data import catalogue
from sgoif.bench.data.dataset import Dataset

SIZE, MARGIN = 12, 2


def picture(path: Path, label: int, seed: int, side: tuple[int, int] = (20, 17)) -> None:
    """A JPEG or PNG whose look tells its label: a bright block at a place that depends on it."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 90, (*side, 3), dtype=np.uint8)
    row, column = divmod(label % 4, 2)
    pixels[2 + 8 * row : 9 + 8 * row, 1 + 8 * column : 8 + 8 * column] += 150
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, quality=95)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def small(monkeypatch, name: str, n_classes: int, **changes) -> Dataset:
    """The registered dataset with few classes and small images, under its own name."""
    d = catalogue.get(name)
    classes = d.classes[:n_classes] if d.classes else ()
    d = replace(d, classes=classes, image_size=SIZE, margin=MARGIN, **changes)
    monkeypatch.setitem(catalogue.DATASETS, name, d)
    return d


def clothing1m(tree: Path, n: int = 96, both: int = 40, test: int = 24, n_classes: int = 4) -> dict[str, list]:
    """`n` images with a noisy label, `both` with a noisy and a clean one, `test` with a clean one (and a noisy one).

    Every fourth noisy label is wrong. Returns {list name: keys}.
    """
    lists = {k: [] for k in ("noisy_train", "clean_train", "clean_test")}
    noisy, clean = [], []
    for i in range(n + both + test):
        label = i % n_classes
        key = f"images/{i % 3}/{i % 7:02d}/{i:06d}.jpg"
        picture(tree / key, label, i)
        wrong = (label + 1) % n_classes if i % 4 == 3 else label
        noisy.append(f"{key} {wrong}")
        if i < n:
            lists["noisy_train"].append(key)
        else:
            clean.append(f"{key} {label}")
            lists["clean_train" if i < n + both else "clean_test"].append(key)
    (tree / "noisy_label_kv.txt").write_text("\n".join(noisy) + "\n")
    (tree / "clean_label_kv.txt").write_text("\n".join(clean) + "\n")
    for name, keys in lists.items():
        (tree / f"{name}_key_list.txt").write_text("\n".join(keys) + "\n")
    return lists


def webvision(tree: Path, n: int = 96, test: int = 24, n_classes: int = 4, version: int = 1) -> None:
    """Version 1 with info/train_filelist_{all,google}.txt and val_images_256/, or 2 with val_images_resized/."""
    train, val = [], []
    for i in range(n):
        source = "google" if i % 3 else "flickr"
        key = f"{source}/q{i % n_classes:04d}/{i:05d}.jpg"
        picture(tree / key, i % n_classes, i)
        train.append(f"{key} {i % n_classes}")
    folder = "val_images_256" if version == 1 else "val_images_resized"
    for i in range(test):
        picture(tree / folder / f"val{i:06d}.jpg", i % n_classes, 1000 + i)
        val.append(f"val{i:06d}.jpg {i % n_classes}")
    (tree / "info").mkdir(exist_ok=True)
    (tree / "info" / "train_filelist_all.txt").write_text("\n".join(train) + "\n")
    google = [line for line in train if line.startswith("google")]
    (tree / "info" / "train_filelist_google.txt").write_text("\n".join(google) + "\n")
    place = tree / "info" if version == 1 else tree
    (place / "val_filelist.txt").write_text("\n".join(val) + "\n")
