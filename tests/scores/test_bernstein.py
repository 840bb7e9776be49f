"""The half-width of a score's interval, worked out by hand."""

import math

import pytest
import torch

from sgoif.scores.bernstein import half_width

LOG = math.log(3 / 0.05)


def width(visits: list[float], spread: float = 2.0, alpha: float = 0.05) -> float:
    scores = torch.tensor(visits, dtype=torch.float64)
    count = torch.tensor([len(visits)])
    return half_width(scores.sum()[None], scores.square().sum()[None], count, spread, alpha).item()


def test_half_width_by_the_formula():
    # four visits of mean 1 and variance (1 + 1 + 1 + 1) / 4 = 1
    assert width([0, 2, 0, 2]) == pytest.approx(math.sqrt(2 * LOG / 4) + 3 * 2 * LOG / 4)
    # mean 0.1, variance 0.01: far below 1
    assert width([0.0, 0.2], spread=0.0) == pytest.approx(math.sqrt(2 * 0.01 * LOG / 2))
    assert width([1, 3], alpha=0.3) == pytest.approx(math.sqrt(math.log(10)) + 3 * math.log(10))


def test_equal_scores_leave_the_range_alone():
    """Rounding must not make the variance negative, where its root is not a number."""
    assert width([0.1] * 7) == pytest.approx(3 * 2 * LOG / 7)
    total, squares = torch.tensor([0.3], dtype=torch.float64), torch.tensor([0.03 - 1e-12], dtype=torch.float64)
    assert half_width(total, squares, torch.tensor([3]), 0.0, 0.05).item() == 0


def test_a_range_may_be_a_tensor_and_an_example_without_visits_is_unknown():
    total = torch.tensor([2.0, 0.0])
    found = half_width(total, torch.tensor([4.0, 0.0]), torch.tensor([1, 0]), torch.tensor(0.5), 0.05)
    assert found.tolist() == pytest.approx([1.5 * LOG, math.inf])
