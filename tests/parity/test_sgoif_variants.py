"""Variants of SG-OIF that are rows and controls: the paper's score, the parts of the suspicion, and H = I."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score
from torch import nn

from baselines.noisy.sgoif import SGOIF
from sgoif import InfluenceConfig, OnlineInfluence
from sgoif.bench.config import load_config
from sgoif.bench.methods import sgoif_detector
from sgoif.errors import UserError
from sgoif.training.cost.compute_counter import COMPUTE
from sgoif.utils.paths import ROOT
from tests.helpers.digit_tasks import RECIPE, noisy_task


def of_config(name: str) -> dict:
    return load_config(ROOT / "configs" / "demo.yaml")["variants"]["sgoif"][name]


@functools.cache
def task():
    return noisy_task(plain=False, recipe=replace(RECIPE, epochs=2))


@functools.cache
def uniform():
    """The full method with anchors that count alike."""
    return SGOIF(anchor_prior="uniform").detect(task()[0])


def test_the_papers_score_is_the_influence_of_anchors_that_count_alike():
    paper = SGOIF(**of_config("paper")).detect(task()[0])
    visited = paper.scores > paper.scores.min()  # two examples never were, and come last
    assert visited.sum() >= len(visited) - 2
    np.testing.assert_array_equal(paper.scores[visited], uniform().variants["influence"][visited])
    assert not paper.variants and not np.array_equal(paper.scores, uniform().scores)


def test_the_parts_of_the_suspicion_are_shown_beside_it():
    found, wrong = uniform(), task()[1]
    assert set(found.variants) == set(SGOIF.parts)
    doubt = found.variants["doubt"]
    assert doubt.min() >= 0 and doubt.max() <= 1
    assert average_precision_score(wrong, doubt) > 2 * wrong.mean()


def test_the_control_without_curvature_is_the_gradients_themselves():
    """phi_v is g_v up to one scale, in the same run in which the K-FAC inverse turns it."""
    x, y = torch.randn(64, 6, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 3
    cosines = {}
    for name in ("identity", "kfac_alone"):
        torch.manual_seed(0)
        model = nn.Linear(6, 3)
        with OnlineInfluence(model, 64, 3, InfluenceConfig(**of_config(name)), total_steps=4) as influence:
            for step in range(4):
                index = torch.arange(16) + 16 * step
                with influence.watch(index, y[index]):
                    nn.functional.cross_entropy(model(x[index]), y[index]).backward()
                influence.step()
        parts = influence._engine.parts
        cosines[name] = torch.cosine_similarity(parts.directions.phi, parts.anchors.targets())
    torch.testing.assert_close(cosines["identity"], torch.ones(3))
    assert cosines["kfac_alone"].max() < 0.999


def test_a_second_training_is_corrected_by_the_noise_matrix_of_the_first(monkeypatch):
    noisy, wrong = noisy_task(plain=False, rate=0.4)
    matrices, corrected = [], sgoif_detector.CorrectedCrossEntropy

    def noted(matrix, n_noisy):
        matrices.append(matrix)
        assert n_noisy == len(noisy.labels)
        return corrected(matrix, n_noisy)

    monkeypatch.setattr(sgoif_detector, "CorrectedCrossEntropy", noted)
    passes, found = [], []
    for trainings in (1, 2):
        COMPUTE.reset()
        found.append(SGOIF(trainings=trainings).detect(noisy))
        passes.append(COMPUTE.forward_passes)
    assert passes[1] == 2 * passes[0]
    (matrix,) = matrices
    torch.testing.assert_close(matrix.sum(1), torch.ones(10))
    assert matrix.diagonal().mean() == pytest.approx(1 - wrong.mean(), abs=0.1)
    assert not np.array_equal(found[0].scores, found[1].scores)
    assert average_precision_score(wrong, found[1].scores) > 0.9


@pytest.mark.parametrize("params", [{"trainings": 3}, {"trainings": True}, {"trainings": 2, "memory": False}])
def test_other_numbers_of_trainings_are_refused(params):
    with pytest.raises(UserError, match=r"params\.sgoif\.trainings"):
        SGOIF(**params)
