"""On a GPU robust trainers give the same scores by captured steps as by ordinary ones."""

import numpy as np
import pytest
import torch

from sgoif.bench.methods import registry
from sgoif.bench.methods.sgoif_detector import TRUSTED_BATCH, TrustedImages
from sgoif.bench.methods.tasks import NoiseFacts, NoisyTask
from sgoif.training.batches import Batch
from sgoif.training.cost.compute_counter import COMPUTE
from sgoif.training.cuda_graphs import MAX_GRAPHS, WARM_UP_CALLS, GraphedStep
from sgoif.training.images import ImageSet
from sgoif.training.recipe import Recipe
from sgoif.training.session import Session
from tests.helpers.digit_tasks import flipped

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
TRAINERS = [
    ("sce", {}),
    ("mixup", {}),
    ("mentornet", {}),
    ("mentornet", {"mentor": "data_driven", "mentor_steps": 50}),
    ("coteaching", {"noise_rate": 0.3, "ramp": 0.5}),
    ("incv", {"iterations": 2}),
    ("sgoif_trusted", {}),
    ("sgoif", {"trainings": 2}),
]


def synthetic(n: int, seed: int, size: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """Ten kinds of coarse patterns under noise: uint8 [n, 32, 32, 3] and their labels."""
    rng, kinds = np.random.default_rng(seed), np.random.default_rng(0).uniform(60, 196, (10, 4, 4, 3))
    labels = rng.integers(0, 10, n)
    patterns = kinds[labels].repeat(size // 4, 1).repeat(size // 4, 2)
    return np.clip(patterns + rng.normal(0, 60, patterns.shape), 0, 255).astype(np.uint8), labels


def run(name: str, params: dict, device: str = "cuda", n: int = 1024, **recipe):
    pixels, labels = synthetic(n, 1)
    given, wrong = flipped(labels, 0.3, 10)
    others, clean = synthetic(256, 2)
    train, rest = (ImageSet(x, (0.5,) * 3, (0.3,) * 3, device) for x in (pixels, others))
    settings = {"model": "small_cnn", "epochs": 3, "batch_size": 64, "lr": 0.02, "shift": 2, "flip": False, **recipe}
    task = NoisyTask(
        train=train,
        labels=torch.from_numpy(given).to(device),
        test=rest,
        n_classes=10,
        seed=0,
        recipe=Recipe(**settings),
        session=Session(None, "test", 0, device),
        trusted=(rest, torch.from_numpy(clean).to(device)),
        noise=NoiseFacts(rate=0.3, pattern="symmetric"),
    )
    COMPUTE.reset()
    return registry.load("noisy", name)(**params).detect(task), wrong, COMPUTE.forward_passes


@pytest.mark.parametrize(("name", "params"), TRAINERS)
def test_what_is_captured_below_runs_without_a_gpu(name, params):
    """So that a GPU is not the first to tell that a method wants something else from its task."""
    found, wrong, _ = run(name, params, device="cpu", n=128, epochs=1)
    assert found.scores.shape == wrong.shape


@gpu
@pytest.mark.parametrize(("name", "params"), TRAINERS)
def test_captured_steps_find_the_same(name, params):
    ordinary, wrong, passes = run(name, params, graph=False)
    captured, _, counted = run(name, params, graph=True)
    assert np.corrcoef(ordinary.scores, captured.scores)[0, 1] > 0.99
    if captured.test_logits is not None:
        assert np.corrcoef(ordinary.test_logits.ravel(), captured.test_logits.ravel())[0, 1] > 0.99
    assert captured.scores[wrong].mean() > captured.scores[~wrong].mean()
    assert counted == pytest.approx(passes, rel=0.02)  # INCV may select one example more or less


@gpu
def test_incv_is_captured_and_compiled_at_once():
    """Its second stage has one compilation for several numbers of chosen examples, and a graph for each of them."""
    ordinary, wrong, passes = run("incv", {"iterations": 1}, graph=False)
    compiled, _, counted = run("incv", {"iterations": 1}, graph=True, compile=True)
    assert np.corrcoef(ordinary.scores, compiled.scores)[0, 1] > 0.99
    assert compiled.scores[wrong].mean() > compiled.scores[~wrong].mean()
    assert counted == pytest.approx(passes, rel=0.02)


@gpu
def test_trusted_images_never_wait_for_the_device():
    pixels, labels = synthetic(TRUSTED_BATCH + 8, 0)
    trusted = TrustedImages(ImageSet(pixels, (0.5,) * 3, (0.3,) * 3, "cuda"), torch.from_numpy(labels).cuda())
    list(trusted)
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert sum(len(y) for _, y in trusted) == TRUSTED_BATCH + 8
    finally:
        torch.cuda.set_sync_debug_mode("default")


@gpu
def test_the_oldest_graph_makes_room():
    images = ImageSet(synthetic(8, 0)[0], (0.5,) * 3, (0.3,) * 3, "cuda")
    graphed = GraphedStep(lambda batch: batch.labels.sum() + batch.extra[0])
    for n in range(1, MAX_GRAPHS + 3):
        for k in range(WARM_UP_CALLS + 3):
            index = torch.arange(n, device="cuda")
            batch = Batch(images, index, torch.full_like(index, k)).with_extra(torch.tensor(100 * k))
            assert graphed(batch).item() == n * k + 100 * k
    assert len(graphed.graphs) == MAX_GRAPHS
