"""Detectors that read the visits of the plain run, against numbers worked out by hand, and on digits."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from baselines.noisy.cartography import Cartography, variability
from baselines.noisy.el2n import EL2N
from baselines.noisy.forgetting import Forgetting, forgetting_events
from baselines.noisy.mean_loss import MeanLoss
from sgoif.bench.methods.robust.visits import Visits
from tests.helpers.digit_tasks import noisy_task

NAN = torch.nan


def test_forgetting_by_hand():
    """Right at a visit = margin above 0: learned and kept, forgotten twice, never right, forgotten across a gap."""
    margins = torch.tensor(
        [
            [1.0, 1.0, -1.0, 1.0],
            [1.0, -1.0, -1.0, NAN],
            [1.0, 1.0, -1.0, -1.0],
            [1.0, -1.0, -1.0, -1.0],
        ]
    )
    np.testing.assert_array_equal(forgetting_events(margins), [0, 2, 4, 1])
    visits = Visits(margins, torch.zeros(4, 4), torch.zeros(4, 4))
    found = Forgetting().detect(SimpleNamespace(plain=SimpleNamespace(visits=visits)))
    np.testing.assert_allclose(found.scores, [0, 0.5, 1, 2 / 3])
    np.testing.assert_array_equal(found.variants["events"], [0, 2, 4, 1])


def test_confidence_and_variability_are_mean_and_standard_deviation_of_the_label_probability():
    p = torch.tensor([[0.2, 0.9], [0.4, NAN], [0.6, 0.5], [0.8, 0.1]])
    np.testing.assert_allclose(variability(p), [np.std([0.2, 0.4, 0.6, 0.8]), np.std([0.9, 0.5, 0.1])], rtol=1e-6)
    visits = Visits(torch.zeros_like(p), -p.log(), torch.zeros_like(p))
    found = Cartography(score="confidence").detect(SimpleNamespace(plain=SimpleNamespace(visits=visits)))
    np.testing.assert_allclose(found.scores, [0.5, 0.5], rtol=1e-6)
    np.testing.assert_allclose(found.variants["window"], [0.3, 0.7], rtol=1e-6)
    np.testing.assert_allclose(found.variants["hard_to_learn"], 0.5 - found.variants["variability"], rtol=1e-6)


def test_error_norms_of_the_first_tenth_and_of_the_last_half():
    errors = torch.arange(30.0)[:, None]
    visits = Visits(torch.zeros_like(errors), torch.zeros_like(errors), errors)
    found = EL2N().detect(SimpleNamespace(plain=SimpleNamespace(visits=visits)))
    assert found.variants["early"] == 1.0 and found.scores == 22.0 and found.variants["all"] == 14.5


@pytest.mark.parametrize("kind", [Cartography, EL2N, Forgetting, MeanLoss])
def test_detects_wrong_digits(kind):
    task, wrong = noisy_task(n_train=600)
    found = kind().detect(task)
    assert roc_auc_score(wrong, found.scores) > 0.93
    for name, scores in found.variants.items():
        assert name == "variability" or roc_auc_score(wrong, scores) > 0.75, name
