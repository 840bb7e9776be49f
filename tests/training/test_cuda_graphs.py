"""What methods that train do in a step can be a CUDA graph: on a stand-in for the CPU they give the same bits."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sgoif.bench.methods import registry
from sgoif.training.cost.compute_counter import COMPUTE
from tests.contract.interrupt import Killed, killing_session, quiet_session
from tests.helpers.digit_tasks import RECIPE, noisy_task
from tests.helpers.simulated_cuda_graphs import NotCapturable, capture_steps

# the learning rate is a device tensor on a GPU alone, so here it is one number
SMALL = replace(RECIPE, epochs=4, schedule="constant", lr=0.05)
# method, hyper-parameters, epochs after which it is killed: two epochs are three steps, a capture and four replays
TRAINERS = [
    ("sce", {}, 2),
    ("mixup", {}, 2),
    ("mentornet", {}, 2),
    ("mentornet", {"mentor": "data_driven", "mentor_steps": 50}, 2),
    ("coteaching", {"noise_rate": 0.3, "ramp": 0.5}, 2),
    ("incv", {"iterations": 1, "least_steps": 1, "pattern": "symmetric"}, 6),
    ("sgoif", {"scope": "all", "update_every": 2}, 2),  # hooks that a replay does not run
    ("sgoif_trusted", {}, 2),  # and passes beside the captured ones
    ("sgoif", {"trainings": 2}, 6),  # in the second
]


def run(name: str, params: dict, session=None):
    task, _ = noisy_task(rate=0.3, n_train=600, plain=False, recipe=SMALL)
    if session is not None:
        task.session = session
    COMPUTE.reset()
    found = registry.load("noisy", name)(**params).detect(task)
    return found, COMPUTE.forward_passes


@pytest.mark.parametrize(("name", "params", "epochs"), TRAINERS)
def test_a_captured_step_gives_the_same_bits(name, params, epochs, monkeypatch, tmp_path):
    """Also where a job is killed and resumed; and its passes are counted as if it were not captured."""
    eager, passes = run(name, params)
    made = capture_steps(monkeypatch)
    captured, counted = run(name, params)
    assert made and all(f.graphs for f in made), "no step was captured"
    with pytest.raises(Killed):
        run(name, params, killing_session(tmp_path, after=epochs))
    resumed, _ = run(name, params, quiet_session(tmp_path))
    for found in (captured, resumed):
        np.testing.assert_array_equal(found.scores, eager.scores)
        np.testing.assert_array_equal(found.test_logits, eager.test_logits)
        for variant, scores in eager.variants.items():
            np.testing.assert_array_equal(found.variants[variant], scores, err_msg=variant)
        assert found.extras == eager.extras
    assert counted == passes


def learner_and_batch():
    task, _ = noisy_task(plain=False, n_train=300, recipe=SMALL)
    batches = task.batches()
    return task.learner(batches), next(batches.epoch(0))


@pytest.mark.parametrize(
    "look",
    [
        lambda losses: losses[losses > losses.median()],
        lambda losses: losses * losses.max().item(),
        lambda losses: losses if losses.mean() > 0 else -losses,
        lambda losses: losses[torch.randperm(len(losses))],
    ],
)
def test_the_stand_in_refuses_what_a_graph_cannot_hold(look, monkeypatch):
    capture_steps(monkeypatch)
    learner, batch = learner_and_batch()
    step = learner.stepper(lambda b: (look(F.cross_entropy(learner(b.x), b.labels, reduction="none")).mean(),))
    with pytest.raises(NotCapturable):
        for _ in range(5):
            step(batch)


@pytest.mark.parametrize(("brought", "expected"), [(True, [1, 2, 3, 4, 5, 6]), (False, [1, 2, 3, 4, 4, 4])])
def test_the_stand_in_freezes_python_values(brought, expected, monkeypatch):
    """A number in a closure stays what it was; one that is brought along does not."""
    capture_steps(monkeypatch)
    learner, batch = learner_and_batch()
    now, seen = [0.0], []

    def forward(b):
        weight = b.extra[0] if brought else now[0]
        return F.cross_entropy(learner(b.x), b.labels), weight * torch.ones(())

    step = learner.stepper(forward)
    for now[0] in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0):
        seen.append(float(step(batch.with_extra(torch.tensor(now[0])))[1]))
    assert seen == expected
