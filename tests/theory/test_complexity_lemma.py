"""Cost grows as the complexity lemma says: products linear in K and r per check, memory d (K + r) plus the backend."""

import pytest
import torch

from sgoif import InfluenceConfig, OnlineInfluence
from sgoif.solvers.schedule import CheckSchedule
from tests.helpers.networks import blobs, linear_net, quick, watch_once


def counted(anchors=0, rank=2, classes=4, inputs=10, **changes):
    torch.manual_seed(0)
    model, (x, y) = linear_net(inputs, classes), blobs(40, inputs, classes, dtype=torch.float32)
    influence = OnlineInfluence(model, 40, config=quick(anchors=anchors, rank=rank, trigger=False, **changes))
    for _ in range(8):
        watch_once(influence, model, x, y)
        influence.step()
    return influence


def products_per_check(influence):
    return influence.counters()["hvps"] / influence.counters()["checks"]


def test_products_are_linear_in_anchors_and_rank():
    assert products_per_check(counted(anchors=4, rank=2)) == 2 * 4 + 2
    assert products_per_check(counted(anchors=8, rank=2)) == 2 * 8 + 2
    assert products_per_check(counted(anchors=8, rank=5)) == 2 * 8 + 5


@pytest.mark.parametrize("solver", ["richardson", "neumann", "pcg", "direct"])
@pytest.mark.parametrize("anchors", [4, 40])
def test_budget_is_kept(solver, anchors):
    influence = counted(anchors=anchors, solver=solver, hvp_budget=16.0)
    assert influence.counters()["hvps_per_step"] <= 16


@pytest.mark.parametrize(("classes", "budget"), [(2, 8), (50, 8), (100, 4), (200, 2), (1000, 2)])
def test_among_many_classes_products_are_fewer(classes, budget):
    config = InfluenceConfig(anchors=classes)
    schedule = CheckSchedule(config, n_anchors=classes, subspace_size=8, n_classes=classes)
    schedule.plan(epoch_steps=98)
    assert config.budget(classes) == budget and schedule.interval == max(98, -(-(2 * classes + 8) // budget))


def numbers(influence):
    """Floats held by directions and anchors: the d (K + r) part of the memory."""
    parts = (influence._engine.parts.directions, influence._engine.parts.anchors)
    return sum(b.numel() for part in parts for b in part.buffers())


def test_memory_is_linear_in_d_times_anchors_plus_rank():
    dim = 4 * 11
    assert numbers(counted(anchors=8)) - numbers(counted(anchors=4)) == 4 * (
        3 * dim + 2
    )  # phi, delta, g, weight, count
    assert numbers(counted(rank=6)) - numbers(counted(rank=2)) == 4 * dim
    wide = numbers(counted(inputs=21)) / numbers(counted(inputs=10))
    assert abs(wide - 2) < 0.1


def test_head_scope_never_multiplies_out_per_example_gradients():
    """The largest tensor of a check is far below n x d: features of its examples, not one gradient for each."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        size = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, tuple | list) else [out]:
                if isinstance(tensor, torch.Tensor):
                    self.size = max(self.size, tensor.untyped_storage().nbytes() // tensor.element_size())
            return out

    n, inputs, classes = 512, 256, 8
    model, (x, y) = linear_net(inputs, classes), blobs(n, inputs, classes, dtype=torch.float32)
    influence = OnlineInfluence(model, n, config=InfluenceConfig(anchors=classes, rank=4))
    with Largest() as largest:
        for _ in range(3):
            watch_once(influence, model, x, y)
            influence.step()
    assert largest.size < 3 * n * classes * (inputs + 1) / 4  # three steps are learnt from at once
