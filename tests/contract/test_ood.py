"""Every file in baselines/ood keeps the contract: found by listing the folder, so a new method is tested at once."""

import functools
from dataclasses import is_dataclass, replace

import numpy as np
import pytest
import torch

from sgoif.bench.methods import registry
from sgoif.bench.methods.base import OODDetector
from sgoif.errors import UserError
from tests.contract.declarations import check_declaration
from tests.contract.interrupt import Killed, killing_session, quiet_session
from tests.contract.rules import check_rule
from tests.helpers.digit_tasks import RECIPE, ood_task

SMALL, N_TRAIN = replace(RECIPE, epochs=3), 400  # how well it separates is asked in tests/parity
LEAST_STEPS = {
    "mos": {"min_steps": 30},
    "opengan": {"min_steps": 30},
    "draem": {"steps": 30},
}  # else many on few images


def run(name: str, session=None):
    kind = registry.load("ood", name)
    task, id_test, ood = ood_task(plain=kind.reads_plain, recipe=SMALL, n_train=N_TRAIN)
    if not kind.uses_auxiliary:
        task.auxiliary = None
    if session is not None:
        task.session = session
    method = kind(**LEAST_STEPS.get(name, {}))
    method.fit(task)
    return method, id_test, ood


@functools.cache
def reference(name: str):
    """An uninterrupted run, computed once for all tests of a method."""
    return run(name)


@pytest.mark.parametrize("name", registry.available("ood"))
def test_shapes(name):
    method, id_test, ood = reference(name)
    for images in (id_test, ood["near"], ood["far"]):
        scores = method.score(images)
        assert scores.shape == (len(images),) and torch.isfinite(scores).all()
    assert all(np.isfinite(value) for value in method.extras().values())
    logits = method.logits(id_test)
    assert logits.shape == (len(id_test), 6) and torch.isfinite(logits).all()
    assert all(isinstance(value, float) for value in method.extras().values())


@pytest.mark.parametrize("name", [n for n in registry.available("ood") if registry.declaration("ood", n).candidates])
def test_every_declared_score_is_given_and_one_ranks(name):
    method, id_test, _ = reference(name)
    found = method.scores(id_test)
    assert set(found) == set(method.candidates) and method.ranked_by in found
    assert torch.equal(method.score(id_test), found[method.ranked_by])
    for candidate, scores in found.items():
        assert scores.shape == (len(id_test),) and torch.isfinite(scores).all(), candidate
        method.score_name = candidate
        assert torch.equal(method.score(id_test), scores)
        assert method.logits(id_test).shape == (len(id_test), 6)
    method.score_name = method.ranked_by
    with pytest.raises(UserError, match=rf"params.{name}.score: one of .*not 'nonsense'"):
        type(method)(score="nonsense")


@pytest.mark.parametrize("name", registry.available("ood"))
def test_a_score_does_not_depend_on_its_neighbours(name):
    """The same image gets the same score whatever else is in the set."""
    method, id_test, _ = reference(name)
    alone = method.score(id_test.subset(range(7)))
    torch.testing.assert_close(alone, method.score(id_test)[:7], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", registry.available("ood"))
def test_run_again_killed_and_resumed_gives_the_same_scores(name, tmp_path):
    method, id_test, ood = reference(name)
    try:
        again, *_ = run(name, killing_session(tmp_path, after=2))  # what does not train ends, the same as before
        assert type(method).reads_plain, "it trains, so it is killed"
    except Killed:
        again, *_ = run(name, quiet_session(tmp_path))
    for images in (id_test, ood["near"], ood["far"]):
        np.testing.assert_array_equal(method.score(images).cpu().numpy(), again.score(images).cpu().numpy())


@pytest.mark.parametrize("name", registry.available("ood"))
def test_declarations(name):
    kind = registry.load("ood", name)
    assert issubclass(kind, OODDetector) and kind.name == name and kind.title
    check_declaration("ood", name)
    check_rule("ood", name)
    assert is_dataclass(kind.Params) and kind.Params.__dataclass_params__.frozen
    with pytest.raises(UserError, match=f"params.{name}.nonsense"):
        kind(nonsense=1)
