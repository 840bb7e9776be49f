"""The public surface of `OnlineInfluence`: context manager, properties, diagnostics, and what it exports."""

import tomllib

import pytest
import torch

import sgoif
from sgoif import CheckHistory, OnlineInfluence
from sgoif.utils.paths import ROOT
from tests.helpers.networks import blobs, mlp, quick, train, watch_once


def hooks_of(model: torch.nn.Module) -> int:
    return sum(len(module._forward_hooks) for module in model.modules())


@pytest.mark.parametrize("scope", ["head", "all"])
def test_the_context_manager_removes_the_hooks(scope):
    model, (x, y) = mlp().double(), blobs(20)
    with OnlineInfluence(model, 20, config=quick(scope=scope)) as influence:
        assert hooks_of(model) >= 2
        watch_once(influence, model, x, y)
        influence.step()
    assert hooks_of(model) == 0
    assert influence.scores().visits.tolist() == [1] * 20  # reading needs no hooks


def test_the_context_manager_removes_the_hooks_after_an_error():
    model = mlp()
    with pytest.raises(ZeroDivisionError), OnlineInfluence(model, 20):
        raise ZeroDivisionError
    assert hooks_of(model) == 0


@pytest.mark.parametrize(("scope", "dimension"), [("head", 3 * 6), ("all", 3 * 6 + 5 * 7)])
def test_properties(scope, dimension):
    influence = OnlineInfluence(mlp(), 20, config=quick(scope=scope, anchors=6), total_steps=10)
    assert (influence.n_examples, influence.n_classes, influence.n_anchors) == (20, 3, 6)
    assert influence.dimension == dimension and influence.needs_backward == (scope == "all")
    assert influence.window_start == 5 and influence.device == torch.device("cpu")
    assert (influence.external_anchors, influence.external_anchor_passes) == (0, 0)
    assert OnlineInfluence(mlp(), 20).window_start is None


def test_diagnostics_are_of_the_last_check():
    torch.manual_seed(0)
    model, (x, y) = mlp().double(), blobs(60)
    with OnlineInfluence(model, 60, config=quick(coverage_every=1)) as influence:
        history = CheckHistory(influence)
        before = influence.diagnostics()
        assert (before.step, before.checks, before.hvps) == (0, 0, 0) and before.lambda_min.isnan()
        train(model, x, y, influence)
    found, counters = influence.diagnostics(), influence.counters()
    assert (found.step, found.checks, found.hvps) == tuple(counters[name] for name in ("steps", "checks", "hvps"))
    assert 0 < found.residual < 1 and 0 < found.confidence <= 1 and found.tolerance > 0
    assert 0 < found.step_size <= 1 and 0 < found.lambda_min <= 1
    history.record()  # one call, one row, of the same numbers
    assert history.arrays()["residual"].tolist() == [found.residual.float().item()]


def test_exports():
    assert sgoif.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert all(getattr(sgoif, name) is not None for name in sgoif.__all__)
