"""Loops as people write them: other losses, mixed labels, repeated examples. What is scored stays defined."""

import pytest
import torch
import torch.nn.functional as F

from sgoif import OnlineInfluence
from tests.helpers.networks import blobs, mlp, quick

CLASSES = 3
OTHER = torch.arange(24).flip(0)  # the partner of each example in a mix


def cross_entropy(logits, y):
    return F.cross_entropy(logits, y)


def smoothed(logits, y):
    return F.cross_entropy(logits, y, label_smoothing=0.2)


def mixed(logits, y):
    return 0.6 * F.cross_entropy(logits, y) + 0.4 * F.cross_entropy(logits, y[OTHER[: len(y)] % len(y)])


def weighted(logits, y):
    return F.cross_entropy(logits, y, weight=torch.tensor([1.0, 5.0, 0.2], dtype=logits.dtype))


def generalised(logits, y):
    return ((1 - logits.softmax(1).gather(1, y[:, None]) ** 0.7) / 0.7).mean()


def scores(loss, scope="head", wrapper=lambda model: model):
    """Scores of a standing model whose passes carry `loss`."""
    torch.manual_seed(0)
    model, (x, y) = wrapper(mlp(classes=CLASSES)).double(), blobs(24, classes=CLASSES)
    influence = OnlineInfluence(model, 24, config=quick(scope=scope, update_every=1))
    for _ in range(6):
        with influence.watch(torch.arange(24), y):
            loss(model(x), y).backward()
        influence.step()
    return influence.scores().score


@pytest.mark.parametrize("loss", [smoothed, mixed, weighted, generalised])
def test_the_last_layer_is_scored_by_cross_entropy_to_the_labels_whatever_the_loss(loss):
    expected = scores(cross_entropy)
    assert expected.abs().max() > 0
    assert torch.equal(scores(loss), expected)


class ByName(torch.nn.Module):
    """Calls its layers by keyword."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, x):
        for layer in self.layers.modules():
            if not list(layer.children()):
                x = layer(input=x)
        return x


@pytest.mark.parametrize("scope", ["head", "all"])
def test_layers_may_be_called_by_keyword(scope):
    expected = scores(cross_entropy, scope)
    assert torch.equal(scores(cross_entropy, scope, ByName), expected) and expected.any()


def test_deep_scopes_follow_the_direction_of_the_loss_but_not_its_size():
    """A class weight is a factor of each example's gradient, which cancels; a smoothed target is another direction."""
    expected = scores(cross_entropy, "all")
    torch.testing.assert_close(scores(weighted, "all"), expected, rtol=1e-6, atol=1e-9)
    assert (scores(smoothed, "all") - expected).abs().max() > 1e-3 * expected.abs().max()


def test_an_example_counts_once_for_each_visit():
    """Class-balanced sampling draws with replacement: examples come several times an epoch, even in one batch."""
    torch.manual_seed(0)
    model, (x, y) = mlp(classes=CLASSES).double(), blobs(24, classes=CLASSES)
    share = 1 / torch.bincount(y, minlength=CLASSES)[y]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    influence = OnlineInfluence(model, 24, config=quick(window=1.0))
    drawn = []
    for _ in range(4):
        for index in torch.multinomial(share.double(), 40, replacement=True).split(10):
            optimizer.zero_grad()
            with influence.watch(index, y[index]):
                F.cross_entropy(model(x[index]), y[index]).backward()
            optimizer.step()
            influence.step(optimizer)
            drawn.append(index)
        influence.end_epoch()
    result = influence.scores()
    counts = torch.bincount(torch.cat(drawn), minlength=24)
    assert counts.max() > 4 and any(len(index.unique()) < len(index) for index in drawn)
    assert torch.equal(result.visits.long(), counts)
    assert torch.isfinite(result.suspicion[counts > 0]).all()
