"""cleanlab reads our scores, and we read its probabilities."""

import importlib.util
from dataclasses import replace

import numpy as np
import pytest
import torch
from cleanlab.dataset import health_summary
from cleanlab.rank import order_label_issues
from sklearn.linear_model import LogisticRegression

from examples.digits import digits, flip_labels
from sgoif import InfluenceError
from sgoif.applications import triage
from sgoif.interop.cleanlab import add_to_datalab, label_issues, label_quality, out_of_fold
from tests.interop.test_dataframes import made


def test_quality_keeps_the_order_and_has_its_middle_at_zero():
    quality = label_quality(torch.tensor([-5.0, 0.0, 2.0, 100.0]))
    assert (np.diff(quality) < 0).all() and quality[1] == 0.5 and 0 <= quality[3] and quality[0] <= 1
    assert (label_quality(torch.zeros(3)) == 0.5).all()
    with pytest.raises(InfluenceError, match="must be finite"):
        label_quality(torch.tensor([0.0, torch.nan]))


def test_issue_table_is_that_of_datalab():
    _, found = made()
    issues = label_issues(found)
    assert list(issues) == ["is_label_issue", "label_score", "given_label", "predicted_label"]
    assert issues["is_label_issue"].sum() == found.count
    worst = issues["label_score"].to_numpy().argsort()
    assert worst[: found.count].tolist() == found.order[: found.count].tolist()


def test_issue_table_of_features_has_their_own_labels(digits_issues):
    issues = label_issues(digits_issues)
    assert issues["is_label_issue"].sum() == digits_issues.count and issues["given_label"][0].startswith("digit ")


def test_datalab_shows_our_issues_beside_its_own():
    if importlib.util.find_spec("datasets") is None:
        pytest.skip("cleanlab's Datalab needs the package datasets, which is not installed here")
    from cleanlab import Datalab

    _, found = made()
    lab = Datalab({"label": found.labels.tolist()}, label_name="label", verbosity=0)
    add_to_datalab(lab, found)
    shown = lab.get_issues("influence_label")
    assert shown["is_influence_label_issue"].sum() == found.count
    assert lab.get_issue_summary("influence_label")["num_issues"].item() == found.count
    np.testing.assert_array_equal(shown["influence_label_score"], label_quality(found.score))
    with pytest.raises(InfluenceError, match="the Datalab has 2 examples, the triage 40"):
        add_to_datalab(Datalab({"label": [0, 1]}, label_name="label", verbosity=0), found)


def test_out_of_fold_probabilities_serve_the_triage():
    x, truth, *_ = digits()
    given, wrong = flip_labels(truth, 0.2, seed=0)
    flat = x.flatten(1).numpy()
    probabilities = out_of_fold(flat, given.numpy(), LogisticRegression(max_iter=200, C=0.1), folds=3)
    assert probabilities.shape == (1200, 10)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(1200), rtol=0, atol=1e-4)
    result, _ = made(1200)
    found = triage(replace(result, score=torch.where(wrong, 1.0, -1.0)), given, probabilities)
    assert (found.suggested[wrong] == truth[wrong]).float().mean() > 0.85
    ranked = order_label_issues(wrong.numpy(), given.numpy(), probabilities.numpy())
    assert len(ranked) == wrong.sum()
    assert health_summary(given.numpy(), probabilities.numpy(), verbose=False)["overall_label_health_score"] < 0.9
