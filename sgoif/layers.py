"""Per-example gradients of one layer, kept as (input activation, output gradient) and never multiplied out in
`RowBatch`.

For a layer with weight matrix `[out, in]` the gradient of example i is G_i = sum_t e_it a_it', where t runs over the
places the weights are used (one for a plain Linear, tokens for a sequence, pixels for a convolution). Everything the
method needs is

    inner(V)[i, k]    = <G_i, V_k>                 `[n, K]`        from V `[K, out, in]`
    weighted(W)[k]    = sum_i W[i, k] G_i          `[K, out, in]`  from W `[n, K]`
    fold_input(A, m)  : A <- decay A + sum_i m_i sum_t a_it a_it'     `[in, in]`    (Kronecker factor of the input side)
    fold_output(B)    : B <- decay B + sum_i mean_t e_it e_it'    `[out, out]`  (Kronecker factor of the output side)
    square_moment()   = sum_i G_i * G_i            `[out, in]`
    gram()[i, j]      = <G_i, G_j>                 `[n, n]`

`weighted(W, support)` may use only the `support` largest weights of each column: a bucket holds few examples of a
batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def with_bias(inputs: Tensor, bias: bool) -> Tensor:
    """Append the constant activation 1 that multiplies the bias."""
    return F.pad(inputs, (0, 1), value=1.0) if bias else inputs


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
        return (outputs.flatten(1).T @ self.a).view(*outputs.shape[1:], -1)

    def inner(self, directions: Tensor) -> Tensor:
        return torch.linalg.vecdot(self.project(directions), self.e.unsqueeze(1))

    def weighted(self, weights: Tensor, support: int | None = None) -> Tensor:
        return self.outer(weights.unsqueeze(2) * self.e.unsqueeze(1))

    def fold_input(self, factor: Tensor, decay: float, mass: Tensor) -> None:
        factor.addmm_((self.a * mass.unsqueeze(1)).T, self.a, beta=decay)

    def fold_output(self, factor: Tensor, decay: float) -> None:
        factor.addmm_(self.e.T, self.e, beta=decay)

    def square_moment(self) -> Tensor:
        return self.e.square().T @ self.a.square()

    def gram(self) -> Tensor:
        return (self.a @ self.a.T) * (self.e @ self.e.T)

    def scaled(self, scale: Tensor, rows: slice) -> RowBatch:
        """The chosen rows with e_i multiplied by scale_i; rows of scale 0 become exact zeros, whatever they held."""
        factor = scale[rows].unsqueeze(1)
        return RowBatch(*(torch.where(factor != 0, t[rows] * s, 0) for t, s in ((self.a, 1.0), (self.e, factor))))


@dataclass(frozen=True)
class PatchBatch:
    """A layer used at several places: a `[n, t, in]`, e `[n, t, out]` (tokens, or the unfolded patches of a
    convolution)."""

    a: Tensor
    e: Tensor

    def inner(self, directions: Tensor) -> Tensor:
        projected = torch.einsum("nti,koi->nkto", self.a, directions)
        return (projected * self.e.unsqueeze(1)).sum((2, 3))

    def weighted(self, weights: Tensor, support: int | None = None) -> Tensor:
        return torch.einsum("nk,noi->koi", weights, self.per_example())

    def per_example(self) -> Tensor:
        """G_i: `[n, out, in]`; only ever asked for on a few examples."""
        return self.e.transpose(1, 2) @ self.a

    def fold_input(self, factor: Tensor, decay: float, mass: Tensor) -> None:
        flat = self.a.flatten(0, 1)
        factor.addmm_((self.a * mass.view(-1, 1, 1)).flatten(0, 1).T, flat, beta=decay)

    def fold_output(self, factor: Tensor, decay: float) -> None:
        flat = self.e.flatten(0, 1)
        factor.addmm_(flat.T, flat, beta=decay, alpha=1 / self.e.shape[1])

    def square_moment(self) -> Tensor:
        return self.per_example().square().sum(0)

    def gram(self) -> Tensor:
        flat = self.per_example().flatten(1)
        return flat @ flat.T

    def scaled(self, scale: Tensor, rows: slice) -> PatchBatch:
        factor = scale[rows].view(-1, 1, 1)
        return PatchBatch(*(torch.where(factor != 0, t[rows] * s, 0) for t, s in ((self.a, 1.0), (self.e, factor))))


@dataclass(frozen=True)
class ConvBatch:
    """A Conv2d (one group): input image `[n, c, h, w]`, output gradient `[n, out, h', w']`.

    `inner` is one more forward convolution with V as its kernel and `weighted` one more weight gradient, so patches are
    unfolded only for the Kronecker factors, the diagonal and the Gram matrix, and there on few examples.
    """

    a: Tensor
    e: Tensor
    conv: nn.Conv2d
    dtype: torch.dtype

    def inner(self, directions: Tensor) -> Tensor:
        return torch.stack([self._inner(direction) for direction in directions], dim=1)

    def _inner(self, direction: Tensor) -> Tensor:
        conv, kernel, bias = self.conv, direction, None
        if conv.bias is not None:
            kernel, bias = direction[:, :-1], direction[:, -1].to(self.a.dtype)
        kernel = kernel.reshape(conv.weight.shape).to(self.a.dtype)
        projected = F.conv2d(self._padded(), kernel, bias, conv.stride, 0, conv.dilation)
        return (projected * self.e).sum((1, 2, 3), dtype=self.dtype)

    def _padded(self) -> Tensor:
        pad, mode = self.conv._reversed_padding_repeated_twice, self.conv.padding_mode
        return F.pad(self.a, pad, mode="constant" if mode == "zeros" else mode) if any(pad) else self.a

    def weighted(self, weights: Tensor, support: int | None = None) -> Tensor:
        return torch.stack([self._weighted(column, support or len(weights)) for column in weights.T])

    def _weighted(self, weights: Tensor, support: int) -> Tensor:
        conv, rows = self.conv, weights.topk(min(support, len(weights))).indices  # a fixed number: shapes stay the same
        gradient = self.e[rows] * weights[rows].view(-1, 1, 1, 1)
        padded = self._padded()[rows].to(gradient.dtype)
        kernel = nn.grad.conv2d_weight(padded, conv.weight.shape, gradient, conv.stride, 0, conv.dilation).flatten(1)
        if conv.bias is not None:
            kernel = torch.cat([kernel, gradient.sum((0, 2, 3)).unsqueeze(1)], dim=1)
        return kernel.to(self.dtype)

    def patches(self) -> PatchBatch:
        conv = self.conv
        unfolded = F.unfold(self._padded(), conv.kernel_size, conv.dilation, 0, conv.stride).transpose(1, 2)
        inputs = with_bias(unfolded, conv.bias is not None)
        return PatchBatch(inputs.to(self.dtype), self.e.flatten(2).transpose(1, 2).to(self.dtype))

    def fold_input(self, factor: Tensor, decay: float, mass: Tensor) -> None:
        self.patches().fold_input(factor, decay, mass)

    def fold_output(self, factor: Tensor, decay: float) -> None:
        self.patches().fold_output(factor, decay)

    def square_moment(self) -> Tensor:
        return self.patches().square_moment()

    def gram(self) -> Tensor:
        return self.patches().gram()

    def scaled(self, scale: Tensor, rows: slice) -> ConvBatch:
        factor = scale[rows].view(-1, 1, 1, 1)
        a = torch.where(factor != 0, self.a[rows].to(self.dtype), 0)
        return replace(self, a=a, e=torch.where(factor != 0, self.e[rows] * factor, 0))


LayerBatch = RowBatch | PatchBatch | ConvBatch
