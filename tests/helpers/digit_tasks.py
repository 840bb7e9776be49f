"""Small real tasks for tests: scikit-learn's digits, a small network, a few epochs. Built once per process and seed."""

import functools
import tempfile
from pathlib import Path

import numpy as np
import torch

from sgoif.bench.methods.cross_validation import fold_probabilities
from sgoif.bench.methods.plain_run import PlainRun
from sgoif.bench.methods.plain_training import plain_run
from sgoif.bench.methods.tasks import NoisyTask, OODTask
from sgoif.training.images import ImageSet
from sgoif.training.recipe import Recipe
from sgoif.training.session import Session
from sgoif.utils.files import save_npz

RECIPE = Recipe(model="small_cnn", epochs=8, batch_size=128, lr=0.2, shift=1, checkpoints=3)
MEAN, STD = (0.3,), (0.37,)
KEPT: list[tempfile.TemporaryDirectory] = []  # what plain runs wrote; gone when the process ends


@functools.cache
def digits() -> tuple[np.ndarray, np.ndarray]:
    """All 1,797 digits as uint8 [N, 8, 8] in a fixed shuffled order, and their labels."""
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    return (data.images * (255 / 16)).round().astype(np.uint8)[order], data.target[order]


def flipped(labels: np.ndarray, rate: float, n_classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Symmetric noise: (noisy labels, which are wrong)."""
    rng = np.random.default_rng(seed)
    wrong = rng.random(len(labels)) < rate
    noisy = np.where(wrong, (labels + rng.integers(1, n_classes, len(labels))) % n_classes, labels)
    return noisy, wrong


def _with_plain(task, test: ImageSet) -> PlainRun:
    kept = tempfile.TemporaryDirectory(prefix="sgoif-plain-")
    KEPT.append(kept)
    folder = Path(kept.name)
    arrays, _ = plain_run(task, test, folder)
    save_npz(folder / "arrays.npz", **arrays)
    return PlainRun(folder, task.recipe, task.n_classes, task.train.channels, task.train.size, task.session.device)


@functools.cache
def _noisy_plain(seed: int, rate: float, n_train: int, recipe: Recipe):
    task, _ = noisy_task(seed, rate, n_train, plain=False, recipe=recipe)
    return _with_plain(task, task.test)


@functools.cache
def _noisy_folds(seed: int, rate: float, n_train: int, recipe: Recipe):
    task, _ = noisy_task(seed, rate, n_train, plain=False, recipe=recipe)
    return fold_probabilities(task)["probabilities"]


def noisy_task(
    seed: int = 0,
    rate: float = 0.2,
    n_train: int = 1200,
    plain: bool = True,
    recipe: Recipe = RECIPE,
    folds: bool = False,
):
    """(NoisyTask, which labels are wrong [N] bool). The last 100 test images are the trusted set."""
    torch.set_num_threads(1)
    x, y = digits()
    labels, wrong = flipped(y[:n_train], rate, 10, seed=7)
    train, test = ImageSet(x[:n_train], MEAN, STD), ImageSet(x[1200:1697], MEAN, STD)
    task = NoisyTask(
        train=train,
        labels=torch.from_numpy(labels),
        test=test,
        n_classes=10,
        seed=seed,
        recipe=recipe,
        session=Session(None, "test", seed),
        trusted=(ImageSet(x[1697:], MEAN, STD), torch.from_numpy(y[1697:])),
    )
    if plain:
        task.plain = _noisy_plain(seed, rate, n_train, recipe)
    if folds:
        task.folds = _noisy_folds(seed, rate, n_train, recipe)
    return task, wrong


@functools.cache
def _ood_plain(seed: int, recipe: Recipe, n_train: int):
    task, id_test, _ = ood_task(seed, plain=False, recipe=recipe, n_train=n_train)
    return _with_plain(task, id_test)


def ood_task(seed: int = 0, plain: bool = True, recipe: Recipe = RECIPE, n_train: int = 800):
    """(OODTask on digits 0-5, ID test images, {"near": digits 8 and 9, "far": noise-like photograph patches})."""
    torch.set_num_threads(1)
    x, y = digits()
    known = np.flatnonzero(y < 6)
    train, val, test = known[:n_train], known[800:900], known[900:]
    from sklearn.datasets import load_sample_image

    photo = load_sample_image("china.jpg").mean(-1).astype(np.uint8)
    rng = np.random.default_rng(3)
    corners = zip(rng.integers(0, photo.shape[0] - 8, 200), rng.integers(0, photo.shape[1] - 8, 200), strict=True)
    patches = np.stack([photo[r : r + 8, c : c + 8] for r, c in corners])
    task = OODTask(
        train=ImageSet(x[train], MEAN, STD),
        labels=torch.from_numpy(y[train]),
        val=ImageSet(x[val], MEAN, STD),
        n_classes=6,
        seed=seed,
        recipe=recipe,
        session=Session(None, "test", seed),
        auxiliary=ImageSet(x[(y == 6) | (y == 7)], MEAN, STD),
    )
    if plain:
        task.plain = _ood_plain(seed, recipe, n_train)
    return (
        task,
        ImageSet(x[test], MEAN, STD),
        {"near": ImageSet(x[y > 7], MEAN, STD), "far": ImageSet(patches, MEAN, STD)},
    )
