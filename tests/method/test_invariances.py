"""What must not change a score: how a batch is cut or ordered, how the model is run, where it runs, whether the run
was resumed."""

import copy
import functools
import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sgoif import CaptureError, InfluenceConfig, OnlineInfluence
from tests.helpers.networks import Net, blobs, convnet, mlp, quick, train, watch_once, watched_batch

SETTINGS = [
    quick(),
    quick(scope="all", update_every=1),
    quick(curvature="fisher", probe_examples=20),
    quick(curvature="lowrank"),
]
NAMES = ["head", "all", "fisher", "lowrank"]


def run(model, x, y, config, cut=None, order=None, steps=6):
    """A standing model seen several times; each pass cut into micro-batches and reordered as asked."""
    influence = OnlineInfluence(model, len(y), config=config)
    index = torch.arange(len(y)) if order is None else order
    for _ in range(steps):
        for part in index.split(cut or len(index)):
            watch_once(influence, model, x[part], y[part], part)
        influence.step()
    influence.close()
    return influence.scores()


@pytest.fixture
def task():
    torch.manual_seed(0)
    return mlp().double(), *blobs(24)


@pytest.mark.parametrize("config", SETTINGS, ids=NAMES)
def test_micro_batches_are_one_batch(task, config):
    whole = run(*task, config)
    assert whole.score.abs().max() > 0
    torch.testing.assert_close(run(*task, config, cut=7).score, whole.score)


@pytest.mark.parametrize("config", SETTINGS, ids=NAMES)
def test_order_inside_a_step_does_not_matter(task, config):
    torch.testing.assert_close(run(*task, config, order=torch.randperm(24)).score, run(*task, config).score)


@pytest.mark.parametrize("config", SETTINGS, ids=NAMES)
def test_aggregated_direction_is_the_sum_over_anchors(task, config):
    model, x, y = task
    influence = OnlineInfluence(model, len(y), config=config)
    for _ in range(6):
        watch_once(influence, model, x, y)
        influence.step()
    watch_once(influence, model, x, y)
    batch = watched_batch(influence)
    parts = influence._engine.parts
    trust = parts.controller.trust()
    weights = parts.anchors.prior() * trust / trust.sum()
    aggregated = -batch.dot(parts.directions.scoring_direction)[:, 0]
    by_anchor = -batch.dot(parts.directions.phi) * trust
    torch.testing.assert_close(by_anchor @ weights, aggregated)
    if config.scope == "head":
        with torch.no_grad():
            features, logits = model.body(x), model(x)
        contributions, finite = influence.anchor_contributions(torch.arange(len(y)), y, features, logits)
        assert finite.all()
        torch.testing.assert_close(contributions, by_anchor * weights)
    else:
        with pytest.raises(CaptureError, match="scope 'head'"):
            influence.anchor_contributions(torch.arange(len(y)), y, x, x)


IN_TURNS = [quick(source="trusted", anchor_examples=25, scope=scope, update_every=1) for scope in ("head", "all")]


STEPS = torch.arange(60).split(10) * 2


def started(config):
    """A model, its optimiser and what watches it, before the first step."""
    torch.manual_seed(0)
    model = mlp().double()
    given = list(zip(*(part.split(12) for part in blobs(60, seed=7)), strict=True))  # of these two pass at a check
    anchors = given if config.source == "trusted" else None
    influence = OnlineInfluence(model, 60, config=config, total_steps=12, anchor_data=anchors)
    return model, torch.optim.SGD(model.parameters(), lr=0.1), influence


def go(model, optimizer, influence, steps):
    x, y = blobs(60)
    for index in steps:
        optimizer.zero_grad()
        watch_once(influence, model, x[index], y[index], index)
        optimizer.step()
        influence.step(optimizer)


@functools.cache
def uninterrupted(config):
    """What watched all steps, and its scores."""
    straight = started(config)
    go(*straight, STEPS)
    return straight[2], straight[2].scores()


DEEP_FISHER = quick(scope="all", curvature="fisher", update_every=1)


