"""Gradients of convolutions as products are those of PyTorch."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from sgoif.training import arm_convolutions
from sgoif.training.arm_convolutions import MatmulConvGradients, _Convolution

CASES = {  # n, c_in, c_out, height, width, kernel, padding
    "3x3": (5, 3, 4, 6, 7, (3, 3), 1),
    "5x5 without padding": (2, 2, 3, 9, 8, (5, 5), 0),
    "1x1": (3, 4, 2, 5, 5, (1, 1), 0),
    "oblong": (2, 3, 2, 7, 6, (3, 5), (1, 2)),
    "full padding": (2, 1, 2, 4, 4, (3, 3), 2),
    "one place": (4, 3, 5, 3, 3, (3, 3), 0),
}


def made(case):
    n, c_in, c_out, high, wide, kernel, padding = CASES[case]
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(n, c_in, high, wide, generator=draw, dtype=torch.float64).requires_grad_()
    weight = torch.randn(c_out, c_in, *kernel, generator=draw, dtype=torch.float64).requires_grad_()
    bias = torch.randn(c_out, generator=draw, dtype=torch.float64).requires_grad_()
    return x, weight, bias, padding


@pytest.mark.parametrize("at_once", [arm_convolutions.MAX_PATCH_ELEMENTS, 1], ids=["at once", "one image at a time"])
@pytest.mark.parametrize("case", CASES)
def test_gradients_are_pytorchs(case, at_once, monkeypatch):
    monkeypatch.setattr(arm_convolutions, "MAX_PATCH_ELEMENTS", at_once)
    x, weight, bias, padding = made(case)
    theirs = F.conv2d(x, weight, bias, padding=padding)
    with MatmulConvGradients():
        ours = F.conv2d(x, weight, bias, 1, padding)
    assert "_ConvolutionBackward" in type(ours.grad_fn).__name__
    torch.testing.assert_close(ours, theirs)
    dy = torch.randn(ours.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = torch.autograd.grad(theirs, (x, weight, bias), dy)
    for found, wanted in zip(torch.autograd.grad(ours, (x, weight, bias), dy), expected, strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(("images", "times"), [(8, 1), (7, 2)], ids=["kept", "too many to keep"])
def test_patches_of_a_small_batch_are_laid_out_once(images, times, monkeypatch):
    elements = 6 * 6 * 9 * 4  # of one image
    monkeypatch.setattr(arm_convolutions, "MAX_PATCH_ELEMENTS", images * elements)
    taken = []
    patches = arm_convolutions.patches
    monkeypatch.setattr(arm_convolutions, "patches", lambda *t: taken.append(len(t[0])) or patches(*t))
    layer = torch.nn.Conv2d(4, 2, 3, padding=1)
    with MatmulConvGradients():
        layer(torch.randn(8, 4, 6, 6)).sum().backward()
    assert len(taken) == times and sum(taken) == 8


def test_gradients_have_gradients():
    x, weight, bias, _ = made("3x3")
    assert torch.autograd.gradgradcheck(lambda *t: _Convolution.apply(*t, (1, 1)), (x[:2, :, :3, :3], weight, bias))


@pytest.mark.parametrize("memory", [torch.channels_last, torch.contiguous_format])
def test_single_precision_in_either_memory_format(memory):
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(16, 32, 3, padding=1, bias=False).to(memory_format=memory)
    x = torch.randn(8, 16, 8, 8).contiguous(memory_format=memory).requires_grad_()
    wanted = torch.autograd.grad(layer(x).square().sum(), (x, layer.weight))
    with MatmulConvGradients():
        loss = layer(x).square().sum()
    for a, b in zip(torch.autograd.grad(loss, (x, layer.weight)), wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    "layer",
    [
        torch.nn.Conv2d(4, 4, 3, stride=2, padding=1),
        torch.nn.Conv2d(4, 4, 3, dilation=2, padding=2),
        torch.nn.Conv2d(4, 4, 3, groups=2, padding=1),
        torch.nn.Conv2d(4, 4, 3, padding="same"),
        torch.nn.Conv2d(4, 4, 1, padding=1),
        torch.nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"),
    ],
    ids=["stride", "dilation", "groups", "same", "beyond the kernel", "circular"],
)
def test_every_other_convolution_gives_what_it_gives(layer):
    torch.manual_seed(0)
    x = torch.randn(2, 4, 8, 8, requires_grad=True)
    wanted = torch.autograd.grad(layer(x).sin().sum(), (x, *layer.parameters()))
    with MatmulConvGradients():
        loss = layer(x).sin().sum()
    for a, b in zip(torch.autograd.grad(loss, (x, *layer.parameters())), wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_nothing_is_kept_where_no_gradient_is_wanted():
    layer = torch.nn.Conv2d(4, 4, 3)
    with MatmulConvGradients(), torch.no_grad():
        assert layer(torch.randn(2, 4, 8, 8)).grad_fn is None
    layer.requires_grad_(False)
    with MatmulConvGradients():
        assert layer(torch.randn(2, 4, 8, 8)).grad_fn is None


@pytest.mark.parametrize("arm", [True, False])
def test_learners_take_them_on_arm_alone(arm, monkeypatch):
    from sgoif.training.learner import Learner
    from sgoif.training.recipe import Recipe

    taken = []
    apply = _Convolution.apply
    monkeypatch.setattr(arm_convolutions, "IS_ARM", arm)
    monkeypatch.setattr(arm_convolutions._Convolution, "apply", lambda *t: taken.append(1) or apply(*t))
    images = SimpleNamespace(device=torch.device("cpu"), channels=1, size=8)
    recipe = Recipe.from_dict({"model": "small_cnn", "epochs": 1, "batch_size": 8, "lr": 0.1})
    learner = Learner(recipe, 10, images, total_steps=1, seed=0)
    logits = learner(torch.randn(8, 1, 8, 8))
    F.cross_entropy(logits, torch.arange(8)).backward()
    assert len(taken) == (3 if arm else 0)
    assert all(p.grad.isfinite().all() and p.grad.any() for p in learner.net.parameters())


def test_the_next_layer_may_change_the_output_in_place():
    layer = torch.nn.Conv2d(2, 3, 3, padding=1)
    x = torch.randn(2, 2, 5, 5)
    with MatmulConvGradients():
        torch.relu_(layer(x)).sum().backward()
    found = layer.weight.grad.clone()
    layer.zero_grad()
    torch.relu(layer(x)).sum().backward()
    torch.testing.assert_close(found, layer.weight.grad)
