"""Convolution gradients as matrix products, for ARM processors, on which PyTorch's are slow.

There the gradients of convolutions take three quarters of a training step. Those of y = W * x with stride 1 are a
convolution and a product:

    dx = flip(W)ᵀ * dy          dW = dyᵀ · patches(x),   patches [n h w, k k c]: the inputs of each output position

which halves the time of a training step (docs/lab-notebook/speed.md). Where the patches of a batch are few, they are
laid out in the forward pass, for y too, and kept. On other processors nothing changes.
(`sgoif.gradients.layer_ops.patches_of` lays out the patches of any convolution, channel by channel; in channels-last
memory that takes two to twenty times as long.)
"""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

IS_ARM = platform.machine() == "aarch64"
MAX_PATCH_ELEMENTS = 1 << 22  # numbers laid out at once: 16 MB


def matmul_conv_gradients() -> contextlib.AbstractContextManager[Any]:
    """Compute gradients of CPU convolutions inside a `with` block as matrix products; a no-op unless on ARM."""
    return MatmulConvGradients() if IS_ARM else contextlib.nullcontext()


class MatmulConvGradients(TorchFunctionMode):
    """Replaces `torch.conv2d` where its gradients can be matrix products."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.conv2d and not kwargs and torch.is_grad_enabled():
            padding = _supported_padding(*args)
            if padding is not None:
                x, weight, bias = (*args, None)[:3]
                return _Convolution.apply(x, weight, bias, padding)  # type: ignore[no-untyped-call]
        return func(*args, **(kwargs or {}))


def _supported_padding(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> tuple[int, int] | None:
    """The padding (rows, columns) of a convolution that can be replaced, or None."""
    if isinstance(padding, str):
        return None
    pair = (padding, padding) if isinstance(padding, int) else tuple(padding)
    on_cpu = x.device.type == "cpu" and x.dtype == weight.dtype and x.dtype.is_floating_point and x.dim() == 4
    has_gradient = x.requires_grad or weight.requires_grad
    simple = groups == 1 and _all_ones(stride) and _all_ones(dilation)
    if not (on_cpu and has_gradient and simple) or len(pair) != 2:
        return None
    fits = all(p < k for p, k in zip(pair, weight.shape[2:], strict=True))
    return (pair[0], pair[1]) if fits else None


def _all_ones(value: int | Sequence[int]) -> bool:
    return value == 1 if isinstance(value, int) else tuple(value) == (1, 1)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, padding: tuple[int, int]) -> Tensor:
        ctx.padding = padding
        kernel, output = weight.shape[2:], _output_size(x, weight, padding)
        if not weight.requires_grad or _images_at_once(weight.shape, output) < len(x):
            ctx.save_for_backward(x, weight)
            return torch.conv2d(x, weight, bias, padding=padding)
        laid_out = patches(x, kernel, padding, output)
        ctx.save_for_backward(x, weight, laid_out)
        y = torch.empty((len(x), len(weight), *output), dtype=x.dtype, memory_format=torch.channels_last)
        rows = y.permute(0, 2, 3, 1).view(-1, len(weight))  # y itself is no view: the next layer may change it in place
        torch.mm(laid_out, weight.permute(0, 2, 3, 1).flatten(1).T, out=rows)
        if bias is not None:
            rows += bias
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x, weight, *kept = ctx.saved_tensors
        dx = dw = db = None
        if ctx.needs_input_grad[0]:
            flipped = weight.flip(2, 3).transpose(0, 1).contiguous(memory_format=torch.channels_last)
            padding = [k - 1 - p for k, p in zip(weight.shape[2:], ctx.padding, strict=True)]
            dx = torch.conv2d(dy, flipped, padding=padding)
        if ctx.needs_input_grad[1]:
            # where gradients of gradients are wanted, they reach x through patches that are laid out here
            laid_out = kept[0] if kept and not torch.is_grad_enabled() else None
            dw = _weight_gradient(x, dy, weight.shape, ctx.padding, laid_out)
        if ctx.needs_input_grad[2]:
            db = dy.sum((0, 2, 3))
        return dx, dw, db, None


def _output_size(x: Tensor, weight: Tensor, padding: tuple[int, int]) -> tuple[int, int]:
    """Height and width of the convolution's output."""
    height, width = (n + 2 * p - k + 1 for n, p, k in zip(x.shape[2:], padding, weight.shape[2:], strict=True))
    return height, width


def _images_at_once(shape: torch.Size, output: tuple[int, int]) -> int:
    """How many images' patches are laid out together, for a weight of `shape` [c_out, c_in, k, k]."""
    return max(MAX_PATCH_ELEMENTS // (output[0] * output[1] * shape[1:].numel()), 1)


def _weight_gradient(
    x: Tensor, dy: Tensor, shape: torch.Size, padding: tuple[int, int], laid_out: Tensor | None = None
) -> Tensor:
    """Sum over examples and positions of dy times patch, shape [c_out, c_in, k, k]; `laid_out` are all patches."""
    c_out, c_in, *kernel = shape
    height, width = dy.shape[2:]
    chunk = len(x) if laid_out is not None else _images_at_once(shape, (height, width))
    total: Tensor | None = None
    image_chunks, gradient_chunks = x.split(chunk), dy.split(chunk)
    for images, gradients in zip(image_chunks, gradient_chunks, strict=True):
        rows = gradients.permute(0, 2, 3, 1).reshape(-1, c_out)
        inputs = patches(images, kernel, padding, (height, width)) if laid_out is None else laid_out
        part: Tensor = rows.T @ inputs
        total = part if total is None else total + part
    assert total is not None  # a batch has at least one chunk
    return total.view(c_out, *kernel, c_in).permute(0, 3, 1, 2)


def patches(x: Tensor, kernel: Sequence[int], padding: tuple[int, int], output: tuple[int, int]) -> Tensor:
    """Lay out the inputs of each output position of a convolution with stride 1.

    Args:
        x: Input of the convolution, shape [n, c, H, W].
        kernel: Height and width of the kernel.
        padding: Rows and columns of zeros on each side.
        output: Height h and width w of the convolution's output.

    Returns:
        The patches, shape [n * h * w, k * k * c].
    """
    rows, columns = padding
    height, width = output
    x = torch.nn.functional.pad(x.permute(0, 2, 3, 1), (0, 0, columns, columns, rows, rows))
    across = x.unfold(2, kernel[1], 1).transpose(3, 4).flatten(3)  # [n, rows, width, k · c]
    # one row of the kernel at a time: a single long copy of overlapping positions is several times slower
    kernel_rows = [across[:, i : i + height, :width] for i in range(kernel[0])]
    return torch.stack(kernel_rows, 3).reshape(len(x) * height * width, -1)
