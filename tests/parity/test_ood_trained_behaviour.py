"""The trained OOD baselines on a real task: they learn, separate, are finite, repeat by seed and survive a kill."""

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
from tests.helpers.digit_tasks import digits, ood_task

pytestmark = pytest.mark.slow

# least ID accuracy, least AUROC on (held-out digits, photograph patches)
LEAST = {
    "godin": (0.9, 0.7, 0.6),
    "arpl": (0.9, 0.85, 0.85),
    "logitnorm": (0.9, 0.8, 0.9),
    "vos": (0.9, 0.85, 0.9),
    "pixmix": (0.9, 0.85, 0.9),
    "udg": (0.9, 0.85, 0.9),
    "mos": (0.9, 0.8, 0.8),
    "opengan": (0.9, 0.0, 0.0),  # no epoch is chosen with outliers: nothing is promised
    "csi": (0.8, 0.7, 0.8),
    "rotpred": (0.9, 0.8, 0.9),
    "t2fnorm": (0.9, 0.8, 0.8),
}


class Killed(Exception):
    pass


class Dying(Session):
    """Saves after every epoch and dies when `epoch` epochs of the phase are done."""

    def __init__(self, directory, die_at=None):
        super().__init__(directory, "key", 0, save_every=-1)
        self.die_at = die_at

    def epochs(self, n, *stateful, phase="train", timer="train"):
        for epoch in super().epochs(n, *stateful, phase=phase, timer=timer):
            if self.die_at == epoch:
                raise Killed
            yield epoch


def auroc(id_scores: torch.Tensor, ood_scores: torch.Tensor) -> float:
    above = (ood_scores[:, None] > id_scores).double() + 0.5 * (ood_scores[:, None] == id_scores)
    return above.mean().item()


def fitted(name: str, session: Session | None = None):
    task, images, ood = ood_task(0)
    task.session = session or task.session
    method = load("ood", name)()
    method.fit(task)
    return method, images, ood


@pytest.mark.parametrize("name", LEAST)
def test_learns_separates_and_resumes_to_the_same_bits(name, tmp_path):
    method, images, ood = fitted(name)
    accuracy, near, far = LEAST[name]
    y = digits()[1]
    logits = method.logits(images)
    assert logits.shape == (len(images), 6)
    found = (logits.argmax(1).numpy() == y[np.flatnonzero(y < 6)[900:]]).mean()
    assert found > accuracy, f"ID accuracy {found:.3f}"
    scores = method.score(images)
    assert scores.shape == (len(images),) and torch.isfinite(scores).all() and scores.unique().numel() > 20
    for group, least in (("near", near), ("far", far)):
        found = auroc(scores, method.score(ood[group]))
        assert found > least, f"{group}: AUROC {found:.3f}"
    part = images.subset(torch.arange(5, 40))
    torch.testing.assert_close(method.score(part), scores[5:40], rtol=1e-3, atol=1e-4)  # no image sees another

    # the same seed, killed in the middle: the same bits as the run that was left alone
    with pytest.raises(Killed):
        fitted(name, Dying(tmp_path / "cell", die_at=5))
    assert torch.equal(fitted(name, Dying(tmp_path / "cell"))[0].score(images), scores)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", LEAST)
def test_colour_images_on_a_gpu_in_bfloat16(name, tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(1024) % 10
    x = (rng.integers(0, 120, (1024, 32, 32, 3)) + 13 * y[:, None, None, None]).astype(np.uint8)
    images = ImageSet(x, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25), "cuda")
    labels = torch.from_numpy(y).cuda()
    recipe = Recipe(model="resnet9", epochs=2, shift=4, flip=True, precision="bfloat16", lr=0.05, checkpoints=1)

    def fresh() -> OODTask:
        return OODTask(
            train=images,
            labels=labels,
            val=images,
            n_classes=10,
            seed=0,
            recipe=recipe,
            session=Session(None, "gpu", 0, "cuda"),
        )

    def once():
        task = fresh()
        task.plain, task.auxiliary = plain, images.subset(torch.arange(300))
        method = load("ood", name)(**({"min_steps": 10} if name in ("mos", "opengan") else {}))
        method.fit(task)
        return method

    plain = None
    if name in ("mos", "opengan"):
        arrays, _ = plain_run(fresh(), images, tmp_path)
        save_npz(tmp_path / "arrays.npz", **arrays)
        plain = PlainRun(tmp_path, recipe, 10, 3, 32, torch.device("cuda"))
    method = once()
    scores = method.score(images)
    assert scores.is_cuda and torch.isfinite(scores).all() and method.logits(images).shape == (1024, 10)
    torch.testing.assert_close(once().score(images), scores, rtol=0.05, atol=0.05)
