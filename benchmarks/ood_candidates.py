"""Evaluates the declared scores of OOD methods on digits that no table reports: where `ranked_by` comes from.

ID: the digits 4 to 9. Near: 0 and 1. Far: patches of a photograph of a flower. (The default run reports the digits 0 to
5 as ID.) Prints AUROC near and far by method, seed and score.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

from sgoif.bench.evaluation.metrics import ood
from sgoif.bench.methods.registry import load
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.images import ImageSet
from sgoif.training.recipe import Recipe
from sgoif.training.session import Session

MEAN, STD, FIRST = (0.3,), (0.37,), 4
Found = dict[str, tuple[float, float]]  # score -> AUROC near, far


def images() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return pixels and labels of the parts train, val, test, near and far."""
    from sklearn.datasets import load_digits, load_sample_image

    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    x, y = (data.images * (255 / 16)).round().astype(np.uint8)[order], data.target[order]
    known = np.flatnonzero(y >= FIRST)
    parts = {"train": known[:800], "val": known[800:860], "test": known[860:], "near": np.flatnonzero(y < 2)}
    photo, rng = load_sample_image("flower.jpg").mean(-1).astype(np.uint8), np.random.default_rng(7)
    rows, columns = (rng.integers(0, side - 8, 200) for side in photo.shape)
    far = np.stack([photo[r : r + 8, c : c + 8] for r, c in zip(rows, columns, strict=True)])
    return {**{name: (x[i], y[i] - FIRST) for name, i in parts.items()}, "far": (far, np.zeros(200, int))}


def measure(method: str, seed: int, epochs: int = 8) -> Found:
    """Train a method and return AUROC near and far of each of its scores."""
    data = images()
    sets = {name: ImageSet(x, MEAN, STD) for name, (x, _) in data.items()}
    task = OODTask(
        train=sets["train"],
        labels=torch.from_numpy(data["train"][1]),
        val=sets["val"],
        n_classes=6,
        seed=seed,
        recipe=Recipe(model="small_cnn", epochs=epochs, batch_size=128, lr=0.2, shift=1),
        session=Session(None, "candidates", seed),
    )
    detector = load("ood", method)()
    detector.fit(task)
    scores = {name: detector.scores(sets[name]) for name in ("test", "near", "far")}
    return {
        candidate: tuple(ood(inside.numpy(), scores[group][candidate].numpy())["auroc"] for group in ("near", "far"))
        for candidate, inside in scores["test"].items()
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", default=["arpl", "godin", "csi"], help="methods that train themselves")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.methods:
        for seed in options.seeds:
            found = measure(name, seed)
            print(name, seed, {k: [round(100 * v, 1) for v in pair] for k, pair in found.items()}, flush=True)
