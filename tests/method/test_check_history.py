"""The trace of the checks: a row a check, the run's own figures, and no trace of the trace in the run."""

import numpy as np
import torch
import torch.nn.functional as F

from sgoif import InfluenceConfig, OnlineInfluence
from sgoif.check_history import COLUMNS, CheckHistory
from tests.helpers.networks import blobs, linear_net

STEPS, N = 24, 60


def train(config=None, traced=True, cut=None):
    """A short training; `cut` saves state and trace after that many steps and goes on with fresh objects."""
    torch.manual_seed(0)
    x, y = blobs(N)
    net = linear_net().double()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.2)
    config = config or InfluenceConfig(solve_every=4)

    def watcher():
        influence = OnlineInfluence(net, n_examples=N, n_classes=3, config=config, total_steps=STEPS)
        return influence, CheckHistory(influence)

    influence, trace = watcher()
    for step in range(STEPS):
        if step == cut:
            states = influence.state_dict(), trace.state_dict()
            influence.close()
            influence, trace = watcher()
            influence.load_state_dict(states[0])
            trace.load_state_dict(states[1])
        index = torch.arange(step * 20, step * 20 + 20) % N
        with influence.watch(index, y[index]):
            F.cross_entropy(net(x[index]), y[index]).backward()
        optimizer.step()
        optimizer.zero_grad()
        influence.step(optimizer)
        if traced:
            trace.record()
    return influence, trace


def test_a_row_a_check_with_the_runs_own_figures():
    influence, trace = train()
    found = trace.arrays()
    assert list(found) == list(COLUMNS) and {v.shape for v in found.values()} == {(influence.checks,)}
    assert (
        influence.checks > 3 and (np.diff(found["step"]) == influence._engine.parts.directions.schedule.interval).all()
    )
    assert found["hvps"][-1] == influence.counters()["hvps"] and (np.diff(found["hvps"]) > 0).all()
    controller = influence._engine.parts.controller
    last = {"residual": controller.residual.mean(), "confidence": controller.confidence.mean(),
            "tolerance": controller.tolerance, "step_size": controller.step_size.mean()}  # fmt: skip
    assert {name: found[name][-1] for name in last} == {name: np.float32(value) for name, value in last.items()}
    assert np.isnan(found["lambda_min"][:9]).all()  # coverage is looked at every tenth check


def test_coverage_as_it_was_last_looked_at():
    influence, trace = train(InfluenceConfig(solve_every=4, coverage_every=2))
    found, phi = trace.arrays()["lambda_min"], F.normalize(influence._engine.parts.directions.phi)
    assert influence.checks % 2 == 0 and np.isnan(found[0]) and found[1] == found[2] != found[3]
    assert abs(found[-1] - torch.linalg.eigvalsh(phi @ phi.T)[0]) < 1e-3


def test_looking_changes_nothing():
    alone, watched = train(traced=False)[0].scores(), train()[0].scores()
    assert torch.equal(alone.score, watched.score) and alone.counters == watched.counters


def test_resumed_is_uninterrupted():
    whole, resumed = train()[1].arrays(), train(cut=13)[1].arrays()
    for name in COLUMNS:
        np.testing.assert_array_equal(whole[name], resumed[name])


def test_checks_before_it_was_made_are_left_out():
    influence, whole = train()
    late = CheckHistory(influence)
    late.record()
    assert len(late.arrays()["step"]) == 0 < len(whole.arrays()["step"])


def test_before_the_first_check_it_is_empty():
    influence = OnlineInfluence(linear_net(), n_examples=N, n_classes=3)
    assert all(v.shape == (0,) for v in CheckHistory(influence).arrays().values())
