"""Operations of the supported layers, Linear and ungrouped Conv2d, with other weights than their own."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

SupportedLayer = nn.Linear | nn.Conv2d


def with_bias(inputs: Tensor, bias: bool) -> Tensor:
    """Append the constant activation 1 that multiplies the bias."""
    return torch.cat([inputs, inputs.new_ones(*inputs.shape[:-1], 1)], -1) if bias else inputs


def stored_weight(layer: SupportedLayer) -> Tensor:
    """Return the parameter that holds a layer's weights, or the weights themselves if none has their shape.

    Reading `layer.weight` of a parametrised layer computes it, and spectral_norm moves its vectors by that.
    """
    if not parametrize.is_parametrized(layer, "weight"):
        return layer.weight
    if isinstance(layer, nn.Linear):
        shape = torch.Size([layer.out_features, layer.in_features])
    else:
        shape = torch.Size([layer.out_channels, layer.in_channels // layer.groups, *layer.kernel_size])
    held = cast("nn.ModuleDict", layer.parametrizations)["weight"].parameters(recurse=False)
    found = next((p for p in held if p.shape == shape), None)
    return layer.weight if found is None else found


def direction_as_weights(module: SupportedLayer, direction: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return a direction of shape [out, in] as weight and bias of its layer."""
    if module.bias is None:
        return direction.reshape(stored_weight(module).shape), None
    return direction[:, :-1].reshape(stored_weight(module).shape), direction[:, -1]


def padded(conv: nn.Conv2d, images: Tensor) -> Tensor:
    """Pad images as the convolution does."""
    pad, mode = conv._reversed_padding_repeated_twice, conv.padding_mode
    return F.pad(images, pad, mode="constant" if mode == "zeros" else mode) if any(pad) else images


def patches_of(conv: nn.Conv2d, images: Tensor) -> Tensor:
    """Return the inputs of a convolution at each of its positions, shape [n, t, c kh kw].

    F.unfold would launch a kernel per image.
    """
    images = padded(conv, images)
    (n, c, *sizes), (batch, channel, *steps) = images.shape, images.stride()
    positions = [
        (size - d * (k - 1) - 1) // s + 1
        for size, k, d, s in zip(sizes, conv.kernel_size, conv.dilation, conv.stride, strict=True)
    ]
    strides = [step * s for step, s in zip(steps, conv.stride, strict=True)]
    inside = [step * d for step, d in zip(steps, conv.dilation, strict=True)]
    windows = images.as_strided((n, *positions, c, *conv.kernel_size), (batch, *strides, channel, *inside))
    return windows.reshape(n, positions[0] * positions[1], -1)


def layer_dot(
    module: SupportedLayer, a: Tensor, e: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """Return <G_i, V>, shape [n], for V in the form of the layer's weight and bias."""
    if isinstance(module, nn.Linear):
        projected = F.linear(a, weight, bias)
    elif module.padding_mode == "zeros":  # the shapes of the layer's own pass, which cuDNN has tuned already
        projected = F.conv2d(a, weight, bias, module.stride, module.padding, module.dilation)
    else:
        projected = F.conv2d(padded(module, a), weight, bias, module.stride, 0, module.dilation)
    return (projected * e).sum(tuple(range(1, e.dim())), dtype=dtype)
