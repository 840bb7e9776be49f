"""Per-example gradients of one layer, kept as (input activation, output gradient). Only the few examples of a
`SampleBatch` are ever multiplied out.

For a layer with weight matrix `[out, in]` the gradient of example i is G_i = sum_t e_it a_it', where t runs over the
places the weights are used (one for a plain Linear, tokens for a sequence, pixels for a convolution). Everything the
method needs is

    inner(V)[i, k]    = <G_i, V_k>                 `[n, K]`        from V `[K, out, in]`
    weighted(W)[k]    = sum_i W[i, k] G_i          `[K, out, in]`  from W `[n, K]`
    grouped(b, w)[k]  = sum_{b_i = k} w_i G_i      `[K, out, in]`  from groups b `[n]`, weights w `[n]`
    fold_input(A, m)  : A <- decay A + sum_i m_i sum_t a_it a_it'     `[in, in]`    (Kronecker factor of the input side)
    fold_output(B)    : B <- decay B + sum_i mean_t e_it e_it'    `[out, out]`  (Kronecker factor of the output side)
    square_moment()   = sum_i G_i * G_i            `[out, in]`
    gram()[i, j]      = <G_i, G_j>                 `[n, n]`

`TokenBatch` and `ConvBatch` are raw: they know `inner`, and `scaled` makes of them the `SampleBatch` that knows the
rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd

import torch
import torch.nn.functional as F
from torch import Tensor, nn

AT_ONCE = 2**24  # weighted output gradients in memory: [n, K, out] has 2^27 with a hundred classes and as many anchors
GROUP_ROWS = 64  # examples of one group that are multiplied at once, at most
FACTOR_ROWS = 1024  # places of a batch that enter the Kronecker factor of a layer's inputs


def in_precision(a: Tensor, e: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Both factors in the precision the layer computed in where that has a float32's range, else in `dtype`. (Under
    autocast a layer's input may still be of another precision.)"""
    precision = e.dtype if e.dtype == torch.bfloat16 else dtype
    return a.to(precision), e.to(precision)


def with_bias(inputs: Tensor, bias: bool) -> Tensor:
    """Append the constant activation 1 that multiplies the bias."""
    return F.pad(inputs, (0, 1), value=1.0) if bias else inputs