@pytest.mark.parametrize(
    "config", [*SETTINGS, *IN_TURNS, DEEP_FISHER], ids=[*NAMES, "trusted", "trusted all", "fisher all"]
)
@pytest.mark.parametrize("cut", [0, 3, 4, 7])
def test_resumed_is_uninterrupted(config, cut):
    """Stop after `cut` steps (none, in the middle of a check interval or at its end), save, load elsewhere, go on."""
    first = started(config)
    go(*first, STEPS[:cut])
    file = io.BytesIO()
    torch.save({"influence": first[2].state_dict(), "model": first[0].state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    second = started(config)
    second[0].load_state_dict(saved["model"])
    second[2].load_state_dict(saved["influence"])
    go(*second, STEPS[cut:])
    (straight, expected), found = uninterrupted(config), second[2].scores()
    assert expected.score.abs().max() > 0
    for name in (
        "score",
        "confidence",
        "residual",
        "half_width",
        "visits",
        "anchor_age",
        "mean_predictions",
        "log_odds",
        "margin",
    ):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=0, atol=0)
    assert found.counters == expected.counters
    if config.source == "trusted":
        assert second[2].external_anchor_passes == straight.external_anchor_passes == 60 + (straight.checks - 1) * 24


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("scope", ["head", "all"])
def test_compiled_is_eager(backend, scope):
    x, y = blobs(24, dtype=torch.float32)
    found = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = mlp()
        influence = OnlineInfluence(model, 24, config=quick(scope=scope, update_every=1))
        train(torch.compile(model, backend=backend) if compiled else model, x, y, influence, epochs=4, batch=8)
        found.append(influence.scores().score)
    assert found[0].abs().max() > 0
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)


def test_compiled_model_given_as_such():
    x, y = blobs(24, dtype=torch.float32)
    model = torch.compile(mlp(), backend="eager")
    influence = OnlineInfluence(model, 24, config=quick())
    train(model, x, y, influence, epochs=2, batch=8)
    assert influence.scores().visits.min() >= 1


@pytest.mark.parametrize("scope", ["head", "all"])
def test_autocast_is_near_full_precision(scope):
    x, y = torch.randn(32, 1, 8, 8), torch.arange(32) % 3
    scores = []
    for enabled in (False, True):
        torch.manual_seed(0)
        model = convnet()
        influence = OnlineInfluence(model, 32, config=quick(scope=scope, update_every=1))
        for _ in range(6):
            with influence.watch(torch.arange(32), y), torch.autocast("cpu", torch.bfloat16, enabled=enabled):
                F.cross_entropy(model(x), y).backward()
            influence.step()
        scores.append(influence.scores().score)
    assert torch.corrcoef(torch.stack(scores))[0, 1] > 0.99


@pytest.mark.parametrize("scope", ["head", "all"])
def test_a_loop_that_is_all_under_autocast_changes_nothing(scope):
    """Only the network runs in lower precision, wherever stepping and reading happen."""
    x, y = torch.randn(48, 1, 8, 8), torch.arange(48) % 3
    found = []
    for outside in (False, True):
        torch.manual_seed(0)
        model = convnet()
        influence = OnlineInfluence(model, 48, config=quick(scope=scope, update_every=1))
        with torch.autocast("cpu", torch.bfloat16, enabled=outside):
            for _ in range(6):
                with influence.watch(torch.arange(48), y):
                    with torch.autocast("cpu", torch.bfloat16):
                        loss = F.cross_entropy(model(x), y)
                    loss.backward()
                influence.step()
                influence.end_epoch()
            found.append(influence.scores())
    for name in ("score", "log_odds", "mean_predictions", "margin", "suspicion", "residual"):
        torch.testing.assert_close(getattr(found[1], name), getattr(found[0], name), rtol=0, atol=0, msg=name)


def test_loss_scale_and_skipped_steps_change_nothing():
    """What GradScaler does: a scaled loss, and a batch whose gradients overflow."""
    x, y = blobs(24)
    plain = run(mlp_seeded(), x, y, quick(scope="all", update_every=1))
    model = mlp_seeded()
    influence = OnlineInfluence(model, 24, config=quick(scope="all", update_every=1))
    for _ in range(6):
        with influence.watch(torch.arange(24), y):
            (2.0**16 * F.cross_entropy(model(x), y)).backward()
        influence.step()
    torch.testing.assert_close(influence.scores().score, plain.score)


