"""What watching the last layer costs, in operators: on a GPU each is a launch, on a CPU a few microseconds."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from sgoif import OnlineInfluence
from sgoif.training.models import build_network

BATCH, STEPS = 32, 32


class Operators(TorchDispatchMode):
    """Counts what is dispatched."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture(scope="module")
def counts() -> dict[str, list[int]]:
    """Operators of two epochs: in `watch` beyond its pass, in `step` with a check and without, in `end_epoch`."""
    torch.manual_seed(0)
    net, n = build_network("tiny_cnn", 10, 1, 8), BATCH * STEPS
    x, y = torch.randn(n, 1, 8, 8), torch.randint(10, (n,))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    influence = OnlineInfluence(net, n, 10)
    found: dict[str, list[int]] = {"watch": [], "step": [], "check": [], "end_epoch": []}
    for _ in range(2):
        for index in torch.randperm(n).split(BATCH):
            with Operators() as inside:
                net(x[index])
            with Operators() as watching, influence.watch(index, y[index]):
                logits = net(x[index])
            F.cross_entropy(logits, y[index]).backward()
            optimizer.step()
            checks = influence.checks
            with Operators() as stepping:
                influence.step(optimizer)
            found["watch"].append(watching.count - inside.count)
            found["check" if influence.checks > checks else "step"].append(stepping.count)
        with Operators() as ending:
            influence.end_epoch()
        found["end_epoch"].append(ending.count)
    return found


def test_a_step_without_a_check_computes_nothing(counts):
    assert len(counts["step"]) == 62 and set(counts["step"]) == {0}


def test_watching_a_pass_only_keeps_and_validates(counts):
    """Three tensors are detached; smallest and largest index and label are read; logits, index and labels are copied.

    At the first pass it is also checked that the outputs are no probabilities, and norms of the weights are read.
    """
    first, *others = counts["watch"]
    parameters = len(list(build_network("tiny_cnn", 10, 1, 8).parameters()))
    assert max(others) <= 13 and first <= 22 + 4 * parameters


def test_a_check_has_few_operators(counts):
    """The first check refreshes the curvature once more."""
    assert len(counts["check"]) == 2
    assert max(counts["check"][1:]) <= 554
    assert max(counts["end_epoch"]) <= 10
