"""Deep scope: which examples of a step are learnt from, and that anchors pass in parts of the right size."""

import pytest
import torch

from sgoif import InfluenceConfig
from sgoif.anchors.external import AnchorDataCycle
from sgoif.scopes.deep import MAX_CHECK_SHARE, NEGLIGIBLE_STEP_FLOPS, DeepScope
from tests.helpers.networks import blobs, mlp, per_example_gradients


def scope(model=None, **changes) -> DeepScope:
    return DeepScope(model or mlp(), 100, 3, InfluenceConfig(scope="all", **changes))


@pytest.mark.parametrize(
    ("size", "parts"), [(2, [[0, 1], [2, 3], [4]]), (5, [[0, 1, 2, 3, 4]]), (100, [[0, 1, 2, 3, 4]])]
)
def test_external_anchors_come_in_parts_and_none_is_left_out(size, parts):
    x, y = blobs(5)
    model = mlp().double()
    config = InfluenceConfig(scope="all", source="trusted", deep_examples=size, temperature=1.0)
    deep = DeepScope(model, 100, 3, config)
    cycle = AnchorDataCycle([(x, y)], 512)
    assert deep.queue_external_anchors(cycle) == []
    batches = list(deep.external_anchor_batches([], cycle, config.temperature))
    assert [batch.labels.tolist() for batch in batches] == [y[rows].tolist() for rows in parts]
    dense = per_example_gradients(model, x, y, config)
    rows = torch.eye(dense.shape[1], dtype=torch.float64)
    found = torch.cat([batch.dot(rows) for batch in batches])
    torch.testing.assert_close(found, dense, rtol=1e-4, atol=1e-5)  # the loss of the pass is in single precision


def test_when_it_learns_and_scores():
    deep = scope(update_every=4)
    assert [deep.learns_now(step, False, False) for step in range(6)] == [True, False, False, False, True, False]
    assert deep.learns_now(1, True, False) and not deep.learns_now(1, False, True)
    assert not deep.scores_now(False, False) and deep.scores_now(True, False) and deep.scores_now(False, True)


def test_checks_may_take_a_twentieth_of_training():
    """Each product costs the backend's arithmetic and four per parameter of each probe example."""
    deep = scope(deep_examples=10)

    class Curvature:
        def flops_per_product(self):
            return 1000

    per_product = 1000 + 4 * 10 * deep.hooks.space.dim
    many = int(1e12)
    assert deep.affordable_products(Curvature(), many) == pytest.approx(MAX_CHECK_SHARE * many / per_product)
    assert deep.affordable_products(Curvature(), 5) == pytest.approx(NEGLIGIBLE_STEP_FLOPS / per_product)
    assert MAX_CHECK_SHARE == 0.05
