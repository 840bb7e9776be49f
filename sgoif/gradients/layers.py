"""Per-example gradients of one layer, kept as (input activation a, output gradient e).

For a layer with a weight matrix of shape [out, in] the gradient of example i is G_i = sum_t e_it a_it', where t runs
over the positions at which the weights are used (one for a plain Linear, tokens of a sequence, pixels of a
convolution). The method needs

    dot(V)[i, k]               = <G_i, V_k>             [n, K]        from V [K, out, in]
    weighted_sum(W)[k]         = sum_i W[i, k] G_i      [K, out, in]  from W [n, K]
    group_sums(b, w)[k]        = sum_{b_i = k} w_i G_i  [K, out, in]  from groups b [n], weights w [n]
    add_to_input_factor(A, m)  : A <- decay A + sum_i m_i sum_t a_it a_it'    [in, in]    (Kronecker, input side)
    add_to_output_factor(B)    : B <- decay B + sum_i sum_t e_it e_it'        [out, out]  (Kronecker, output side)
    sum_of_squares()           = sum_i G_i * G_i        [out, in]
    gram()[i, j]               = <G_i, G_j>             [n, n]

`SequenceGradients` and `Conv2dGradients` support only `dot`; `scaled()` turns them into `DenseGradients`, which
support the rest. Only the few examples of `DenseGradients` are ever multiplied out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd

import torch
from torch import Tensor, nn

from sgoif.gradients.layer_ops import direction_as_weights, layer_dot, patches_of, with_bias

MAX_WEIGHTED_ENTRIES = 2**24  # entries of [n, K, out] in memory; 100 classes and as many anchors would need 2^27
MAX_MEMBERSHIP_ENTRIES = 2**21  # of [n, K, out]; sorting into blocks takes more launches than a product of this size
MAX_GROUP_BLOCK_ROWS = 64  # examples of one group that are multiplied together
MAX_FACTOR_ROWS = 1024  # positions of a batch that enter the Kronecker factor of a layer's inputs


def cast_factors(a: Tensor, e: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cast both factors to bfloat16 if the layer computed in it, else to `dtype`.

    Under autocast a layer's input may still have another precision than its output.
    """
    precision = e.dtype if e.dtype == torch.bfloat16 else dtype
    return a.to(precision), e.to(precision)


