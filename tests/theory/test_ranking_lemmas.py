"""Ranking lemmas: top-K preservation, empirical-Bernstein coverage, mis-ranking probability with the range term it
needs."""

import math
from itertools import pairwise

import pytest
import torch

from sgoif.bench.fidelity.certificate import bernstein_half_width as half_width


def top(values, k):
    return set(values.argsort(descending=True)[:k].tolist())


@pytest.mark.parametrize("k", [1, 5, 20])
def test_top_k_survives_a_uniform_error_below_half_the_margin(k):
    generator = torch.Generator().manual_seed(k)
    for _ in range(50):
        truth = torch.randn(60, generator=generator, dtype=torch.float64)
        ordered = truth.sort(descending=True).values
        margin = ordered[k - 1] - ordered[k]
        error = (2 * torch.rand(60, generator=generator, dtype=torch.float64) - 1) * 0.499 * margin
        assert top(truth + error, k) == top(truth, k)


def test_top_k_may_change_at_more_than_half_the_margin():
    truth = torch.tensor([1.0, 0.0])
    assert top(truth + torch.tensor([-0.51, 0.51]), 1) != top(truth, 1)


@pytest.mark.parametrize("visits", [5, 20, 100])
@pytest.mark.parametrize("alpha", [0.05, 0.3])
def test_empirical_bernstein_interval_covers(visits, alpha):
    """Skewed bounded scores: the interval around the mean holds the expectation at least 1 - alpha of the time."""
    generator = torch.Generator().manual_seed(visits)
    draws = (torch.rand(4000, visits, generator=generator, dtype=torch.float64) < 0.1).double()
    width = half_width(draws.sum(1), draws.square().sum(1), torch.full((4000,), visits), 1.0, alpha)
    missed = ((draws.mean(1) - 0.1).abs() > width).double().mean()
    assert missed <= alpha
    assert half_width(torch.zeros(1), torch.zeros(1), torch.zeros(1), 1.0, alpha).isinf().all()


def test_half_width_shrinks_with_visits():
    widths = [
        half_width(torch.zeros(1), torch.tensor([float(m)]), torch.tensor([m]), 1.0, 0.05) for m in (4, 16, 64, 256)
    ]
    assert all(b < a / 1.9 for a, b in pairwise(widths))


def bernstein(gap, variance, spread, m):
    return math.exp(-m * gap**2 / (2 * variance + 2 * spread * gap / 3))


def test_misranking_bound_holds_with_the_range_term_and_fails_without():
    """P(mean of m probes <= -gap): Bernstein's bound holds; exp(-m gap^2 / 2 sigma^2), as printed, does not for rare
    large noise."""
    rare, m = 1e-3, 20
    noise_values = torch.tensor([-(1 - rare), rare], dtype=torch.float64)  # -1 with probability `rare`, centred
    variance = rare * (1 - rare)
    hits = torch.distributions.Binomial(m, torch.tensor(rare)).sample((400_000,)).double()
    means = (hits * noise_values[0] + (m - hits) * noise_values[1]) / m
    gap = 0.045
    happened = (means <= -gap).double().mean().item()
    printed = math.exp(-m * gap**2 / (2 * variance))
    assert happened > 10 * printed
    assert happened <= bernstein(gap, variance, 1.0, m)


def test_gating_by_an_independent_factor_never_widens_the_noise():
    """Var(c X) = E[c^2] Var(X) <= Var(X) for c in [0, 1] independent of a centred X."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(100_000, generator=generator, dtype=torch.float64)
    factor = torch.rand(100_000, generator=generator, dtype=torch.float64)
    gated = (factor * noise).var()
    torch.testing.assert_close(gated, factor.square().mean() * noise.var(), rtol=0.02, atol=0)
    assert gated < noise.var()
