"""Rows and buffers that are put back where something is not finite, and what the host may skip where all is."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sgoif import OnlineInfluence
from sgoif.backend import linalg
from sgoif.backend.linalg import restore_buffers_unless, zero_rows_unless
from tests.helpers.networks import blobs, mlp, quick

CLASSES = 3


def test_rows_that_are_not_valid_are_zeros_whatever_was_there():
    spoiled = torch.tensor([[1.0, -0.0], [torch.nan, torch.inf], [3.0, 4.0]])
    first, second = zero_rows_unless(torch.tensor([True, False, True]), spoiled, torch.ones(3, 1))
    assert first.tolist() == [[1, 0], [0, 0], [3, 4]] and first[0, 1].signbit()
    assert second.tolist() == [[1], [0], [1]]


def test_on_the_host_matrices_without_such_rows_are_not_copied():
    matrix = torch.ones(2, 3)
    (kept,) = zero_rows_unless(torch.ones(2, dtype=torch.bool), matrix)
    assert kept is matrix


@pytest.mark.parametrize("sound", [True, False])
def test_buffers_are_put_back_unless_the_body_was_sound(sound):
    module = nn.BatchNorm1d(2)
    with restore_buffers_unless(torch.tensor(sound), module):
        module.running_mean = torch.full((2,), 7.0)
    assert module.running_mean.tolist() == ([7, 7] if sound else [0, 0])


def watched(spoil: int | None) -> dict[str, torch.Tensor]:
    """Tensors of a result, with batches of several sizes and passes; in one epoch an example may be spoiled."""
    torch.manual_seed(0)
    model, (x, y) = mlp(classes=CLASSES).float(), blobs(50, classes=CLASSES)
    x = x.float()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    influence = OnlineInfluence(model, 50, config=quick())
    for epoch in range(4):
        for index in torch.randperm(50).split([16, 16, 7, 11]):
            optimizer.zero_grad()
            for part in index.split(9):
                images = x[part].clone()
                if epoch == 2:
                    images[part == spoil] = torch.nan
                with influence.watch(part, y[part]):
                    F.cross_entropy(model(images), y[part], reduction="none").nan_to_num(0.0).mean().backward()
            for parameter in model.parameters():
                parameter.grad.nan_to_num_(0.0)
            optimizer.step()
            influence.step(optimizer)
        influence.end_epoch()
    result = influence.scores()
    assert bool(result.counters["nan_batches"]) == (spoil is not None)
    return {name: value for name, value in vars(result).items() if isinstance(value, torch.Tensor)}


@pytest.mark.parametrize("spoil", [None, 13])
def test_what_the_host_skips_changes_no_bit(spoil, monkeypatch):
    expected = watched(spoil)
    asked = []
    monkeypatch.setattr(linalg, "known_to_hold", lambda flags: asked.append(flags))  # as on a device: never known
    found = watched(spoil)
    assert asked and found.keys() == expected.keys()
    for name, value in found.items():
        assert torch.equal(value, expected[name]), name
