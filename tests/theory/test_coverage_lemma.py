"""Gram / projection statement, in the form in which it is true, and the forms in which it is not.

True: for unit columns Phi with Gram matrix G, the best combination alpha of x has ||alpha|| <= ||x|| /
sqrt(lambda_min(G)): a small lambda_min means that anchors can cancel each other with large coefficients. The
projection error itself does not depend on lambda_min at all: it EQUALS the distance to the span, so the printed bound
holds but says nothing (1 / lambda_min >= 1).
"""

import torch

from sgoif import InfluenceConfig
from sgoif.anchors.bank import AnchorBank
from sgoif.backend.linalg import smallest_eigenvalue


def unit_columns(dim, count, seed=0, mix=0.0):
    generator = torch.Generator().manual_seed(seed)
    columns = torch.randn(dim, count, generator=generator, dtype=torch.float64)
    columns = columns + mix * columns[:, :1]
    return columns / columns.norm(dim=0)


def test_projection_error_is_the_distance_to_the_span_and_lambda_min_at_most_one():
    x = torch.randn(20, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    for mix in (0.0, 1.0, 30.0):
        phi = unit_columns(20, 5, mix=mix)
        gram = phi.T @ phi
        projection = phi @ torch.linalg.solve(gram, phi.T @ x)
        best = torch.linalg.lstsq(phi, x[:, None]).solution[:, 0]
        torch.testing.assert_close((x - projection).norm(), (x - phi @ best).norm())
        smallest = torch.linalg.eigvalsh(gram)[0]
        assert smallest <= 1 + 1e-12
        assert best.norm() <= x.norm() / smallest.sqrt() + 1e-9


def test_an_average_of_anchors_is_not_as_good_as_the_best_combination():
    """Counter-example to `phibar in span(Phi), hence ||phibar - x|| <= min_alpha ||Phi alpha - x||`: the inequality
    goes the other way."""
    phi = torch.eye(3, dtype=torch.float64)[:, :2]
    x = phi[:, 0]
    average = phi.mean(1)
    assert (phi @ torch.linalg.lstsq(phi, x[:, None]).solution[:, 0] - x).norm() < 1e-12 < (average - x).norm()


def test_main_text_bound_mixes_spaces_and_fails():
    """||H^-1 g - span||^2 <= ||g - proj g||^2 / lambda_min(G) fails: g may lie in span(Phi) while H^-1 g does not."""
    matrix = torch.diag(torch.tensor([1.0, 1e-3], dtype=torch.float64))
    phi = torch.tensor([[1.0], [1.0]], dtype=torch.float64) / 2**0.5
    g = phi[:, 0]
    solution = torch.linalg.solve(matrix, g)
    outside = (solution - phi[:, 0] * (phi[:, 0] @ solution)).norm()
    assert (g - phi[:, 0] * (phi[:, 0] @ g)).norm() < 1e-12 and outside > 100


def test_smallest_eigenvalue_without_eigen_decomposition():
    for seed, mix in ((0, 0.0), (1, 2.0), (2, 20.0)):
        phi = unit_columns(30, 6, seed, mix)
        gram = phi.T @ phi
        found, inverse = smallest_eigenvalue(gram)
        torch.testing.assert_close(found, torch.linalg.eigvalsh(gram)[0], rtol=1e-3, atol=1e-6)
        torch.testing.assert_close(inverse, torch.linalg.inv(gram).diagonal(), rtol=1e-4, atol=1e-6)


def test_redundant_anchor_is_found_and_refreshed():
    bank = AnchorBank(InfluenceConfig(), 4, 4, 20, torch.float64)
    bank.total, bank.weight = torch.ones(4, 20, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
    phi = unit_columns(20, 4).T.clone()
    confidence = torch.tensor([0.9, 0.9, 0.9, 0.2], dtype=torch.float64)
    assert not bank.find_redundant(phi, confidence)[1].any()
    phi[3] = 5 * phi[1] + 0.01 * phi[3]
    smallest, chosen = bank.find_redundant(phi, confidence)
    assert smallest < 0.1 and chosen.tolist() == [False, False, False, True]
    before = bank.targets()
    bank.refresh(chosen)
    assert bank.weight.tolist() == [1, 1, 1, 0.5]
    torch.testing.assert_close(bank.targets(), before)
