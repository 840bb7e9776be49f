"""`PredictionInfluence`: effects on single predictions against their formula, and that training is left alone."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from sgoif.applications import PredictionInfluence
from sgoif.applications.target_influence import CHECKS, SETTINGS
from sgoif.curvature import KroneckerCurvature
from sgoif.errors import BatchError, CaptureError, InfluenceError
from tests.helpers.networks import blobs, caught, convnet, mlp, per_example_gradients

STEPS = 12


def trained(model, x, y, targets, config=SETTINGS, watch=True, steps=STEPS):
    """Train for a few full-batch steps; return the influence, or None if nothing was watched."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    influence = PredictionInfluence(model, len(y), targets, STEPS, config) if watch else None
    for _ in range(steps):
        optimizer.zero_grad()
        if influence is None:
            F.cross_entropy(model(x), y).backward()
        else:
            with influence.watch(torch.arange(len(y)), y):
                F.cross_entropy(model(x), y).backward()
        optimizer.step()
        if influence is not None:
            influence.step()
    return influence


@pytest.mark.parametrize("scope", ["head", "blocks:body", "all"])
def test_effects_are_inverse_curvature_products(scope):
    """With a frozen network: effect_vi = g_v' P^-1 g_i with per-example gradients of autograd."""
    torch.manual_seed(0)
    model, (x, y) = mlp().double(), blobs(40)
    targets = x[:5], (y[:5] + 1) % 3
    config = replace(SETTINGS, scope=scope, deep_examples=64)
    influence = PredictionInfluence(model, 40, targets, STEPS, config)
    for _ in range(STEPS):
        with influence.watch(torch.arange(40), y):
            F.cross_entropy(model(x), y).backward()
        influence.step()
    influence.close()
    batch = caught(model, x, y, config).materialised()
    curvature = KroneckerCurvature(batch.space, config, batch.closed_form, torch.float64)
    curvature.update(batch, 0.5)
    curvature.refresh()
    ours, theirs = (per_example_gradients(model, *pair, config) for pair in ((x, y), targets))
    torch.testing.assert_close(influence.effects(), curvature.solve(theirs) @ ours.T, rtol=1e-4, atol=1e-6)
    assert influence.target_passes == CHECKS * 5


@pytest.mark.parametrize("scope", ["head", "all"])
def test_a_loop_may_be_watched_within_autocast(scope):
    """As well as with autocast around the forward pass alone: the same weights and the same effects."""
    x, y = blobs(40)
    found, weights = {}, {}
    for inside in (True, False):
        torch.manual_seed(0)
        model = mlp()
        influence = PredictionInfluence(model, 40, (x[:5].float(), y[:5]), STEPS, replace(SETTINGS, scope=scope))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for _ in range(STEPS):
            optimizer.zero_grad()
            around, within = (True, False) if inside else (False, True)
            with torch.autocast("cpu", torch.bfloat16, enabled=around), influence.watch(torch.arange(40), y):
                with torch.autocast("cpu", torch.bfloat16, enabled=around or within):
                    loss = F.cross_entropy(model(x.float()).float(), y)
                loss.backward()
            optimizer.step()
            with torch.autocast("cpu", torch.bfloat16, enabled=around):
                influence.step()
        found[inside], weights[inside] = influence.effects(), model.state_dict()
    assert all(torch.equal(weights[True][name], weights[False][name]) for name in weights[True])
    assert torch.equal(found[True], found[False]) and found[True].any()


@pytest.mark.parametrize("make", [mlp, convnet])
def test_training_and_modes_are_left_alone(make):
    x, y = blobs(24) if make is mlp else (torch.randn(24, 1, 8, 8, dtype=torch.float64), torch.arange(24) % 3)
    models = []
    for watch in (True, False):
        torch.manual_seed(0)
        model = make().double()
        influence = trained(model, x, y, (x[:3], y[:3]), replace(SETTINGS, deep_examples=10), watch)
        models.append(model)
        if influence is not None:
            influence.close()
            effects = influence.effects()
            assert effects.shape == (3, 24) and torch.isfinite(effects).all() and effects.std() > 0
    for one, other in zip(models[0].state_dict().values(), models[1].state_dict().values(), strict=True):
        assert torch.equal(one, other)
    assert models[0].training


def test_the_copy_of_a_target_supports_it_most():
    torch.manual_seed(0)
    model, (x, y) = mlp().double(), blobs(40)
    effects = trained(model, x, y, (x[7:8], y[7:8])).effects()
    assert effects[0].argmax() == 7


def test_wrong_use_is_told():
    model, (x, y) = mlp().double(), blobs(10)
    with pytest.raises(BatchError, match="targets: labels must be of shape"):
        PredictionInfluence(model, 10, (x[0], y[0]), 10)
    early = trained(model, x, y, (x, y), steps=2)
    with pytest.raises(InfluenceError, match=r"2 of total_steps = 12 steps were made.*begins at step 9"):
        early.effects()
    with pytest.raises(InfluenceError, match="two steps"):
        PredictionInfluence(model, 10, (x, y), 1)
    with pytest.raises(InfluenceError, match="temperature = 0"):
        PredictionInfluence(model, 10, (x, y), 10, replace(SETTINGS, temperature=0.0))
    influence = PredictionInfluence(model, 10, (x, y), 10)
    with pytest.raises(CaptureError, match="without a watched pass"):
        influence.step()