def mlp_seeded():
    torch.manual_seed(0)
    return mlp().double()


@pytest.mark.parametrize("scope", ["head", "all"])
def test_a_nan_batch_never_poisons_the_state(scope):
    x, y = blobs(24)
    model = mlp_seeded()
    influence = OnlineInfluence(model, 24, config=quick(scope=scope, update_every=1))
    for step in range(8):
        broken = x.clone()
        if step == 3:
            broken[:] = torch.nan
        if step == 5:
            broken[2] = torch.inf
        watch_once(influence, model, broken, y)
        influence.step()
    result = influence.scores()
    assert all(
        torch.isfinite(t).all()
        for name, t in influence._engine.parts.state_dict().items()
        if isinstance(t, torch.Tensor) and t.dim() < 2 and name != "anchors.lambda_min"  # not looked at yet
    )
    assert torch.isfinite(influence._engine.parts.directions.phi).all() and torch.isfinite(result.score).all()
    assert result.counters["nan_batches"] == 2
    assert result.visits[2] == result.visits[0] - 1
    clean = run(mlp_seeded(), x, y, quick(scope=scope, update_every=1), steps=8)
    assert torch.corrcoef(torch.stack([result.score, clean.score]))[0, 1] > 0.95


def test_watching_does_not_change_training():
    x, y = blobs(40, dtype=torch.float32)
    torch.manual_seed(0)
    model = Net(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2)), 8, 3)
    other = copy.deepcopy(model)
    held = [(x[:10], y[:10])]
    influence = OnlineInfluence(model, 40, config=quick(source="trusted", scope="all"), anchor_data=held)
    torch.manual_seed(1)
    train(model, x, y, influence, epochs=2)
    torch.manual_seed(1)
    optimizer, generator = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9), torch.Generator().manual_seed(0)
    for _ in range(2):
        for index in torch.randperm(40, generator=generator).split(20):
            optimizer.zero_grad()
            F.cross_entropy(other(x[index]), y[index]).backward()
            optimizer.step()
    for (name, one), two in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=0, msg=name)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("scope", ["head", "all"])
def test_cpu_is_cuda(scope):
    x, y = blobs(60)
    scores = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        model = mlp().double().to(device)
        influence = OnlineInfluence(model, 60, config=quick(scope=scope))
        train(model, x.to(device), y.to(device), influence, epochs=4, batch=10)
        scores.append(influence.scores().score)
    torch.testing.assert_close(scores[0], scores[1], rtol=1e-6, atol=1e-8)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("scope", ["head", "all"])
@pytest.mark.parametrize("curvature", ["kfac", "diagonal", "fisher", "lowrank"])
@pytest.mark.parametrize("source", ["stream", "trusted"])
def test_a_step_never_waits_for_the_device(curvature, scope, source):
    x, y = blobs(60, dtype=torch.float32)
    x, y, index = x.cuda(), y.cuda(), torch.arange(60).cuda()
    model = mlp().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    config = InfluenceConfig(scope=scope, curvature=curvature, solve_every=2, coverage_every=2, source=source)
    influence = OnlineInfluence(model, 60, config=config, anchor_data=[(x, y)] if source == "trusted" else None)
    for step in range(12):
        torch.cuda.set_sync_debug_mode("error" if step > 4 else "default")
        try:
            watch_once(influence, model, x, y, index)
            influence.step(optimizer)
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_queue_is_step_by_step(monkeypatch):
    """Folding an interval at once gives what folding each step gives."""
    x, y = blobs(60)
    scores = []
    for most in (10**6, 1):
        monkeypatch.setattr("sgoif._engine.MAX_QUEUED_NUMBERS", most)
        torch.manual_seed(0)
        model = mlp().double()
        influence = OnlineInfluence(model, 60, config=quick(probe_examples=10))
        train(model, x, y, influence, epochs=4, batch=10)
        scores.append(influence.scores())
    assert scores[0].score.abs().max() > 0
    for name in ("score", "confidence", "residual", "anchor_age", "epoch_scores"):
        torch.testing.assert_close(getattr(scores[0], name), getattr(scores[1], name))
