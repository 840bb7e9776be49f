"""Hooks that turn a pass into gradients: taken off again, the logits they choose, the precision they keep."""

import contextlib
import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from sgoif import InfluenceConfig, OnlineInfluence
from sgoif.gradients.dot_product import GradientDotProduct
from sgoif.gradients.hooks import GradientHooks
from tests.helpers.networks import Net, linear_net


def hooks_on(model: nn.Module, **changes) -> GradientHooks:
    return GradientHooks(model, InfluenceConfig(**changes), None)


def test_removed_hooks_see_nothing_more():
    model = linear_net()
    hooks = hooks_on(model)
    assert len(model._forward_hooks) == len(model.head._forward_hooks) == 1
    hooks.remove()
    assert not model._forward_hooks and not model.head._forward_hooks
    hooks.start()
    model(torch.randn(4, 6))
    assert hooks.stop().features is None


def test_only_a_pass_that_is_recorded_is_kept():
    model = linear_net(scale=2.0)
    hooks = hooks_on(model)
    model(torch.randn(4, 6))
    assert hooks.captured.features is None
    x = torch.randn(4, 6)
    with hooks.evaluation_pass() as captured:
        hooks.evaluate(x, torch.tensor([0, 1, 2, 0]))
    assert torch.equal(captured.features, x) and all(p.grad is None for p in model.parameters())
    torch.testing.assert_close(captured.logits, captured.head_output / 2)
    model(torch.randn(3, 6))
    assert torch.equal(captured.features, x)


class Returning(nn.Module):
    """A head whose model returns something made of its output."""

    def __init__(self, change):
        super().__init__()
        self.head, self.change = nn.Linear(6, 3), change

    def forward(self, x):
        return self.change(self.head(x))


RETURNED = {
    "as it is": lambda z: z,
    "scaled": lambda z: z / 2,
    "scaled in place": lambda z: z.mul_(0.5),
    "other shape": lambda z: z.sum(1, keepdim=True),
    "none": lambda z: {"loss": z.sum()},
}


@pytest.mark.parametrize("case", [*RETURNED, "parts called one by one"])
def test_the_models_own_logits_are_kept_where_they_have_the_heads_shape_whatever_the_loop_does_to_them(case):
    torch.manual_seed(0)
    model, x = Returning(RETURNED.get(case, lambda z: z)), torch.randn(4, 6)
    hooks = hooks_on(model, head="head")
    with torch.no_grad():
        expected = model.head(x) / (2 if "scaled" in case else 1)
        captured = hooks.start()
        output = model.head(x) if "parts" in case else model(x)
        hooks.stop()
        if "parts" in case:
            hooks.validate(captured, 4)
        for tensor in [captured.head_output, *([output] if isinstance(output, Tensor) else [])]:
            tensor.add_(100.0)  # a margin or a metric
        hooks.validate(captured, 4)
    torch.testing.assert_close(captured.logits, expected)


def test_head_gradients_are_those_of_the_softened_loss():
    torch.manual_seed(0)
    hooks = hooks_on(linear_net())
    features, logits, y = torch.randn(3, 6), 3 * torch.randn(3, 3), torch.tensor([0, 2, 1])
    features[1, 2] = torch.inf
    batch = hooks.head_batch(features, logits, torch.arange(3), y, 4.0)
    p = (logits / 4).softmax(1)
    assert batch.valid.tolist() == [True, False, True] and batch.recency.tolist() == [1, 1, 1]
    assert batch.step_sizes == (3,) and (batch.probs[1] == 0).all() and batch.agreement[1] == 0
    torch.testing.assert_close(batch.probs[0], p[0])
    assert torch.equal(batch.logits[[0, 2]], logits[[0, 2]]) and (batch.logits[1] == 0).all()
    assert torch.equal(batch.predicted[[0, 2]], logits.softmax(1)[[0, 2]]) and (batch.predicted[1] == 0).all()
    torch.testing.assert_close(batch.agreement[2], logits.softmax(1)[2, 1])
    layer = batch.head_layer
    torch.testing.assert_close(layer.e[0], p[0] - F.one_hot(y, 3)[0])
    assert (layer.e[1] == 0).all() and (layer.a[1] == 0).all()
    assert torch.equal(layer.a[0, :-1], features[0]) and (layer.a[[0, 2], -1] == 1).all()


def test_scores_of_the_backward_pass_keep_the_precision_of_their_inputs():
    """Also inside autocast, whose lower precision would round the products."""
    torch.manual_seed(0)
    model = Net(nn.Identity(), 64, 3)
    hooks = hooks_on(model)
    direction = torch.randn(1, hooks.space.dim)
    dot = GradientDotProduct(hooks.layers, hooks.space, torch.float32)
    dot.set_direction(direction)
    a, e = torch.randn(5, 64), torch.randn(5, 3)
    dense = torch.einsum("no,ni->noi", e, F.pad(a, (0, 1), value=1.0)).flatten(1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = dot.project("head", a, e)
    torch.testing.assert_close(found, dense @ direction[0], rtol=1e-4, atol=1e-4)
    dot.set_direction(2 * direction)  # the weights follow in place
    torch.testing.assert_close(dot.project("head", a, e), 2 * found, rtol=1e-4, atol=1e-4)
    assert torch.equal(dot.layer_block("head").flatten(), 2 * direction[0])


@pytest.mark.parametrize("scope", ["head", "all"])
@pytest.mark.parametrize("norm", [parametrizations.spectral_norm, parametrizations.weight_norm])
def test_a_parametrised_head_is_trained_as_without_the_library(scope, norm):
    """spectral_norm takes a step whenever its weight is read in training mode."""

    def trained(watched: bool) -> dict:
        torch.manual_seed(0)
        x, y = torch.randn(200, 16), torch.randint(0, 4, (200,))
        model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), norm(nn.Linear(8, 4)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        config = InfluenceConfig(scope=scope, solve_every=2)
        influence = OnlineInfluence(model, 200, 4, config) if watched else None
        for index in torch.arange(200).split(20):
            optimizer.zero_grad()
            with influence.watch(index, y[index]) if influence else contextlib.nullcontext():
                F.cross_entropy(model(x[index]), y[index]).backward()
            optimizer.step()
            if influence:
                influence.step(optimizer)
        return model.state_dict()

    with_it, without = trained(True), trained(False)
    assert all(torch.equal(with_it[name], without[name]) for name in without)


@pytest.mark.parametrize("scope", ["head", "all"])
def test_a_watched_model_can_be_saved_and_a_copy_of_it_is_not_watched(scope):
    torch.manual_seed(0)
    x, y = torch.randn(40, 16), torch.randint(0, 4, (40,))
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    influence = OnlineInfluence(model, 40, 4, InfluenceConfig(scope=scope))
    index, teacher = torch.arange(20), copy.deepcopy(model)
    with influence.watch(index, y[index]):
        F.cross_entropy(model(x[index]), y[index]).backward()
        F.cross_entropy(teacher(x[:5]), y[:5]).backward()
    influence.step(optimizer)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(x), model(x))
