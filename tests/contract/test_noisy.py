"""Every file in baselines/noisy keeps the contract: found by listing the folder, so a new method is tested at once."""

import functools
from dataclasses import is_dataclass, replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from sgoif.bench.methods import registry
from sgoif.bench.methods.base import NoisyLabelDetector
from sgoif.bench.methods.tasks import NoiseFacts
from sgoif.errors import UserError
from tests.contract.declarations import check_declaration
from tests.contract.interrupt import Killed, killing_session, quiet_session
from tests.contract.rules import check_rule
from tests.helpers.digit_tasks import RECIPE, noisy_task

SMALL = replace(RECIPE, model="tiny_cnn", epochs=6, lr=0.4)


def run(name: str, session=None, seed: int = 0):
    kind = registry.load("noisy", name)
    task, wrong = noisy_task(
        seed=seed, rate=0.3, n_train=600, plain=kind.reads_plain, folds=kind.reads_folds, recipe=SMALL
    )
    if not kind.uses_trusted:
        task.trusted = None
    task.noise = NoiseFacts(0.3, "symmetric") if kind.told_noise else None
    if session is not None:
        task.session = session
    return kind().detect(task), wrong


@functools.cache
def reference(name: str):
    """An uninterrupted run, computed once for all tests of a method."""
    return run(name)


@pytest.mark.parametrize("name", registry.available("noisy"))
def test_shape_sign_and_determinism(name):
    found, wrong = reference(name)
    assert found.scores.shape == wrong.shape
    assert np.isfinite(found.scores).all()
    if registry.load("noisy", name).reads_plain:  # the others are run twice below, once with an interruption
        np.testing.assert_array_equal(found.scores, run(name)[0].scores)
    for variant, scores in found.variants.items():
        assert scores.shape == wrong.shape and np.isfinite(scores).all(), variant
    if found.remove is not None:
        assert found.remove.shape == wrong.shape and found.remove.dtype == bool
    if found.test_logits is not None:
        assert found.test_logits.shape == (497, 10) and np.isfinite(found.test_logits).all()
    assert len({trace.shape for trace in found.traces.values()}) <= 1, "the rows of a trace belong together"
    if name != "random":
        assert roc_auc_score(wrong, found.scores) > 0.6, "higher must mean more suspicious"


@pytest.mark.parametrize(
    "name", [n for n in registry.available("noisy") if registry.declaration("noisy", n).candidates]
)
def test_one_candidate_ranks_and_the_others_are_variants(name):
    kind, (found, _) = registry.load("noisy", name), reference(name)
    assert kind.ranked_by in kind.candidates and all(kind.candidates.values())
    assert set(found.variants) == set(kind.candidates) - {kind.ranked_by}
    with pytest.raises(UserError, match=f"params.{name}.score: one of {next(iter(kind.candidates))}"):
        kind(score="nonsense")


@pytest.mark.parametrize(
    "name", [n for n in registry.available("noisy") if not registry.declaration("noisy", n).reads_plain]
)
def test_run_again_killed_and_resumed_gives_the_same_scores(name, tmp_path):
    whole, _ = reference(name)
    try:
        resumed, _ = run(name, killing_session(tmp_path, after=4))  # what does not train ends, the same as before
    except Killed:
        resumed, _ = run(name, quiet_session(tmp_path))
    np.testing.assert_array_equal(whole.scores, resumed.scores)
    for trace, values in whole.traces.items():
        np.testing.assert_array_equal(values, resumed.traces[trace], err_msg=trace)


@pytest.mark.parametrize("name", registry.available("noisy"))
def test_declarations(name):
    kind = registry.load("noisy", name)
    assert issubclass(kind, NoisyLabelDetector) and kind.name == name and kind.title
    check_declaration("noisy", name)
    check_rule("noisy", name)
    assert is_dataclass(kind.Params) and kind.Params.__dataclass_params__.frozen
    with pytest.raises(UserError, match=f"params.{name}.nonsense"):
        kind(nonsense=1)
