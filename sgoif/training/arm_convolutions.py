"""Convolutions whose gradients are ordinary products, for processors on which PyTorch's are slow.

On ARM they take three quarters of a training step. Those of y = W * x with stride 1 are a convolution and a product:

    dx = flip(W)ᵀ * dy          dW = dyᵀ · patches(x),   patches [n h w, k k c]: what each output saw

which halves the time of a training step there (docs/faq.md). Elsewhere nothing changes.
(`sgoif.gradients.layers.patches_of` lays out the patches of any convolution, channel by channel; in channels-last
memory that takes two to twenty times as long.)
"""

import contextlib
import platform

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

ARM = platform.machine() == "aarch64"
PATCHES = 1 << 22  # numbers laid out at once: 16 MB


def by_products() -> contextlib.AbstractContextManager:
    """Convolutions of CPU tensors inside get such gradients; on other processors than ARM, nothing."""
    return ByProducts() if ARM else contextlib.nullcontext()


class ByProducts(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.conv2d and not kwargs and torch.is_grad_enabled():
            padding = _padding(*args)
            if padding is not None:
                x, weight, bias = (*args, None)[:3]
                return _Convolution.apply(x, weight, bias, padding)
        return func(*args, **(kwargs or {}))


def _padding(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1) -> tuple[int, int] | None:
    """The padding of a convolution that is done here, or None."""
    pair = (padding, padding) if isinstance(padding, int) else padding
    plain = x.device.type == "cpu" and x.dtype == weight.dtype and x.dtype.is_floating_point and x.dim() == 4
    wanted = x.requires_grad or weight.requires_grad
    simple = groups == 1 and _ones(stride) and _ones(dilation) and not isinstance(pair, str)
    if not (plain and wanted and simple) or len(pair) != 2:
        return None
    return tuple(pair) if all(p < k for p, k in zip(pair, weight.shape[2:], strict=True)) else None


def _ones(value) -> bool:
    return value == 1 or tuple(value) == (1, 1)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, padding):
        ctx.save_for_backward(x, weight)
        ctx.padding = padding
        return torch.conv2d(x, weight, bias, padding=padding)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dx = dw = db = None
        if ctx.needs_input_grad[0]:
            turned = weight.flip(2, 3).transpose(0, 1).contiguous(memory_format=torch.channels_last)
            rest = [k - 1 - p for k, p in zip(weight.shape[2:], ctx.padding, strict=True)]
            dx = torch.conv2d(dy, turned, padding=rest)
        if ctx.needs_input_grad[1]:
            dw = _weight_gradient(x, dy, weight.shape, ctx.padding)
        if ctx.needs_input_grad[2]:
            db = dy.sum((0, 2, 3))
        return dx, dw, db, None


def _weight_gradient(x: Tensor, dy: Tensor, shape: torch.Size, padding: tuple[int, int]) -> Tensor:
    """Σ over examples and places of dy · what was seen there, [c_out, c_in, k, k]."""
    c_out, c_in, *kernel = shape
    high, wide = dy.shape[2:]
    entries = high * wide * kernel[0] * kernel[1] * c_in
    total = None
    for some, grads in zip(*(t.split(max(PATCHES // entries, 1)) for t in (x, dy)), strict=True):
        rows = grads.permute(0, 2, 3, 1).reshape(-1, c_out)
        part = rows.T @ patches(some, kernel, padding, (high, wide))
        total = part if total is None else total + part
    return total.view(c_out, *kernel, c_in).permute(0, 3, 1, 2)


def patches(x: Tensor, kernel, padding: tuple[int, int], places: tuple[int, int]) -> Tensor:
    """[n · places, k · k · c]: what each place of a convolution with stride 1 sees."""
    (up, side), (high, wide) = padding, places
    x = torch.nn.functional.pad(x.permute(0, 2, 3, 1), (0, 0, side, side, up, up))
    across = x.unfold(2, kernel[1], 1).transpose(3, 4).flatten(3)  # [n, rows, wide, k · c]
    # a row of the kernel at a time: one long copy of overlapping places is several times slower
    return torch.stack([across[:, i : i + high, :wide] for i in range(kernel[0])], 3).reshape(len(x) * high * wide, -1)
