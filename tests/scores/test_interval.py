"""The half-width of a score's interval, worked out by hand."""

import math

import pytest
import torch

from sgoif.bench.fidelity.certificate import bernstein_half_width as half_width
from sgoif.scores.interval import normal_quantile, visit_half_width

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


def test_normal_quantile_is_that_of_tables():
    assert [normal_quantile(alpha) for alpha in (0.5, 0.2, 0.05, 0.01)] == pytest.approx(
        [0.67449, 1.28155, 1.95996, 2.57583], rel=1e-4
    )


def test_interval_by_the_formula():
    """Scores 1 (visits 0 and 2, variance 2) and 3 (one visit): mean square 5, half the variance over the visits."""
    sums = [torch.tensor(v, dtype=torch.float64) for v in ([2.0, 3.0, 0.0], [4.0, 9.0, 0.0], [2.0, 1.0, 0.0])]
    found = visit_half_width(*sums, torch.tensor([0.5, 0.1, 0.1]), 0.05)
    expected = [1.95996 * math.sqrt(0.25 * 5 + 0.5 * 2 / 2), 1.95996 * math.sqrt(0.01 * 5 + 0.5 * 2), math.inf]
    assert found.tolist() == pytest.approx(expected, rel=1e-4)


def test_interval_is_infinite_where_nothing_was_visited_twice():
    found = visit_half_width(torch.tensor([1.0]), torch.tensor([1.0]), torch.tensor([1]), torch.tensor([0.1]), 0.05)
    assert found.isinf().all()


def test_interval_covers_the_mean_of_evenly_spread_visits():
    """Visits at evenly spread moments of a smooth path, one in each stretch: their mean varies less than V / m."""
    generator = torch.Generator().manual_seed(0)
    moments = (torch.arange(6) + torch.rand(4000, 6, generator=generator)) / 6
    slope = 2.0
    visits = slope * moments.double() + 0.4 * torch.randn(4000, 6, generator=generator, dtype=torch.float64)
    args = visits.sum(1), visits.square().sum(1), torch.full((4000,), 6), torch.zeros(4000), 0.05
    inside = (visits.mean(1) - slope / 2).abs() <= visit_half_width(*args)
    assert 0.93 < inside.double().mean() < 0.99
