"""Results that say nothing, or are asked with other labels: a warning or an error that says what to do."""

import pytest
import torch
from torch import nn

from sgoif import InfluenceConfig, InfluenceError, OnlineInfluence
from tests.helpers.networks import blobs, mlp, quick, watch_once

N = 12


def test_a_training_without_any_influence_is_told():
    model, (x, y) = mlp().double(), blobs(N)
    influence = OnlineInfluence(model, N, 3, config=quick(kappa=1e-9))  # no direction is ever good enough
    for _ in range(3):
        watch_once(influence, model, x, y)
        influence.step()
        influence.end_epoch()
    with pytest.warns(
        UserWarning, match=r"all influences are 0 after 3 steps \(checks made: 3\): train for more epochs"
    ):
        influence.scores()


def test_outputs_that_are_not_finite_are_told():
    model, (x, y) = mlp().double(), blobs(N)
    influence = OnlineInfluence(model, N, 3, config=quick())
    x[:4] = torch.nan
    for _ in range(3):
        watch_once(influence, model, x, y)
        influence.step()
        influence.end_epoch()
    with pytest.warns(
        UserWarning, match=r"3 of 3 steps had outputs that are not finite\. .* 4 of 12 examples have no other visit"
    ):
        influence.scores()


def finished(y: torch.Tensor, classes: int = 3):
    model, x = mlp(classes=classes).double(), blobs(len(y))[0]
    influence = OnlineInfluence(model, len(y), classes, config=quick())
    for _ in range(2):
        watch_once(influence, model, x, y)
        influence.step()
        influence.end_epoch()
    return influence.scores()


def test_labels_in_another_order_than_they_were_watched_are_refused():
    y = blobs(N)[1]
    result = finished(y)
    assert result.find_label_issues(y).mask.shape == (N,)
    other = y.clone()
    other[[2, 5]] = (other[[2, 5]] + 1) % 3
    with pytest.raises(InfluenceError, match=r"2 of 12 labels are others than those that were watched, .* example 2"):
        result.find_label_issues(other)
    result.visited[[2, 5]] = False
    assert result.find_label_issues(other).count <= N, "nothing is known of these two"


def test_labels_of_one_class_alone_are_refused():
    y = torch.full((N,), 2)
    with pytest.raises(InfluenceError, match="all labels are 2; a wrong label is told from examples of other classes"):
        finished(y).find_label_issues(y)


def test_a_head_that_was_never_trained_has_a_result_without_issues():
    result = OnlineInfluence(nn.Linear(6, 3), N, 3).scores()
    assert not result.visited.any() and result.find_label_issues(torch.arange(N) % 3).count == 0


@pytest.mark.parametrize("mark", [-1, 255])
def test_examples_without_a_label_may_stay_out_of_watch(mark):
    y = blobs(N)[1]
    model, x = mlp().double(), blobs(N)[0]
    influence = OnlineInfluence(model, N, 3, config=quick())
    known = torch.arange(2, N)
    for _ in range(2):
        watch_once(influence, model, x[known], y[known], known)
        influence.step()
        influence.end_epoch()
    labels = y.clone()
    labels[:2] = mark
    issues = influence.scores().find_label_issues(labels)
    assert issues.suggested[:2].tolist() == [mark, mark] and not issues.mask[:2].any()
    with pytest.raises(InfluenceError, match=r"label -1; classes|1 of 10 labels are others.*example 5 \(255,"):
        influence.scores().find_label_issues(torch.where(torch.arange(N) == 5, mark, labels))


def test_where_the_budget_allows_no_check_the_budget_is_named():
    model, (x, y) = mlp(classes=30).double(), blobs(N)
    influence = OnlineInfluence(model, N, 30, config=InfluenceConfig(hvp_budget=0.5))
    for _ in range(3):
        watch_once(influence, model, x, y)
        influence.step()
        influence.end_epoch()
    with pytest.warns(UserWarning, match=r"no check was made in 3 steps.*set hvp_budget larger, which allows a check"):
        influence.scores()
