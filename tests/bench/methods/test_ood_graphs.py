"""What OOD methods that train do in a step can be a CUDA graph: on a stand-in for the CPU they give the same bits."""

from dataclasses import replace

import pytest
import torch

from baselines.ood import opengan
from sgoif.bench.methods.registry import load
from sgoif.training.cost.compute_counter import COMPUTE
from sgoif.training.recipe import Recipe
from tests.helpers.digit_tasks import RECIPE, ood_task
from tests.helpers.simulated_cuda_graphs import NotCapturable, SimulatedGraph, capture_steps

pytestmark = pytest.mark.slow

SMALL = replace(RECIPE, epochs=4, lr=0.05)
# method: (hyper-parameters that keep it short, shapes of batches it is captured for)
TRAINED = {
    "arpl": ({}, 1),
    "csi": ({}, 2),  # contrast and heads
    "cutpaste": ({}, 1),
    "draem": ({"steps": 20}, 1),
    "godin": ({}, 1),
    "logitnorm": ({}, 1),
    "mos": ({"min_steps": 12}, 1),
    "opengan": ({"min_steps": 12}, 1),
    "pixmix": ({"pictures": 50}, 1),
    "rotpred": ({}, 1),
    "t2fnorm": ({}, 1),
    "udg": ({}, 1),
    "vos": ({"start": 0.25, "queue": 20}, 2),  # without and with outliers; a class fills its queue in one step
}


def captured_steps(monkeypatch) -> list[SimulatedGraph]:
    """OpenGAN's two players step in a graph of their own."""
    monkeypatch.setattr(opengan, "uses_cuda_graphs", lambda *_: True)
    return capture_steps(monkeypatch, opengan)


def run(name: str):
    kind = load("ood", name)
    task, images, _ = ood_task(plain=kind.reads_plain, recipe=SMALL)
    method = kind(**TRAINED[name][0])
    COMPUTE.reset()
    method.fit(task)
    return method.score(images), COMPUTE.forward_passes


@pytest.mark.parametrize("name", TRAINED)
def test_a_captured_step_gives_the_same_bits(name, monkeypatch):
    # on a GPU rates are tensors and Adam counts its steps on the device; on a CPU both are Python's numbers
    monkeypatch.setattr(Recipe, "lr_at", lambda self, step, total: self.lr)
    monkeypatch.setattr(torch.optim, "Adam", lambda weights, lr, **_: torch.optim.SGD(weights, lr=lr))
    eager, passes = run(name)
    made = captured_steps(monkeypatch)
    captured, counted = run(name)
    graphs = [graph for frozen in made for graph in frozen.graphs]
    assert len(graphs) == TRAINED[name][1], "not every step was captured"
    assert torch.equal(captured, eager) and counted == passes


def test_the_stand_in_refuses_numbers_from_the_host(monkeypatch):
    captured_steps(monkeypatch)
    task, _, _ = ood_task(plain=False, recipe=SMALL)
    batches = task.batches()
    learner = task.learner(batches)
    step = learner.stepper(lambda batch: (learner(batch.x).square().mean() * torch.tensor(2.0),))
    with pytest.raises(NotCapturable, match="fetched from the host"):
        for batch in batches.epoch(0):
            step(batch)


def test_every_method_that_trains_is_among_them():
    from sgoif.bench.methods.registry import available

    sources = {name: load("ood", name).fit.__code__.co_names for name in available("ood")}
    assert {name for name, used in sources.items() if {"epochs", "session"} <= set(used)} == set(TRAINED)