def group_blocks(groups: Tensor, count: int) -> tuple[Tensor, Tensor, int]:
    """Lay out grouped examples in blocks of one size, each of which holds examples of one group only.

    There are as many blocks as any n examples may need, so that the host need not read the sizes of the groups;
    unused rows stay empty.

    Args:
        groups: Group of each example, shape [n].
        count: Number of groups.

    Returns:
        The row of each example, shape [n], the group of each block, shape [blocks], and the rows of a block.
    """
    size = max(1, min(MAX_GROUP_BLOCK_ROWS, len(groups) // count))
    blocks = len(groups) // size + count
    sizes = torch.zeros(count, dtype=torch.long, device=groups.device)
    sizes.index_add_(0, groups, torch.ones_like(groups))
    order = groups.argsort()
    before = sizes.cumsum(0) - sizes  # examples of earlier groups
    used = -(-sizes // size)  # blocks of each group
    ends = used.cumsum(0)
    rank = torch.empty_like(groups)
    rank[order] = torch.arange(len(groups), device=groups.device)
    row = (rank - before[groups]) + (ends - used)[groups] * size
    block_group = torch.searchsorted(ends, torch.arange(blocks, device=groups.device), right=True)
    return row, block_group.clamp(max=count - 1), size


@dataclass(frozen=True)
class LinearGradients:
    """Gradients of a Linear layer used once per example, G_i = e_i a_i' of rank one.

    Attributes:
        a: Inputs, shape [n, in].
        e: Output gradients, shape [n, out].
    """

    a: Tensor
    e: Tensor

    def project(self, directions: Tensor) -> Tensor:
        """Return V_k a_i, shape [n, K, out], for directions of shape [K, out, in]."""
        count, out, _ = directions.shape
        return (self.a @ directions.reshape(count * out, -1).T).view(-1, count, out)

    def outer(self, outputs: Tensor) -> Tensor:
        """Return sum_i u_ik a_i', shape [K, out, in], for outputs u of shape [n, K, out]."""
        return torch.unflatten(outputs.flatten(1).T @ self.a, 0, outputs.shape[1:])

    def dot(self, directions: Tensor) -> Tensor:
        return (self.project(directions) @ self.e.unsqueeze(2)).squeeze(2)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        count, out = weights.shape[1], self.e.shape[1]
        rows = max(1, MAX_WEIGHTED_ENTRIES // (count * out))
        if len(self.e) <= rows:
            return torch.unflatten(_outer_rows(weights, self.e).T @ self.a, 0, (count, out))
        total = self.a.new_zeros(count * out, self.a.shape[1])
        parts = (torch.split(tensor, rows) for tensor in (weights, self.e, self.a))
        for w, e, a in zip(*parts, strict=True):
            total.addmm_(_outer_rows(w, e).T, a)
        return torch.unflatten(total, 0, (count, out))

    def group_sums(self, groups: Tensor, weights: Tensor, count: int) -> Tensor:
        if len(groups) * count * self.e.shape[1] <= MAX_MEMBERSHIP_ENTRIES:
            n, out = self.e.shape
            place = torch.arange(n, device=groups.device) * count + groups
            members = _scatter_rows(self.e * weights.unsqueeze(1), place, n * count)
            return torch.unflatten(members.view(n, count * out).T @ self.a, 0, (count, out))
        row, block_group, size = group_blocks(groups, count)
        left, right = (
            torch.unflatten(_scatter_rows(rows, row, len(block_group) * size), 0, (-1, size))
            for rows in (self.e * weights.unsqueeze(1), self.a)
        )
        total = self.a.new_zeros(count, left.shape[2], right.shape[2])
        blocks = max(1, MAX_WEIGHTED_ENTRIES // total[0].numel())
        parts = (torch.split(tensor, blocks) for tensor in (left, right, block_group))
        for e, a, group in zip(*parts, strict=True):
            total.index_add_(0, group, e.mT @ a)
        return total

    def add_to_input_factor(self, factor: Tensor, decay: float, mass: Tensor) -> None:
        factor.addmm_((self.a * mass.unsqueeze(1)).T, self.a, beta=decay)

    def add_to_output_factor(self, factor: Tensor, decay: float) -> None:
        factor.addmm_(self.e.T, self.e, beta=decay)

    def sum_of_squares(self) -> Tensor:
        return self.e.square().T @ self.a.square()

    def gram(self) -> Tensor:
        return (self.a @ self.a.T) * (self.e @ self.e.T)

    def scaled(self, scale: Tensor) -> LinearGradients:
        return LinearGradients(*scale_and_mask(self.a, self.e, scale))


@dataclass(frozen=True)
class DenseGradients:
    """Gradients of a few examples of a layer used at several positions, multiplied out to shape [n, out, in].

    With K directions this costs n + n K / t passes through the layer instead of n K, and a check multiplies dozens of
    directions. All products keep the precision of the gradients.

    Attributes:
        a: Inputs, shape [n, t, in].
        e: Output gradients with their scales multiplied in, shape [n, t, out].
        dtype: Type of the results.
    """

    a: Tensor
    e: Tensor
    dtype: torch.dtype

    @cached_property
    def gradients(self) -> Tensor:
        return self.e.transpose(1, 2) @ self.a

    def dot(self, directions: Tensor) -> Tensor:
        """Sum one small product per output; a single product over all of [out, in] would leave a GPU idle."""
        by_output = self.gradients.transpose(0, 1) @ directions.to(self.a.dtype).permute(1, 2, 0)
        return by_output.sum(0, dtype=self.dtype)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        total = weights.T.to(self.a.dtype) @ self.gradients.flatten(1)
        return torch.unflatten(total.to(self.dtype), 1, self.gradients.shape[1:])

    def group_sums(self, groups: Tensor, weights: Tensor, count: int) -> Tensor:
        member = groups.unsqueeze(1) == torch.arange(count, device=groups.device)
        return self.weighted_sum(member * weights.unsqueeze(1))

    def add_to_input_factor(self, factor: Tensor, decay: float, mass: Tensor) -> None:
        """Add at most `MAX_FACTOR_ROWS` evenly spread positions, weighted to stand for all of them.

        The stride shares no divisor with t, so that it reaches every position of an image.
        """
        examples, positions, _ = self.a.shape
        stride = max(1, examples * positions // MAX_FACTOR_ROWS)
        while gcd(stride, positions) > 1:
            stride += 1
        rows = self.a.flatten(0, 1)[::stride].to(self.dtype)
        example = torch.arange(0, examples * positions, stride, device=rows.device) // positions
        weight = examples * positions / len(rows)
        factor.addmm_((rows * mass[example].unsqueeze(1)).T, rows, beta=decay, alpha=weight)

    def add_to_output_factor(self, factor: Tensor, decay: float) -> None:
        """Add the sum over positions, not their mean.

        With the mean, A (x) B is the second moment of the gradient if its parts at different positions are
        independent. They are not: parts that agree add up to as much as t times that, and P would be that much too
        small in just the directions that matter (docs/fidelity.md has what it costs).
        """
        flat = self.e.flatten(0, 1).to(self.dtype)
        factor.addmm_(flat.T, flat, beta=decay)

    def sum_of_squares(self) -> Tensor:
        return self.gradients.to(self.dtype).square().sum(0)

    def gram(self) -> Tensor:
        by_output = self.gradients.transpose(0, 1)
        return (by_output @ by_output.transpose(1, 2)).sum(0, dtype=self.dtype)


def _outer_rows(w: Tensor, e: Tensor) -> Tensor:
    """Return the products w_ik e_io of each example, shape [n, K out]."""
    return (w.unsqueeze(2) * e.unsqueeze(1)).flatten(1)


def _scatter_rows(rows: Tensor, positions: Tensor, count: int) -> Tensor:
    """Return a matrix of `count` rows with `rows` at their positions and zeros elsewhere."""
    return rows.new_zeros(count, rows.shape[1]).index_copy_(0, positions, rows)


def scale_and_mask(a: Tensor, e: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Multiply e_i by scale_i; examples of scale 0 become exact zeros, even if they are not finite."""
    factor = scale.view(-1, *[1] * (a.dim() - 1))
    return torch.where(factor != 0, a, 0), torch.where(factor != 0, e * factor, 0).to(e.dtype)


@dataclass(frozen=True)
class SequenceGradients:
    """Gradients of a Linear layer used at several positions.

    Attributes:
        a: Inputs, shape [n, t, in].
        e: Output gradients, shape [n, t, out].
        dtype: Type of the results.
    """

    a: Tensor
    e: Tensor
    dtype: torch.dtype

    def dot(self, directions: Tensor) -> Tensor:
        projected = torch.einsum("nti,koi->nkto", self.a, directions.to(self.a.dtype))
        return (projected * self.e.unsqueeze(1)).sum((2, 3), dtype=self.dtype)

    def scaled(self, scale: Tensor) -> DenseGradients:
        return DenseGradients(*scale_and_mask(self.a, self.e, scale), self.dtype)


@dataclass(frozen=True)
class Conv2dGradients:
    """Gradients of an ungrouped Conv2d; `dot` is one more forward convolution with V as its kernel.

    Attributes:
        a: Input images, shape [n, c, h, w].
        e: Output gradients, shape [n, out, h', w'].
        conv: The layer.
        dtype: Type of the results.
    """

    a: Tensor
    e: Tensor
    conv: nn.Conv2d
    dtype: torch.dtype

    def dot(self, directions: Tensor) -> Tensor:
        return torch.stack([self._dot(direction) for direction in directions], dim=1)

    def _dot(self, direction: Tensor) -> Tensor:
        kernel, bias = direction_as_weights(self.conv, direction)
        return layer_dot(
            self.conv,
            self.a,
            self.e,
            kernel.to(self.a.dtype),
            None if bias is None else bias.to(self.a.dtype),
            self.dtype,
        )

    def scaled(self, scale: Tensor) -> DenseGradients:
        a, e = scale_and_mask(self.a, self.e, scale)
        patches = with_bias(patches_of(self.conv, a), self.conv.bias is not None)
        return DenseGradients(patches, e.permute(0, 2, 3, 1).flatten(1, 2), self.dtype)


LayerGradients = LinearGradients | SequenceGradients | Conv2dGradients | DenseGradients
