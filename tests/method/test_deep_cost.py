"""What watching all layers costs, counted: ResNet-9, batches of 512 CIFAR-10 images, the default configuration.

Nothing is computed. Fake tensors have shapes and no values, so an epoch of the full size takes seconds, every product
is counted from its shapes, and whatever would look at a value (`.item()`, a branch on a tensor, `nonzero`) raises.
"""

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from sgoif import InfluenceConfig, OnlineInfluence
from sgoif.backend import linalg
from sgoif.gradients.queue import PassQueue
from sgoif.training.models import build_network

aten = torch.ops.aten
BATCH, EXAMPLES, CLASSES = 512, 50_000, 10
FORMULAS = {  # of shapes; what the counter of torch leaves out
    aten.addmm_: lambda total, a, b, **_: 2 * a[0] * a[1] * b[1],
    aten.linalg_cholesky_ex: lambda a, **_: a[0] ** 3 // 3,
    aten.linalg_solve_triangular: lambda a, b, **_: a[0] ** 2 * b[1],
}


def counted(step) -> int:
    with FlopCounterMode(display=False, custom_mapping=FORMULAS) as counter:
        step()
    return counter.get_total_flops()


@pytest.fixture(scope="module")
def epoch():
    """(operations of a plain step, operations of each watched step of an epoch, the influence that watched)."""
    with pytest.MonkeyPatch.context() as patch, FakeTensorMode():
        # values on the host are looked at, indices and labels as they are handed over; those on a device, as here, not
        patch.setattr(PassQueue, "validate", staticmethod(lambda index, labels, *_: (index, labels)))
        patch.setattr(linalg, "known_to_hold", lambda flags: False)
        net = build_network("resnet9", CLASSES, 3, 32)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        influence = OnlineInfluence(net, EXAMPLES, CLASSES, InfluenceConfig(scope="all"))
        x, y = torch.empty(BATCH, 3, 32, 32), torch.zeros(BATCH, dtype=torch.long)

        def train():
            with torch.autocast("cpu", torch.bfloat16):
                logits = net(x)
            F.cross_entropy(logits.float(), y).backward()

        def watched():
            with influence.watch(y, y):
                train()
            influence.step(optimizer)

        yield counted(train), [counted(watched) for _ in range(-(-EXAMPLES // BATCH))], influence


def test_an_ordinary_step_adds_one_forward_pass(epoch):
    plain, watched, influence = epoch
    ordinary = [c for step, c in enumerate(watched, 1) if step % influence.config.update_every]
    ordinary = [c for c in ordinary if c < 2 * plain]  # without the check
    assert max(ordinary) < 1.335 * plain


def test_an_epoch_stays_far_below_the_bound(epoch):
    """The goal is 1.5 times the time of plain training; time is not arithmetic, so the arithmetic has to leave room."""
    plain, watched, influence = epoch
    assert influence.checks == 1
    ratio = sum(watched) / (len(watched) * plain)
    print(f"watched / plain: {ratio:.3f}, a check: {(max(watched) - min(watched)) / plain:.2f} steps")
    assert ratio < 1.42


def test_a_step_that_looks_at_a_value_would_be_found():
    with FakeTensorMode(), pytest.raises(DataDependentOutputException):
        torch.ones(()).item()
