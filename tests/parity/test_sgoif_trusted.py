"""SG-OIF with trusted anchors: what a few right labels tell that many wrong ones cannot."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from baselines.noisy.sgoif import SGOIF
from baselines.noisy.sgoif_trusted import TrustedSGOIF
from sgoif.bench.methods.sgoif_detector import TrustedImages
from sgoif.errors import UserError
from sgoif.training.cost.compute_counter import COMPUTE
from tests.helpers.digit_tasks import RECIPE, digits, noisy_task


@functools.cache
def swapped():
    """Digits of which 70% of the ones are called seven and 70% of the sevens one."""
    task, _ = noisy_task(plain=False, recipe=replace(RECIPE, epochs=8))
    truth = digits()[1][: len(task.train)]
    exchanged = np.where(truth == 1, 7, np.where(truth == 7, 1, truth))
    wrong = np.isin(truth, (1, 7)) & (np.random.default_rng(0).random(len(truth)) < 0.7)
    return replace(task, labels=torch.from_numpy(np.where(wrong, exchanged, truth))), wrong


def test_right_labels_tell_which_class_is_meant():
    task, wrong = swapped()
    alone, told = SGOIF().detect(task), TrustedSGOIF().detect(task)
    assert average_precision_score(wrong, alone.scores) < 0.5  # by the labels the few right ones are the wrong ones
    assert average_precision_score(wrong, told.scores) > 0.95
    assert average_precision_score(wrong, told.variants["latent"]) > 0.95
    assert average_precision_score(wrong, told.variants["influence"]) > 0.9
    assert told.extras["estimated_noise"] == pytest.approx(wrong.mean(), abs=0.02)
    assert (told.remove == wrong).mean() > 0.97


def test_it_does_not_run_without_them():
    task, _ = swapped()
    with pytest.raises(UserError, match="needs trusted images"):
        TrustedSGOIF().detect(replace(task, trusted=None))


@pytest.mark.parametrize(("kind", "source"), [(SGOIF, "trusted"), (SGOIF, "heldout"), (TrustedSGOIF, "stream")])
def test_where_anchors_come_from_is_the_methods_own(kind, source):
    with pytest.raises(UserError, match=f"params.{kind.name}.source"):
        kind(source=source)


def test_trusted_images_come_in_batches():
    task, _ = swapped()
    images, labels = task.trusted
    batches = list(TrustedImages(images, labels))
    torch.testing.assert_close(torch.cat([x for x, _ in batches]), images.batch(torch.arange(len(images))))
    assert torch.equal(torch.cat([y for _, y in batches]), labels)


@pytest.mark.parametrize("at_once", [100, 40])
def test_trusted_images_count_as_passes(at_once, monkeypatch):
    """At every check those whose turn it is, the first time all, and all when the scores are read."""
    monkeypatch.setattr("sgoif.bench.methods.sgoif_detector.TRUSTED_BATCH", 20)
    task, _ = swapped()
    task = replace(task, recipe=replace(task.recipe, epochs=2))
    passes = []
    often = {"solve_every": 4, "hvp_budget": 100.0}
    for kind, params in ((SGOIF, {}), (TrustedSGOIF, {"anchor_examples": at_once})):
        COMPUTE.reset()
        checks = kind(**often, **params).detect(task).extras["checks"]
        passes.append(COMPUTE.forward_passes)
    assert len(task.trusted[1]) == 100 and checks > 2
    assert passes[1] - passes[0] == 100 + (checks - 1) * at_once + 100
