"""How far apart checks are."""

import pytest

from sgoif import InfluenceConfig
from sgoif.solvers.schedule import CheckSchedule


@pytest.mark.parametrize(
    ("epoch_steps", "interval"),
    [
        (1, 4),  # 28 products a check, 8 a step
        (12, 12),  # one check per epoch
        (16, 16),
        (98, 98),
        (390, 100),  # solve_every
    ],
)
def test_there_is_a_check_an_epoch_or_every_hundred_steps(epoch_steps, interval):
    schedule = CheckSchedule(InfluenceConfig(), n_anchors=10, subspace_size=8, n_classes=10)
    schedule.plan(epoch_steps)
    assert schedule.interval == interval


def test_a_shorter_bound_is_kept():
    schedule = CheckSchedule(InfluenceConfig(solve_every=2, hvp_budget=1000.0), 10, 8, 10)
    schedule.plan(40)
    assert schedule.interval == 2
