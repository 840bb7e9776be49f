"""Computes per-example dot products with the scoring direction during the backward pass.

    <phibar, g_i> = sum_l <phibar_l, G_il>,    <phibar_l, G_il> = sum_t <e_it, phibar_l a_it>

Each term is one more forward application of layer l, with phibar_l as its weights, multiplied with the output gradient
that has just arrived. That costs a third of a training step's arithmetic, in the precision of training, and leaves one
number per example. The weights keep their place in memory, so a captured CUDA graph reads the newest direction.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sgoif.gradients.layer_ops import SupportedLayer, direction_as_weights, layer_dot, stored_weight
from sgoif.gradients.parameter_space import ParameterSpace


class GradientDotProduct:
    """Holds the scoring direction in the form of layer weights.

    Args:
        layers: Modules by name, in the order of `space`.
        space: Layout of the direction.
        dtype: Type of the resulting dot products.
    """

    def __init__(self, layers: dict[str, SupportedLayer], space: ParameterSpace, dtype: torch.dtype) -> None:
        self.layers = layers
        self.space = space
        self.dtype = dtype
        self._direction: Tensor | None = None
        self._weights: dict[tuple[str, torch.dtype], tuple[Tensor, Tensor | None]] = {}

    def set_direction(self, direction: Tensor) -> None:
        """Use `direction`, shape [1, d], from now on."""
        self._direction = direction
        for name, precision in self._weights:
            self._copy_weights(name, precision)

    def layer_block(self, name: str) -> Tensor:
        """Return the direction of one layer, shape [1, out, in]."""
        assert self._direction is not None, "set_direction() comes first"
        return self.space.split(self._direction)[list(self.layers).index(name)]

    def _copy_weights(self, name: str, precision: torch.dtype) -> None:
        new = direction_as_weights(self.layers[name], self.layer_block(name)[0])
        for held, value in zip(self._weights[name, precision], new, strict=True):
            if held is not None and value is not None:
                held.copy_(value)

    @torch.no_grad()
    def project(self, name: str, a: Tensor, e: Tensor) -> Tensor:
        """Return <phibar_l, G_il>, shape [n], from a layer's input `a` and the gradient `e` of its output."""
        module, key = self.layers[name], (name, a.dtype)
        if key not in self._weights:
            bias = None if module.bias is None else torch.empty_like(module.bias, dtype=a.dtype)
            self._weights[key] = torch.empty_like(stored_weight(module), dtype=a.dtype), bias
            self._copy_weights(*key)
        with torch.autocast(a.device.type, enabled=False):
            return layer_dot(module, a, e, *self._weights[key], self.dtype)
