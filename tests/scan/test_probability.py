"""The probability that a label is wrong falls with the rank and adds up to the expected number of wrong labels."""

from dataclasses import replace

import pytest
import torch

from sgoif import InfluenceResult
from sgoif.scan.probability import wrong_probability


def result(suspicion: list[float], log_odds: list[float] | None) -> InfluenceResult:
    score = torch.tensor(suspicion)
    kept = None if log_odds is None else torch.tensor(log_odds)
    weightless = torch.zeros_like(score)
    visited = torch.ones(len(score), dtype=torch.bool)
    return InfluenceResult(
        *[score] * 5, visited, score, score, log_odds=kept, margin=None if kept is None else weightless
    )


def test_neighbours_in_the_wrong_order_share_their_mean():
    logit = torch.tensor([0.9, 0.2, 0.6, 0.1]).logit().tolist()
    found = result([4.0, 3.0, 2.0, 1.0], logit)
    ranked = found.suspicion.argsort(descending=True).tolist()
    assert wrong_probability(found)[ranked].tolist() == pytest.approx([0.9, 0.4, 0.4, 0.1])


def test_probabilities_fall_with_the_rank_and_keep_their_sum():
    torch.manual_seed(0)
    odds = torch.randn(500) * 3
    found = result((odds + torch.randn(500)).tolist(), odds.tolist())
    probability = wrong_probability(found)
    ranked = probability[found.suspicion.argsort(descending=True).numpy()]
    assert (ranked[1:] <= ranked[:-1]).all() and 0 <= ranked.min() < ranked.max() <= 1
    assert probability.sum() == pytest.approx(float(odds.double().sigmoid().sum()))


def test_examples_that_were_never_visited_have_no_share_in_it():
    known = result([3.0, 2.0], torch.tensor([0.9, 0.2]).logit().tolist())
    more = result([3.0, 9.0, 2.0], torch.tensor([0.9, 0.5, 0.2]).logit().tolist())
    found = wrong_probability(replace(more, visited=torch.tensor([True, False, True])))
    assert found[1] == 0 and found[[0, 2]].tolist() == wrong_probability(known).tolist()
    assert wrong_probability(replace(more, visited=torch.zeros(3).bool())).tolist() == [0, 0, 0]


def test_without_a_class_model_there_is_no_probability():
    with pytest.raises(ValueError, match="no log-odds"):
        wrong_probability(result([1.0, 2.0], None))
