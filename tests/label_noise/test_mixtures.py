"""Both mixtures by hand: two Gaussians on a line, and directions on the sphere; and the count of wrong labels."""

import math

import pytest
import torch

from sgoif.label_noise.count import count_from_scores, estimate_label_errors, scale_per_class
from sgoif.label_noise.two_gaussians import TwoGaussians, fit_two_gaussians, upper_component_probability

DOUBLE = torch.float64


def numbers(*values) -> torch.Tensor:
    return torch.tensor(values, dtype=DOUBLE)


def quantiles(mean: float, deviation: float, n: int) -> torch.Tensor:
    """n points that stand for a Gaussian."""
    return mean + deviation * math.sqrt(2) * torch.erfinv(2 * (torch.arange(n, dtype=DOUBLE) + 0.5) / n - 1)


# --- two Gaussians ----------------------------------------------------------------------------------------------------


def test_ashmans_d_of_two_tells_one_from_two():
    """D = sqrt(2) |m1 - m0| / sqrt(s0^2 + s1^2), so with s = 3 and 4 it is 2 at a distance of 5 sqrt(2)."""
    deviation, weight, limit = numbers(3, 4), numbers(0.5, 0.5), 5 * math.sqrt(2)
    assert TwoGaussians(numbers(1, 1 + limit + 1e-6), deviation, weight).separated
    assert not TwoGaussians(numbers(1, 1 + limit - 1e-6), deviation, weight).separated


@pytest.mark.parametrize("shift", [0.0, 20.0, -20.0])
def test_two_components_are_found_on_both_sides_or_on_one_side_of_zero(shift):
    x = torch.cat([quantiles(-5, 1, 300), quantiles(5, 1.5, 100)]) + shift
    fit = fit_two_gaussians(x[torch.randperm(400, generator=torch.Generator().manual_seed(0))])
    assert fit.mean.tolist() == pytest.approx([-5 + shift, 5 + shift], abs=0.02)
    assert fit.deviation.tolist() == pytest.approx([1, 1.5], rel=0.03)
    assert fit.weight.tolist() == pytest.approx([0.75, 0.25], abs=1e-4)


def test_the_lower_component_comes_first_and_neither_is_more_than_twice_as_wide():
    x = torch.cat([quantiles(-5, 0.1, 200), quantiles(5, 2, 200)])
    fit = fit_two_gaussians(x)
    assert fit.mean[0] < fit.mean[1]
    assert (fit.deviation[1] / fit.deviation[0]).item() == pytest.approx(2.0)
    narrow = 0.05 * x.std().item()  # the least width there is
    assert fit.deviation.prod().sqrt().item() == pytest.approx(math.sqrt(narrow * 2), rel=0.02)


def test_a_component_of_equal_values_has_a_width():
    """A twentieth of the deviation of all values."""
    x = numbers(*[-1.0] * 50, *[1.0] * 50)
    assert fit_two_gaussians(x).deviation.tolist() == pytest.approx([0.05 * x.std().item()] * 2)


def test_many_values_are_stood_for_by_their_quantiles():
    x = torch.cat([quantiles(-3, 1, 6000), quantiles(3, 1, 2000)])
    fit = fit_two_gaussians(x)
    assert fit.mean.tolist() == pytest.approx([-3, 3], abs=0.02) and fit.weight.tolist() == pytest.approx(
        [0.75, 0.25], abs=0.002
    )


def test_the_probability_of_the_upper_component_is_bayes_rule():
    x = torch.cat([quantiles(-3, 1, 300), quantiles(3, 1.5, 100)])
    fit, found = fit_two_gaussians(x), upper_component_probability(x.float())
    density = [
        w * torch.exp(-(((x - m) / s) ** 2) / 2) / s
        for m, s, w in zip(fit.mean, fit.deviation, fit.weight, strict=True)
    ]
    torch.testing.assert_close(found, density[1] / (density[0] + density[1]), rtol=1e-3, atol=1e-5)
    assert found.dtype == DOUBLE and (upper_component_probability(quantiles(0, 1, 200)) == 0).all()


# --- the count --------------------------------------------------------------------------------------------------------


def test_scores_are_scaled_to_the_root_mean_square_of_their_class():
    scores, labels = numbers(3, 4, 0.5, 0), torch.tensor([0, 0, 2, 3])
    assert scale_per_class(scores, labels).tolist() == pytest.approx([3 / 12.5**0.5, 4 / 12.5**0.5, 1, 0])


def test_the_count_is_the_larger_of_positive_scores_and_the_upper_component():
    labels = torch.zeros(100, dtype=torch.long)
    two = torch.cat([quantiles(-5, 1, 70), quantiles(5, 1, 30)])
    assert count_from_scores(two, labels) == 30
    assert count_from_scores(two - 12, labels) == 0  # both components are harmless
    assert count_from_scores(two + 12, labels) == 100  # and here every score is above zero
    some = torch.cat([quantiles(-5, 1, 70), quantiles(0.5, 1, 30)])  # of the upper ones a third lies below zero
    assert count_from_scores(some, labels) > int((some > 0).sum())


def test_the_highest_scores_are_taken_and_log_odds_count_alone():
    scores, labels = numbers(1, -3, 2, -1), torch.tensor([0, 1, 0, 1])
    count, mask = estimate_label_errors(scores, labels, numbers(9, -9, 9, 9))
    assert count == 3 and mask.tolist() == [True, False, True, True]
    assert estimate_label_errors(scores, labels, numbers(-9, -9, -9, -9))[0] == 0
    count, mask = estimate_label_errors(scores, labels)
    assert count == mask.sum() >= 2 and mask[2] and mask[0]
