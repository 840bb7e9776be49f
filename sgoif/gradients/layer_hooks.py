"""Records the gradients of several layers, for the scopes "blocks" and "all".

Backward hooks see the output gradient of each layer in scope, in the same backward pass that trains, and compute the
score at once (see `dot_product`). That pass carries the user's own loss, so each example's output gradients are
multiplied by

    ||p_T - onehot(y)|| / ||gradient that reached the head's output||.

Mean or sum reduction, loss scaling and accumulation cancel. For T = 1 and plain cross-entropy the result is exactly
the per-example gradient.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgoif.config import InfluenceConfig
from sgoif.errors import CaptureError
from sgoif.gradients.dot_product import GradientDotProduct
from sgoif.gradients.factored_batch import FactoredBatch
from sgoif.gradients.hooks import CapturedPass, GradientHooks, input_of
from sgoif.gradients.layer_ops import SupportedLayer, with_bias
from sgoif.gradients.layers import (
    Conv2dGradients,
    LayerGradients,
    LinearGradients,
    SequenceGradients,
    cast_factors,
)

FLOPS_PER_WEIGHT_USE = 6  # two each for the forward pass, the input gradient and the weight gradient


class LayerHooks(GradientHooks):
    """Forward and backward hooks on every layer in scope; scores are computed during the backward pass."""

    closed_form = False

    def __init__(self, model: nn.Module, config: InfluenceConfig, n_classes: int | None) -> None:
        super().__init__(model, config, n_classes)
        self.dot_product = GradientDotProduct(self.layers, self.space, self.dtype)
        self.scoring = True
        self.below_head = [name for name in self.layers if name != self.head_name]
        # no local functions: with those the model could not be pickled, and a copy of it would report to this object
        for name in self.below_head:
            hook = partial(self._on_layer_output, name)
            self._handles.append(self.layers[name].register_forward_hook(hook, with_kwargs=True))

    def _on_head_output(
        self, module: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], output: Tensor
    ) -> None:
        super()._on_head_output(module, args, kwargs, output)
        if self.recording and output.requires_grad:
            captured = self.captured

            def on_gradient(gradient: Tensor) -> None:
                if captured.head_gradient is not None:
                    raise CaptureError(
                        "two gradients reached the head inside one watch(); outside scope 'head' it takes one forward "
                        "pass and one backward(): add up the losses, and run other passes outside watch()"
                    )
                captured.head_gradient = gradient.detach()

            output.register_hook(on_gradient)  # type: ignore[no-untyped-call]

    def _on_layer_output(
        self, name: str, module: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], output: Tensor
    ) -> None:
        if not (self.recording and output.requires_grad):
            return
        captured, layer_input, scoring = self.captured, input_of(args, kwargs).detach(), self.scoring

        def on_gradient(gradient: Tensor) -> None:
            a, e = cast_factors(layer_input, gradient.detach(), self.dtype)
            captured.inputs[name], captured.gradients[name] = a, e
            if scoring:
                part = self.dot_product.project(name, a, e)
                captured.projection = part if captured.projection is None else captured.projection + part

        output.register_hook(on_gradient)  # type: ignore[no-untyped-call]

    @contextmanager
    def evaluation_pass(self) -> Iterator[CapturedPass]:
        """Record a pass of anchor data, which is not scored."""
        self.scoring = False
        try:
            with super().evaluation_pass() as captured:
                yield captured
        finally:
            self.scoring = True

    def evaluate(self, x: Tensor, y: Tensor) -> None:
        """Run forward and backward pass of anchor data; every `.grad` stays as it is."""
        with torch.enable_grad():
            loss = F.cross_entropy(self.run_model(x).float(), y)
            torch.autograd.grad(loss, [p for p in self.model.parameters() if p.requires_grad], allow_unused=True)

    def validate(self, captured: CapturedPass, count: int) -> None:
        """Check that forward and backward pass went through all layers in scope.

        Raises:
            CaptureError: If the forward or the backward pass did not reach a layer.
            BatchError: If the pass was not of `count` examples.
        """
        super().validate(captured, count)
        missing = [name for name in self.below_head if name not in captured.gradients]
        if missing or captured.head_gradient is None:
            names = ", ".join(missing) or self.head_name
            raise CaptureError(f"no gradient reached {names} inside watch(): call loss.backward() there")

    def pass_batch(
        self,
        captured: CapturedPass,
        index: Tensor,
        labels: Tensor,
        temperature: Tensor | float,
        rows: slice = slice(None),
    ) -> FactoredBatch:
        """Return the gradients of the chosen examples of one validated pass, for all layers in scope."""
        batch = super().pass_batch(captured, index, labels, temperature, rows)
        assert captured.head_gradient is not None
        head, scale = batch.layers[0], self.loss_rescaling(batch, captured.head_gradient[rows])
        layers: list[LayerGradients] = []
        valid = batch.valid
        for name, module in self.layers.items():
            if name == self.head_name:
                layers.append(head)
            else:
                gradient = captured.gradients[name][rows]
                valid = valid & torch.isfinite(gradient.sum(tuple(range(1, gradient.dim())), dtype=self.dtype))
                layers.append(self._layer_gradients(module, captured.inputs[name][rows], gradient))
        scale = torch.where(valid, scale, 0)
        scales = tuple(valid.to(self.dtype) if name == self.head_name else scale for name in self.layers)
        return replace(batch, layers=tuple(layers), scales=scales, valid=valid)

    def loss_rescaling(self, batch: FactoredBatch, head_gradient: Tensor) -> Tensor:
        """Return the factor from gradients of the user's loss to those of the softened cross-entropy, shape [n].

        It is 0 where it is not finite.
        """
        arrived = torch.linalg.vector_norm(head_gradient.to(self.dtype), dim=1)
        scale = torch.linalg.vector_norm(batch.layers[0].e, dim=1) / arrived
        return torch.where(torch.isfinite(scale), scale, 0)

    def total_projection(
        self, batch: FactoredBatch, head_gradient: Tensor, projection: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Combine the head's part of the dot products with what the backward pass computed below it.

        Args:
            batch: The head's part of the gradients.
            head_gradient: Gradient of the user's loss at the head's output, shape [n, C].
            projection: <phibar, g_i> over the layers below the head, shape [n], if there are any.

        Returns:
            <phibar, g_i>, shape [n], zero where it is not finite, and a mask of the finite examples, shape [n].
        """
        total = batch.probs.new_zeros(len(batch))
        if projection is not None:
            total = projection * self.loss_rescaling(batch, head_gradient)
        if self.head_name in self.layers:
            total = total + batch.head_layer.dot(self.dot_product.layer_block(self.head_name))[:, 0]
        valid = batch.valid & torch.isfinite(total)
        return torch.where(valid, total, 0), valid

    def training_flops(self, captured: CapturedPass) -> int:
        """Return the floating-point operations that training spent on the layers below the head in one pass."""
        inputs = dict(zip(self.layers, (columns for _, columns in self.space.shapes), strict=True))
        uses = sum(captured.gradients[name].numel() * inputs[name] for name in self.below_head)
        return FLOPS_PER_WEIGHT_USE * uses

    def _layer_gradients(self, module: SupportedLayer, inputs: Tensor, gradient: Tensor) -> LayerGradients:
        if isinstance(module, nn.Conv2d):
            return Conv2dGradients(inputs, gradient, module, self.dtype)
        inputs = with_bias(inputs, module.bias is not None)
        if inputs.dim() == 2:
            return LinearGradients(inputs.to(self.dtype), gradient.to(self.dtype))
        return SequenceGradients(inputs.flatten(1, -2), gradient.flatten(1, -2), self.dtype)
