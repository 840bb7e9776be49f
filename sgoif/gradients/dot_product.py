"""The direction scores use, laid out as weights of the layers, so that scores are taken along in the backward pass.

    <phibar, g_i> = sum_l <phibar_l, G_il>,    <phibar_l, G_il> = sum_t <e_it, phibar_l a_it>

is one more forward application of each layer, with phibar_l in the place of its weights, and a dot product with the
output gradient that has just arrived: a third of a training step's arithmetic, in the precision of training. What
stays of a step is one number per example. The weights keep their place in memory, so that a captured CUDA graph goes on
reading the newest direction.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sgoif.gradients.layers import as_weights, dot
from sgoif.gradients.parameter_space import Space


class Aim:
    """`layers`: name -> module, in the order of `space`."""

    def __init__(self, layers: dict[str, nn.Module], space: Space, dtype: torch.dtype) -> None:
        self.layers, self.space, self.dtype = layers, space, dtype
        self.direction: Tensor | None = None
        self.placed: dict[tuple[str, torch.dtype], tuple[Tensor, Tensor | None]] = {}

    def at(self, direction: Tensor) -> None:
        """Score along `direction` `[1, d]` from now on."""
        self.direction = direction
        for name, precision in self.placed:
            self._fill(name, precision)

    def block(self, name: str) -> Tensor:
        """The direction in one layer: `[1, out, in]`."""
        return self.space.split(self.direction)[list(self.layers).index(name)]

    def _fill(self, name: str, precision: torch.dtype) -> None:
        for mine, new in zip(
            self.placed[name, precision], as_weights(self.layers[name], self.block(name)[0]), strict=True
        ):
            if mine is not None:
                mine.copy_(new)

    @torch.no_grad()
    def along(self, name: str, a: Tensor, e: Tensor) -> Tensor:
        """<phibar_l, G_il> `[n]`, from a layer's input and the gradient of its output."""
        module, key = self.layers[name], (name, a.dtype)
        if key not in self.placed:
            bias = None if module.bias is None else torch.empty_like(module.bias, dtype=a.dtype)
            self.placed[key] = torch.empty_like(module.weight, dtype=a.dtype), bias
            self._fill(*key)
        with torch.autocast(a.device.type, enabled=False):
            return dot(module, a, e, *self.placed[key], self.dtype)
