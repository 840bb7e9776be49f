"""All post-hoc and anomaly methods on a real task: they separate, are finite, and repeat by seed."""

import functools

import pytest
import torch

from sgoif.bench.methods.registry import load
from sgoif.training.cost.compute_counter import COMPUTE
from sgoif.training.session import Session
from tests.helpers.digit_tasks import ood_task

# least AUROC asked for: (held-out digits, photograph patches); None where a method is not made for it
LEAST = {
    "ebo": (0.85, 0.85),
    "mls": (0.85, 0.85),
    "klm": (0.8, 0.8),
    "gradnorm": (0.75, 0.8),
    "react": (0.8, 0.85),
    "dice": (0.8, 0.85),
    "vim": (0.85, 0.85),
    "knn": (0.85, 0.9),
    "gram": (0.75, 0.95),
    "patchcore": (0.8, 0.95),
    "cutpaste": (0.8, 0.95),
    "draem": (None, 0.9),  # a whole digit of another class has no local defect
    "sgoif": (0.9, 0.98),
    "gen": (0.85, 0.85),
    "odin": (0.85, 0.85),
    "mds": (0.85, 0.9),
    "mds_ensemble": (0.85, 0.95),
    "rmds": (0.85, 0.9),
    "she": (0.85, 0.9),
    "ash": (0.8, 0.9),
    "scale": (0.75, 0.9),
    "nnguide": (0.85, 0.9),
    "fdbd": (0.85, 0.9),
    "neco": (0.85, 0.8),
    "relation": (0.8, 0.9),
}
PASSES = {"odin": 4, "mds_ensemble": 10}  # images through the network for a score, where it is not one
BRIEFLY = {"cutpaste": {"epochs": 0.25}, "draem": {"epochs": 0.25, "steps": 10}}  # where quality does not matter


def auroc(id_scores: torch.Tensor, ood_scores: torch.Tensor) -> float:
    above = (ood_scores[:, None] > id_scores).double() + 0.5 * (ood_scores[:, None] == id_scores)
    return above.mean().item()


@functools.cache
def fitted(name: str):
    task, images, ood = ood_task()
    method = load("ood", name)()
    method.fit(task)
    return method, images, ood


def briefly(name: str, session: Session | None = None) -> torch.Tensor:
    """Scores of the ID test images after a short fit."""
    task, images, _ = ood_task()
    task.session = session or task.session
    task.seed = task.session.seed
    method = load("ood", name)(**BRIEFLY.get(name, {}))
    method.fit(task)
    return method.score(images)


@functools.cache
def brief_reference(name: str) -> torch.Tensor:
    return briefly(name)


@pytest.mark.parametrize("name", LEAST)
def test_separates_in_as_many_passes_as_it_takes(name):
    method, images, ood = fitted(name)
    COMPUTE.reset()
    scores = method.score(images)
    assert COMPUTE.forward_passes == PASSES.get(name, 1) * len(images)
    assert scores.shape == (len(images),) and torch.isfinite(scores).all()
    for group, least in zip(("near", "far"), LEAST[name], strict=True):
        found = auroc(scores, method.score(ood[group]))
        assert found > (least or 0.4), f"{group}: AUROC {found:.3f}"
    part = images.subset(torch.arange(5, 40))
    torch.testing.assert_close(method.score(part), scores[5:40], rtol=1e-3, atol=1e-4)  # no image sees another
    assert method.logits(images).shape == (len(images), 6)


def test_draem_finds_the_defects_it_was_taught():
    from baselines.ood.draem import DRAEM, draw

    method, images, _ = fitted("draem")
    clean = images.denormalise(images.batch(torch.arange(len(images))))
    drawn = draw(len(clean), *clean.shape[1:3], torch.Generator().manual_seed(9))
    spoiled, mask = DRAEM.spoil(clean, 0.8, drawn)
    with torch.no_grad():
        found = method.detector(spoiled)[:, -2:].softmax(1)[:, 1]
    assert auroc(found[mask[:, 0] == 0], found[mask[:, 0] == 1]) > 0.75  # pixel by pixel


@pytest.mark.parametrize("name", LEAST)
def test_repeats_by_seed(name):
    assert torch.equal(brief_reference(name), briefly(name))


@pytest.mark.parametrize("name", ["gram", "patchcore", "cutpaste", "draem", "nnguide"])
def test_another_seed_gives_other_scores(name):
    """On the same network: what differs is the method's own randomness."""
    assert not torch.allclose(brief_reference(name), briefly(name, Session(None, "test", 1)))


class Killed(Exception):
    pass


class Dying(Session):
    """Ends in its second epoch; the first is saved."""

    def check_time(self):
        self.epochs_seen = getattr(self, "epochs_seen", 0) + 1
        if self.epochs_seen == 2:
            raise Killed


@pytest.mark.parametrize("name", BRIEFLY)
def test_training_goes_on_after_a_kill(name, tmp_path):
    with pytest.raises(Killed):
        briefly(name, Dying(tmp_path, "key", 0, save_every=0))
    assert (tmp_path / f"{name}.pt").is_file()
    resumed = Session(tmp_path, "key", 0, save_every=0)
    assert torch.equal(briefly(name, resumed), briefly(name, Session(None, "key", 0)))