def in_blocks(groups: Tensor, count: int) -> tuple[Tensor, Tensor, int]:
    """Examples in `count` groups `[n]`, side by side in blocks of one size that hold one group each: the place of each
    example `[n]`, the group of each block, and the size.

    There are as many blocks as any n examples may need, so that the device is not asked how large a group is; the
    places left over, n at most, or one per group, are empty.
    """
    size = max(1, min(GROUP_ROWS, len(groups) // count))
    blocks = len(groups) // size + count
    sizes = torch.zeros(count, dtype=torch.long, device=groups.device)
    sizes.index_add_(0, groups, torch.ones_like(groups))
    order = groups.argsort()
    before = sizes.cumsum(0) - sizes  # examples of earlier groups
    used = -(-sizes // size)
    ends = used.cumsum(0)
    rank = torch.empty_like(groups)
    rank[order] = torch.arange(len(groups), device=groups.device)
    place = (rank - before[groups]) + (ends - used)[groups] * size
    owner = torch.searchsorted(ends, torch.arange(blocks, device=groups.device), right=True)
    return place, owner.clamp(max=count - 1), size


@dataclass(frozen=True)
class RowBatch:
    """A Linear layer used once per example: a `[n, in]`, e `[n, out]`; G_i = e_i a_i' has rank one."""

    a: Tensor
    e: Tensor

    def project(self, directions: Tensor) -> Tensor:
        """V_k a_i: `[n, K, out]`."""
        count, out, _ = directions.shape
        return (self.a @ directions.reshape(count * out, -1).T).view(-1, count, out)

    def outer(self, outputs: Tensor) -> Tensor:
        """sum_i u_ik a_i' for u `[n, K, out]`: `[K, out, in]`."""
        return (outputs.flatten(1).T @ self.a).unflatten(0, outputs.shape[1:])

    def inner(self, directions: Tensor) -> Tensor:
        return (self.project(directions) @ self.e.unsqueeze(2)).squeeze(2)

    def weighted(self, weights: Tensor) -> Tensor:
        count, out = weights.shape[1], self.e.shape[1]
        total = self.a.new_zeros(count * out, self.a.shape[1])
        rows = max(1, AT_ONCE // (count * out))
        for w, e, a in zip(weights.split(rows), self.e.split(rows), self.a.split(rows), strict=True):
            total.addmm_((w.unsqueeze(2) * e.unsqueeze(1)).flatten(1).T, a)
        return total.unflatten(0, (count, out))

    def grouped(self, groups: Tensor, weights: Tensor, count: int) -> Tensor:
        place, owner, size = in_blocks(groups, count)
        left, right = (
            rows.new_zeros(len(owner) * size, rows.shape[1]).index_copy_(0, place, rows).unflatten(0, (-1, size))
            for rows in (self.e * weights.unsqueeze(1), self.a)
        )
        total = self.a.new_zeros(count, left.shape[2], right.shape[2])
        at_once = max(1, AT_ONCE // total[0].numel())
        for e, a, whose in zip(left.split(at_once), right.split(at_once), owner.split(at_once), strict=True):
            total.index_add_(0, whose, e.mT @ a)
        return total

    def fold_input(self, factor: Tensor, decay: float, mass: Tensor) -> None:
        factor.addmm_((self.a * mass.unsqueeze(1)).T, self.a, beta=decay)

    def fold_output(self, factor: Tensor, decay: float) -> None:
        factor.addmm_(self.e.T, self.e, beta=decay)

    def square_moment(self) -> Tensor:
        return self.e.square().T @ self.a.square()

    def gram(self) -> Tensor:
        return (self.a @ self.a.T) * (self.e @ self.e.T)

    def scaled(self, scale: Tensor) -> RowBatch:
        return RowBatch(*cleaned(self.a, self.e, scale))


@dataclass(frozen=True)
class SampleBatch:
    """A few examples of a layer used at several places: a `[n, t, in]`, e `[n, t, out]`, scales multiplied in.

    Their gradients G `[n, out, in]` are multiplied out once. With K directions that costs n + n K / t passes through
    the layer in the place of n K, and a check asks for dozens of directions. All products with G keep its precision.
    """

    a: Tensor
    e: Tensor
    dtype: torch.dtype

    @cached_property
    def gradients(self) -> Tensor:
        return self.e.transpose(1, 2) @ self.a

    def inner(self, directions: Tensor) -> Tensor:
        """One small product per output, added up: a single one over all of `[out, in]` would leave a GPU idle."""
        by_output = self.gradients.transpose(0, 1) @ directions.to(self.a.dtype).permute(1, 2, 0)
        return by_output.sum(0, dtype=self.dtype)

    def weighted(self, weights: Tensor) -> Tensor:
        total = weights.T.to(self.a.dtype) @ self.gradients.flatten(1)
        return total.to(self.dtype).unflatten(1, self.gradients.shape[1:])

    def grouped(self, groups: Tensor, weights: Tensor, count: int) -> Tensor:
        return self.weighted((groups.unsqueeze(1) == torch.arange(count, device=groups.device)) * weights.unsqueeze(1))

    def fold_input(self, factor: Tensor, decay: float, mass: Tensor) -> None:
        """From at most `FACTOR_ROWS` places, evenly spread and counted for all: the stride shares no divisor with t,
        so that it falls on every place of an image in turn."""
        examples, places, _ = self.a.shape
        stride = max(1, examples * places // FACTOR_ROWS)
        while gcd(stride, places) > 1:
            stride += 1
        rows = self.a.flatten(0, 1)[::stride].to(self.dtype)
        owner = torch.arange(0, examples * places, stride, device=rows.device) // places
        share = examples * places / len(rows)
        factor.addmm_((rows * mass[owner].unsqueeze(1)).T, rows, beta=decay, alpha=share)

    def fold_output(self, factor: Tensor, decay: float) -> None:
        flat = self.e.flatten(0, 1).to(self.dtype)
        factor.addmm_(flat.T, flat, beta=decay, alpha=1 / self.e.shape[1])

    def square_moment(self) -> Tensor:
        return self.gradients.to(self.dtype).square().sum(0)

    def gram(self) -> Tensor:
        by_output = self.gradients.transpose(0, 1)
        return (by_output @ by_output.transpose(1, 2)).sum(0, dtype=self.dtype)


def cleaned(a: Tensor, e: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Both factors with e_i multiplied by scale_i; examples of scale 0 become exact zeros, whatever they held."""
    factor = scale.view(-1, *[1] * (a.dim() - 1))
    return torch.where(factor != 0, a, 0), torch.where(factor != 0, e * factor, 0).to(e.dtype)


@dataclass(frozen=True)
class TokenBatch:
    """A Linear layer used at several places: a `[n, t, in]`, e `[n, t, out]`."""

    a: Tensor
    e: Tensor
    dtype: torch.dtype

    def inner(self, directions: Tensor) -> Tensor:
        projected = torch.einsum("nti,koi->nkto", self.a, directions.to(self.a.dtype))
        return (projected * self.e.unsqueeze(1)).sum((2, 3), dtype=self.dtype)

    def scaled(self, scale: Tensor) -> SampleBatch:
        return SampleBatch(*cleaned(self.a, self.e, scale), self.dtype)


@dataclass(frozen=True)
class ConvBatch:
    """A Conv2d (one group): input image `[n, c, h, w]`, output gradient `[n, out, h', w']`. `inner` is one more
    forward convolution with V as its kernel."""

    a: Tensor
    e: Tensor
    conv: nn.Conv2d
    dtype: torch.dtype

    def inner(self, directions: Tensor) -> Tensor:
        return torch.stack([self._inner(direction) for direction in directions], dim=1)

    def _inner(self, direction: Tensor) -> Tensor:
        kernel, bias = as_weights(self.conv, direction)
        return dot(
            self.conv,
            self.a,
            self.e,
            kernel.to(self.a.dtype),
            None if bias is None else bias.to(self.a.dtype),
            self.dtype,
        )

    def scaled(self, scale: Tensor) -> SampleBatch:
        a, e = cleaned(self.a, self.e, scale)
        patches = with_bias(patches_of(self.conv, a), self.conv.bias is not None)
        return SampleBatch(patches, e.permute(0, 2, 3, 1).flatten(1, 2), self.dtype)


def as_weights(module: nn.Module, direction: Tensor) -> tuple[Tensor, Tensor | None]:
    """A direction `[out, in]` as weight and bias of its layer."""
    if module.bias is None:
        return direction.reshape(module.weight.shape), None
    return direction[:, :-1].reshape(module.weight.shape), direction[:, -1]


def padded(conv: nn.Conv2d, images: Tensor) -> Tensor:
    pad, mode = conv._reversed_padding_repeated_twice, conv.padding_mode
    return F.pad(images, pad, mode="constant" if mode == "zeros" else mode) if any(pad) else images


def patches_of(conv: nn.Conv2d, images: Tensor) -> Tensor:
    """The inputs of a convolution at each of its places: `[n, t, c kh kw]`. (F.unfold launches a kernel per image.)"""
    images = padded(conv, images)
    (n, c, *sizes), (batch, channel, *steps) = images.shape, images.stride()
    places = [
        (size - d * (k - 1) - 1) // s + 1
        for size, k, d, s in zip(sizes, conv.kernel_size, conv.dilation, conv.stride, strict=True)
    ]
    strides = [step * s for step, s in zip(steps, conv.stride, strict=True)]
    inside = [step * d for step, d in zip(steps, conv.dilation, strict=True)]
    windows = images.as_strided((n, *places, c, *conv.kernel_size), (batch, *strides, channel, *inside))
    return windows.reshape(n, places[0] * places[1], -1)


def dot(module: nn.Module, a: Tensor, e: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """<G_i, V> `[n]` for V given as the layer's weight and bias: V applied to inputs, times output gradients."""
    if isinstance(module, nn.Linear):
        projected = F.linear(a, weight, bias)
    elif module.padding_mode == "zeros":  # the very shapes of the layer's own pass: cuDNN has nothing new to tune
        projected = F.conv2d(a, weight, bias, module.stride, module.padding, module.dilation)
    else:
        projected = F.conv2d(padded(module, a), weight, bias, module.stride, 0, module.dilation)
    return (projected * e).sum(tuple(range(1, e.dim())), dtype=dtype)


LayerBatch = RowBatch | TokenBatch | ConvBatch | SampleBatch
