"""What is recorded of every visit, and its means over windows of training."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sgoif.bench.methods.robust.visits import (
    CANDIDATES,
    VisitRecorder,
    Visits,
    candidate_scores,
    late_mean,
    measure,
)

NAN = torch.nan


def test_margin_loss_and_error_by_hand():
    """p = (1/2, 1/4, 1/4): with label 1 the margin is -log 2, the loss log 4, the error sqrt(1/4 + 9/16 + 1/16)."""
    logits = torch.tensor([[2.0, 1.0, 1.0]]).log()
    measured = measure(logits, torch.tensor([1])).double()
    expected = [-np.log(2), np.log(4), np.sqrt(0.25 + 9 / 16 + 1 / 16)]
    np.testing.assert_allclose(measured[:, 0], expected, rtol=1e-6)


def test_the_recorder_keeps_epochs_apart_and_knows_who_was_not_seen():
    recorder = VisitRecorder(3, torch.device("cpu"))
    recorder.add(torch.tensor([2, 0]), torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    recorder.end_epoch()
    recorder.add(torch.tensor([1]), torch.tensor([[7.0], [8.0], [9.0]]))
    recorder.end_epoch()
    resumed = VisitRecorder(3, torch.device("cpu"))
    resumed.load_state_dict(recorder.state_dict())
    visits = resumed.visits()
    np.testing.assert_array_equal(visits.margins, [[2, NAN, 1], [NAN, 7, NAN]])
    np.testing.assert_array_equal(visits.losses, [[4, NAN, 3], [NAN, 8, NAN]])
    np.testing.assert_array_equal(visits.errors, [[6, NAN, 5], [NAN, 9, NAN]])


@pytest.mark.parametrize(("window", "expected"), [(1.0, 4.0), (0.5, 6.0), (0.25, 8.0), (0.01, 8.0)])
def test_a_window_is_the_last_share_of_the_epochs(window, expected):
    values = torch.tensor([[0.0], [4.0], [4.0], [8.0]])
    assert late_mean(values, window) == expected


def test_an_example_without_a_visit_in_the_window():
    """The second was last seen before the window, the third never: it stands at the mean of the others."""
    values = torch.tensor([[9.0, 1.0, NAN], [9.0, 5.0, NAN], [2.0, NAN, NAN], [NAN, NAN, NAN]])
    np.testing.assert_allclose(late_mean(values, 0.5), [2.0, 5.0, 3.5])


def test_candidates_are_higher_for_the_worse_label():
    """The first example is fitted, the second is not; each score by hand over two epochs."""
    margin, loss = torch.tensor([[1.0, -1.0], [3.0, -2.0]]), torch.tensor([[0.5, 2.0], [0.0, 4.0]])
    scores = candidate_scores(Visits(margin, loss, torch.zeros(2, 2)))
    assert set(scores) == set(CANDIDATES)
    np.testing.assert_allclose(scores["window_loss"], [0.0, 4.0])
    np.testing.assert_allclose(scores["mean_loss"], [0.25, 3.0])
    np.testing.assert_allclose(scores["window_margin"], [-3.0, 2.0])
    np.testing.assert_allclose(scores["mean_margin"], [-2.0, 1.5])
    np.testing.assert_allclose(scores["window_doubt"], [0.0, 1 - np.exp(-4.0)])
    np.testing.assert_allclose(scores["mean_doubt"], 1 - np.exp([[-0.5, -2.0], [0.0, -4.0]]).mean(0))
