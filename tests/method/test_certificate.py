"""The certificate holds: where the residual is small, the ranking is that of the exact damped influence."""

import pytest
import torch

from sgoif import InfluenceConfig, OnlineInfluence
from sgoif.solvers.operator import Operator
from tests.helpers.networks import blobs, caught, mlp, train

FRESH_RESIDUAL = 0.15  # up to here an anchor's direction is called fresh


def spearman(one, two):
    ranks = torch.stack([one.argsort().argsort(), two.argsort().argsort()]).double()
    return torch.corrcoef(ranks)[0, 1]


def cases(curvature, solver, damping, seed, epochs):
    """(residual, rank agreement with the exact damped influence) of every anchor after a short training."""
    torch.manual_seed(seed)
    x, y = blobs(240, inputs=8, classes=4, seed=seed)
    noisy = torch.where(torch.rand(240) < 0.2, torch.randint(4, (240,)), y)
    model = mlp(8, 12, 4).double()
    config = InfluenceConfig(
        curvature=curvature, solver=solver, damping=damping, solve_every=4, rank=4, probe_examples=240
    )
    influence = OnlineInfluence(model, 240, config=config)
    train(model, x, noisy, influence, epochs=epochs, batch=30, lr=0.1, seed=seed)
    train(model, x, noisy, influence, epochs=3, batch=30, lr=0.002, seed=seed)  # the calm end of a schedule
    parts = influence._engine.parts
    whole = caught(model, x, noisy, config)
    eye = torch.eye(whole.space.dim, dtype=torch.float64)
    gradients, matrix = whole.dot(eye), Operator(whole, parts.curvature)(eye)
    exact = torch.linalg.solve(matrix, parts.anchors.targets().T).T
    estimated, truth = gradients @ parts.directions.phi.T, gradients @ exact.T
    return [
        (parts.controller.relative_error()[v].item(), spearman(estimated[:, v], truth[:, v]).item()) for v in range(4)
    ]


def test_fresh_anchors_rank_like_the_exact_damped_influence():
    found = []
    for seed in range(3):
        for curvature, solver in (
            ("kfac", "direct"),
            ("kfac", "richardson"),
            ("diagonal", "richardson"),
            ("lowrank", "pcg"),
        ):
            for damping in (0.1, 1.0):
                found += cases(curvature, solver, damping, seed, epochs=1 + seed)
    fresh = [agreement for residual, agreement in found if residual <= FRESH_RESIDUAL]
    stale = [agreement for residual, agreement in found if residual > FRESH_RESIDUAL]
    assert len(fresh) > 30 and len(stale) > 10, (len(fresh), len(stale))
    wrong = sum(agreement < 0.95 for agreement in fresh) / len(fresh)
    assert wrong < 0.05, wrong
    assert sum(stale) / len(stale) < sum(fresh) / len(fresh)


@pytest.mark.parametrize("gate", ["stability", "moving_average"])
def test_confidence_is_neither_pinned_at_zero_nor_at_one(gate):
    x, y = blobs(240, inputs=8, classes=4, dtype=torch.float32)
    torch.manual_seed(0)
    model = mlp(8, 12, 4)
    influence = OnlineInfluence(model, 240, config=InfluenceConfig(gate=gate, solve_every=4))
    train(model, x, y, influence, epochs=6, batch=30)
    confidence = influence.scores().confidence
    assert 0.2 < confidence.mean() < 0.99
    assert influence.counters()["zero_confidence_steps"] < 8


def test_literal_tolerance_leaves_no_confidence():
    """tau = kappa beta Gamma as printed is far below any residual: every score is zero, and counted (see docs)."""
    x, y = blobs(240, inputs=8, classes=4, dtype=torch.float32)
    model = mlp(8, 12, 4)
    config = InfluenceConfig(tolerance="literal", solve_every=4)
    influence = OnlineInfluence(model, 50_000, config=config)
    train(model, x, y, influence, epochs=2, batch=30)
    assert influence.scores().confidence.max() == 0 and influence.scores().score.abs().max() == 0
    assert influence.counters()["zero_confidence_steps"] == influence.steps
