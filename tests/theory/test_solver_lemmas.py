"""Convergence lemma: Neumann truncation bound, residual bound, and what of it does not hold as printed."""

import pytest
import torch

from sgoif.solvers.iterative import conjugate_gradient, neumann, norms, richardson
from sgoif.solvers.sketch import Sketch


def spd(dim, low, high, seed=0):
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64))[0]
    return basis @ torch.diag(torch.linspace(low, high, dim, dtype=torch.float64)) @ basis.T


@pytest.fixture
def system():
    """H, a diagonal P with ||I - P^-1 H|| < 1, and two right-hand sides."""
    matrix = spd(12, 0.5, 1.5)
    scale = torch.full((12,), 1.0, dtype=torch.float64)
    target = torch.randn(2, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return matrix, scale, target


@pytest.mark.parametrize("depth", [0, 1, 3, 8])
def test_neumann_truncation_bound(system, depth):
    matrix, scale, target = system
    phi = neumann(target, lambda v: v @ matrix, lambda v: v / scale, 1.0, depth)
    contraction = torch.linalg.matrix_norm(torch.eye(12) - matrix / scale[:, None], 2)
    bound = contraction ** (depth + 1) / (1 - contraction) * (1 / scale).max() * norms(target)
    error = norms(torch.linalg.solve(matrix, target.T).T - phi)
    assert (error <= bound).all()
    series = sum(target @ torch.linalg.matrix_power(torch.eye(12) - matrix, k) for k in range(depth + 1))
    torch.testing.assert_close(phi, series)  # no term is left out


def test_neumann_stops_before_terms_grow():
    """rho(I - P^-1 H) > 1: the plain series explodes, the adaptive one keeps the terms that shrink."""
    matrix = spd(12, 0.5, 4.0)
    target = torch.randn(3, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    phi = neumann(target, lambda v: v @ matrix, lambda v: v, 1.0, 20)
    term, sums = target, [target]
    for _ in range(20):
        term = term - term @ matrix
        sums.append(sums[-1] + term)
    assert norms(sums[-1]).min() > 1e3 * norms(phi).max()
    for row in range(3):  # each row is a sum of at most four terms after the first
        assert min(torch.dist(phi[row], partial[row]) for partial in sums[:5]) < 1e-10


def test_residual_bounds_the_error(system):
    matrix, _, target = system
    exact = torch.linalg.solve(matrix, target.T).T
    for seed in range(20):
        phi = exact + torch.randn(2, 12, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        residual = target - phi @ matrix
        assert (norms(exact - phi) <= norms(residual) / torch.linalg.eigvalsh(matrix)[0] + 1e-12).all()


def test_richardson_contracts_linearly_with_a_constant_step(system):
    matrix, scale, target = system
    exact, phi = torch.linalg.solve(matrix, target.T).T, torch.zeros_like(target)
    rate = torch.linalg.matrix_norm(torch.eye(12) - 0.8 * matrix, 2)
    for _ in range(30):
        after = richardson(phi, target - phi @ matrix, lambda v: v / scale, 0.8)
        assert (norms(after - exact) <= rate * norms(phi - exact) + 1e-12).all()
        phi = after


def test_robbins_monro_steps_have_no_linear_rate(system):
    """The paper quotes a linear rate for steps with sum rho^2 < inf: with rho_t = 1/t the error falls like a power of
    t only."""
    matrix, scale, target = system
    exact, phi, errors = torch.linalg.solve(matrix, target.T).T, torch.zeros_like(target), []
    for step in range(1, 2001):
        phi = richardson(phi, target - phi @ matrix, lambda v: v / scale, 1 / step)
        errors.append(norms(phi - exact).max())
    assert errors[1999] / errors[999] > 0.5  # a thousand steps at any linear rate below 0.999 would give less than 0.37


def test_spectral_radius_below_one_does_not_bound_the_norm():
    """Counter-example to `rho(I - P^-1 H) < 1, hence ||I - P^-1 H|| < 1`: P^-1 H is symmetric only in the P inner
    product."""
    low = 1e-4
    matrix = torch.tensor([[1.0, 0.9], [0.9, 1.0]], dtype=torch.float64)
    scale = torch.tensor([1.0, low], dtype=torch.float64) / low * 0.02
    iteration = torch.eye(2, dtype=torch.float64) - matrix / (scale * 1.0)[:, None] / 30
    assert torch.linalg.eigvals(iteration).abs().max() < 1 < torch.linalg.matrix_norm(iteration, 2)


def test_conjugate_gradient_and_sketch(system):
    """CG reaches the solution; with the leading directions in the sketch an ill-conditioned system needs fewer
    iterations."""
    basis = torch.linalg.qr(torch.randn(30, 30, generator=torch.Generator().manual_seed(3), dtype=torch.float64))[0]
    spectrum = torch.cat([torch.linspace(1, 2, 26), torch.tensor([1e2, 1e3, 1e4, 1e5])]).double()
    matrix = basis @ torch.diag(spectrum) @ basis.T
    target = torch.randn(2, 30, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    exact = torch.linalg.solve(matrix, target.T).T

    def operator(v):
        return v @ matrix

    rows = basis[:, -4:].T
    sketched = Sketch(rows, operator(rows)).precondition(lambda v: v)
    start = torch.zeros_like(target)
    plain = conjugate_gradient(target, start, operator, lambda v: v, 5)
    helped = conjugate_gradient(target, start, operator, sketched, 5)
    assert norms(helped - exact).max() < 1e-2 * norms(plain - exact).min()
    torch.testing.assert_close(conjugate_gradient(target, start, operator, sketched, 25), exact, rtol=1e-6, atol=1e-9)
