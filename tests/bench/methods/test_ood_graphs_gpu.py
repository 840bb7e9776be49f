"""On a GPU: OOD methods that train give loosely the same scores whether their steps are captured or not."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sgoif.bench.methods.plain_run import PlainRun
from sgoif.bench.methods.plain_training import plain_run
from sgoif.bench.methods.registry import load
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.images import ImageSet
from sgoif.training.recipe import Recipe
from sgoif.training.session import Session
from sgoif.utils.files import save_npz

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

RECIPE = Recipe(model="resnet9", epochs=2, batch_size=64, lr=0.01, shift=4, flip=True, checkpoints=1)
# method: hyper-parameters that keep it short, with all it does within two epochs, and small steps: large ones make more
# of a difference in rounding
TRAINED = {
    "arpl": {},
    "csi": {},
    "cutpaste": {"lr": 1e-3},
    "draem": {"steps": 16, "lr": 1e-4},
    "godin": {},
    "logitnorm": {},
    "mos": {"min_steps": 16},
    "opengan": {"min_steps": 16},
    "pixmix": {"pictures": 64},
    "udg": {},
    "vos": {"start": 0.5, "queue": 40},
}


@pytest.fixture(scope="module")
def images() -> ImageSet:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 120, (512, 32, 32, 3)) + 13 * (np.arange(512) % 10)[:, None, None, None]
    return ImageSet(pixels.astype(np.uint8), (0.5,) * 3, (0.25,) * 3, "cuda")


def task_of(images: ImageSet, recipe: Recipe) -> OODTask:
    labels = torch.arange(len(images), device="cuda") % 10
    return OODTask(
        train=images,
        labels=labels,
        val=images,
        n_classes=10,
        seed=0,
        recipe=recipe,
        session=Session(None, "gpu", 0, "cuda"),
    )


@pytest.fixture(scope="module")
def plain(images, tmp_path_factory) -> PlainRun:
    folder = tmp_path_factory.mktemp("plain")
    arrays, _ = plain_run(task_of(images, RECIPE), images, folder)
    save_npz(folder / "arrays.npz", **arrays)
    return PlainRun(folder, RECIPE, 10, 3, 32, torch.device("cuda"))


@pytest.mark.parametrize("name", TRAINED)
def test_captured_and_ordinary_steps_agree(name, images, plain):
    found = []
    for graph in (False, True):
        task = task_of(images, replace(RECIPE, graph=graph))
        task.plain, task.auxiliary = plain, images.subset(torch.arange(128))
        method = load("ood", name)(**TRAINED[name])
        method.fit(task)
        found.append(method.score(images).double())
    ordinary, captured = found
    assert torch.isfinite(ordinary).all() and torch.isfinite(captured).all() and ordinary.std() > 0
    assert (captured - ordinary).abs().median() < 0.2 * ordinary.std() + 0.01 * ordinary.abs().mean()


def test_a_recipe_that_compiles_does_not_stop_a_network_without_a_backbone(images, plain):
    task = task_of(images, replace(RECIPE, compile=True, epochs=1))
    task.plain = plain
    method = load("ood", "draem")(steps=8)
    method.fit(task)
    assert torch.isfinite(method.score(images)).all()
