"""Anchor data that is passed beside training leaves training as it is."""

import io
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from sgoif import InfluenceConfig, OnlineInfluence
from sgoif.anchors.external import AnchorDataCycle


def trained(anchors) -> dict:
    """Weights after two epochs with dropout, which draws from torch's generator."""
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images[:600]).float() / 16, torch.tensor(labels[:600])
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    config = InfluenceConfig(source="trusted", solve_every=3)
    influence = OnlineInfluence(model, 600, 10, config, anchor_data=anchors(x[:50], y[:50]))
    for epoch in range(2):
        for index in torch.randperm(600, generator=torch.Generator().manual_seed(epoch)).split(64):
            optimizer.zero_grad()
            with influence.watch(index, y[index]):
                F.cross_entropy(model(x[index]), y[index]).backward()
            optimizer.step()
            influence.step(optimizer)
        influence.end_epoch()
    influence.scores()
    return model.state_dict()


def test_a_loader_of_anchors_draws_no_random_numbers_of_the_training():
    by_list = trained(lambda x, y: list(zip(x.split(10), y.split(10), strict=True)))
    by_loader = trained(lambda x, y: DataLoader(TensorDataset(x, y), batch_size=10, shuffle=True))
    assert all(torch.equal(by_list[name], by_loader[name]) for name in by_list)


def test_anchors_have_random_numbers_of_their_own_that_go_on():
    class Drawn:
        def __iter__(self):
            for _ in range(3):
                draw = random.random() + np.random.random()
                yield torch.rand(2, 3) + draw, torch.zeros(2, dtype=torch.long)

    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    cycle = AnchorDataCycle(Drawn(), 100)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    drawn = [x for _ in range(2) for x, _, _ in cycle.batches()]
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    assert torch.equal(before[0], after[0]) and before[1:] == after[1:]
    assert len({float(x.sum()) for x in drawn}) == 6, "no batch has the numbers of another one"


class Augmented:
    """Data shuffled by a loader and moved by numpy's and Python's random numbers."""

    def __init__(self, n):
        x = torch.arange(n, dtype=torch.float32).view(n, 1)
        self.loader = DataLoader(TensorDataset(x, torch.zeros(n, dtype=torch.long)), batch_size=4, shuffle=True)

    def __iter__(self):
        for x, y in self.loader:
            yield x + np.random.random() + random.random(), y


@pytest.mark.parametrize("min_examples", [8, 1000], ids=["rounds", "all data in a check"])
@pytest.mark.parametrize("cut", range(1, 8))
def test_random_anchors_go_on_after_a_resume_as_they_would_have(min_examples, cut):
    def checks(cycle, count):
        return [torch.cat([x for x, _, _ in cycle.next_batches()]) for _ in range(count)]

    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    whole = checks(AnchorDataCycle(Augmented(30), min_examples), 8)
    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    first = AnchorDataCycle(Augmented(30), min_examples)
    begun = checks(first, cut)
    list(first.read_beside())  # as `scores()` does
    saved = io.BytesIO()
    torch.save(first.state_dict(), saved)
    random.seed(1), np.random.seed(1), torch.manual_seed(1)  # another process
    second = AnchorDataCycle(Augmented(30), min_examples)
    second.load_state_dict(torch.load(io.BytesIO(saved.getvalue()), weights_only=True))
    for found, expected in zip(begun + checks(second, 8 - cut), whole, strict=True):
        assert torch.equal(found, expected)
