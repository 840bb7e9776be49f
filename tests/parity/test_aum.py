"""AUM against numbers worked out by hand, and on digits."""

from types import SimpleNamespace

import numpy as np
import torch

from baselines.noisy.aum import AUM
from sgoif.bench.evaluation.metrics import detection
from sgoif.bench.methods.robust.visits import Visits, margins
from tests.helpers.digit_tasks import noisy_task

# two epochs, three examples, three classes
LOGITS = torch.tensor(
    [
        [[2.0, 1.0, 0.0], [0.0, 3.0, 5.0], [1.0, 1.0, 1.0]],
        [[4.0, 1.0, 3.5], [0.0, 1.0, 5.0], [-1.0, 2.0, 0.0]],
    ]
)
LABELS = torch.tensor([0, 1, 2])


def task_of(margin: torch.Tensor) -> SimpleNamespace:
    visits = Visits(margin, torch.full_like(margin, torch.nan), torch.full_like(margin, torch.nan))
    return SimpleNamespace(plain=SimpleNamespace(visits=visits))


def test_margins_by_hand():
    np.testing.assert_allclose(margins(LOGITS, LABELS), [[1.0, -2.0, 0.0], [0.5, -4.0, -2.0]])


def test_score_is_the_negative_mean_margin_so_far():
    found = AUM(score="all").detect(task_of(margins(LOGITS, LABELS)))
    np.testing.assert_allclose(found.epoch_scores, [[-1.0, 2.0, 0.0], [-0.75, 3.0, 1.0]])
    np.testing.assert_allclose(found.scores, [-0.75, 3.0, 1.0])
    np.testing.assert_array_equal(found.remove, [False, True, True])


def test_windows_are_the_last_half_and_the_last_quarter():
    found = AUM().detect(task_of(torch.tensor([[8.0], [4.0], [1.0], [-3.0]])))
    assert (found.scores, found.variants["quarter"], found.variants["all"]) == ([1.0], [3.0], [-2.5])


def test_a_visit_that_did_not_happen_does_not_count():
    found = AUM(score="all").detect(task_of(torch.tensor([[1.0, torch.nan], [3.0, -2.0]])))
    np.testing.assert_allclose(found.epoch_scores, [[-1.0, 0.0], [-2.0, 2.0]])
    np.testing.assert_allclose(found.scores, [-2.0, 2.0])


def test_adding_a_constant_to_all_logits_changes_nothing():
    np.testing.assert_allclose(margins(LOGITS + 7, LABELS), margins(LOGITS, LABELS))


def test_detects_wrong_digits():
    task, wrong = noisy_task(n_train=600)
    found = AUM().detect(task)
    assert detection(found.scores, wrong)["auroc"] > 0.95
    assert wrong[found.remove].mean() > 0.7 and found.remove[wrong].mean() > 0.9
    assert found.epoch_scores.shape == (task.recipe.epochs, 600)
