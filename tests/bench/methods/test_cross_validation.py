"""Out-of-fold probabilities: the split, that nobody judges what it learned, and resuming."""

from dataclasses import replace

import numpy as np
import pytest

from baselines.noisy.oof_self_confidence import OOFSelfConfidence
from sgoif.bench.evaluation.metrics import detection
from sgoif.bench.methods import cross_validation
from sgoif.errors import UserError
from sgoif.training.session import Session
from tests.helpers.digit_tasks import RECIPE, noisy_task

SHORT = replace(RECIPE, epochs=2, batch_size=64)


def test_split_is_balanced_and_seeded():
    labels = np.random.default_rng(0).choice(5, size=203, p=[0.5, 0.3, 0.1, 0.07, 0.03])
    fold = cross_validation.split(labels, 4, seed=1)
    counts = np.array([np.bincount(labels[fold == f], minlength=5) for f in range(4)])
    assert np.ptp(counts, axis=0).max() <= 1
    assert np.ptp(counts.sum(axis=1)) <= 1
    np.testing.assert_array_equal(fold, cross_validation.split(labels, 4, seed=1))
    assert (fold != cross_validation.split(labels, 4, seed=2)).any()
    with pytest.raises(UserError, match="folds"):
        cross_validation.split(labels, 1, seed=0)


def test_nobody_judges_what_it_learned(monkeypatch):
    task, _ = noisy_task(n_train=80, plain=False, recipe=SHORT)
    seen = []

    def one_fold(task, number, rest, held_out):
        assert not set(rest) & set(held_out) and len(rest) + len(held_out) == 80
        seen.extend(held_out)
        return {"probabilities": np.full((len(held_out), 10), number / 10)}

    monkeypatch.setattr(cross_validation, "_one_fold", one_fold)
    p = cross_validation.fold_probabilities(task)["probabilities"]
    assert sorted(seen) == list(range(80))
    np.testing.assert_allclose(p[:, 0] * 10, cross_validation.split(task.labels.numpy(), 4, task.seed), atol=1e-6)


def test_a_killed_job_keeps_its_finished_folds(tmp_path, monkeypatch):
    task, _ = noisy_task(n_train=80, plain=False, recipe=SHORT)
    whole = cross_validation.fold_probabilities(task)["probabilities"]
    np.testing.assert_allclose(whole.sum(axis=1), 1, atol=1e-5)

    task.session = Session(tmp_path / "cell", "key", task.seed)
    train, calls = cross_validation._one_fold, []

    def dies_in_fold_2(*args):
        calls.append(args[1])
        if calls == [0, 1, 2]:
            raise KeyboardInterrupt
        return train(*args)

    monkeypatch.setattr(cross_validation, "_one_fold", dies_in_fold_2)
    with pytest.raises(KeyboardInterrupt):
        cross_validation.fold_probabilities(task)
    np.testing.assert_array_equal(cross_validation.fold_probabilities(task)["probabilities"], whole)
    assert calls == [0, 1, 2, 2, 3]


def test_self_confidence_of_the_shared_folds():
    task, wrong = noisy_task(n_train=600, plain=False, folds=True)
    found = OOFSelfConfidence().detect(task)
    assert detection(found.scores, wrong)["auroc"] > 0.95
    assert wrong[found.remove].mean() > 0.6 and found.remove[wrong].mean() > 0.9
    assert found.scores[found.remove].min() >= 0.5  # another class has at least as much


def test_trains_the_folds_where_none_are_shared():
    task, _ = noisy_task(n_train=80, plain=False, recipe=SHORT)
    alone = OOFSelfConfidence().detect(task).scores
    task.folds = cross_validation.fold_probabilities(task)["probabilities"]
    np.testing.assert_array_equal(alone, OOFSelfConfidence().detect(task).scores)
