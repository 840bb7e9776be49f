"""`FactoredBatch`: the per-example gradients of a batch in factored form, and the curvature they span.

The loss behind every gradient is the softened cross-entropy l_T(f, y) = T * CE(f / T, y). With p = softmax(f / T),

    dl/df   = p - onehot(y),
    d2l/df2 = (diag(p) - p p') / T,

whatever loss, reduction or loss scale the training itself uses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sgoif.gradients.layers import DenseGradients, LayerGradients, LinearGradients
from sgoif.gradients.parameter_space import ParameterSpace

PER_EXAMPLE = ("index", "labels", "logits", "predicted", "probs", "valid", "recency")


@dataclass(frozen=True)
class FactoredBatch:
    """Gradients of n examples: `layers[l]` holds the factors of layer l, `scales[l]` what multiplies them."""

    space: ParameterSpace
    layers: tuple[LayerGradients, ...]
    scales: tuple[Tensor | None, ...]  # [n] per layer; None = ones
    index: Tensor  # [n] position in the data set
    labels: Tensor  # [n] labels trained on
    logits: Tensor  # [n, C] outputs of the model; these and the next two have zero rows where not finite
    predicted: Tensor  # [n, C] their probabilities
    probs: Tensor  # [n, C] their softened probabilities
    valid: Tensor  # [n] bool: whether the example is finite
    recency: Tensor  # [n] weight in running averages: 1 for the newest step, less for older ones
    temperature: Tensor | float
    step_sizes: tuple[int, ...]  # examples of each step in the batch, oldest first
    closed_form: bool  # head scope: the Gauss-Newton matrix is known from activations and probabilities alone

    def __len__(self) -> int:
        return self.index.shape[0]

    @property
    def count(self) -> Tensor:
        """Number of finite examples, as a device scalar."""
        return self.valid.sum().to(self.probs.dtype)

    @property
    def agreement(self) -> Tensor:
        """Probability of each label, shape [n], zero where not finite."""
        return self.predicted.gather(1, self.labels.unsqueeze(1))[:, 0]

    @property
    def mass(self) -> Tensor:
        """Weight of each example in running averages, shape [n]."""
        return self.valid * self.recency

    @property
    def head_layer(self) -> LinearGradients:
        """Gradients of the first layer, which is the classifying layer in head scope."""
        layer = self.layers[0]
        assert isinstance(layer, LinearGradients)
        return layer

    def newest(self, count: int) -> FactoredBatch:
        """Return the newest whole steps with at least `count` examples together, all of recency 1.

        A batch of a deep scope is the sample of one step already and is returned as it is.
        """
        if not self.closed_form:
            return self
        kept: list[int] = []
        for size in reversed(self.step_sizes):
            if sum(kept) >= count:
                break
            kept.insert(0, size)
        if len(kept) == len(self.step_sizes):
            return replace(self, recency=torch.ones_like(self.recency))
        rows = slice(len(self) - sum(kept), None)
        layer = LinearGradients(self.head_layer.a[rows], self.head_layer.e[rows])
        picked = {name: getattr(self, name)[rows] for name in PER_EXAMPLE}
        picked["recency"] = torch.ones_like(picked["recency"])
        return replace(self, layers=(layer,), step_sizes=tuple(kept), **picked)

    def dot(self, rows: Tensor) -> Tensor:
        """Return <g_i, V_k>, shape [n, K], for rows V of shape [K, d]; zero for examples that are not finite."""
        total = None
        for layer, scale, block in zip(self.layers, self.scales, self.space.split(rows), strict=True):
            part = layer.dot(block)
            part = part if scale is None else part * scale.unsqueeze(1)
            total = part if total is None else total + part
        assert total is not None
        return total if self.closed_form else torch.where(torch.isfinite(total), total, 0)

    def materialised(self) -> FactoredBatch:
        """Multiply the scales in and set non-finite examples to zero, so that the batch is safe to accumulate.

        In deep scopes the gradients are multiplied out, so use it for few examples only.
        """
        if self.closed_form:
            return self
        layers = tuple(_scaled(layer, scale) for layer, scale in zip(self.layers, self.scales, strict=True))
        return replace(self, layers=layers, scales=(None,) * len(layers))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return sum_i W_ik g_i, shape [K, d], for weights of shape [n, K]; the batch must be materialised."""
        return self.space.join([layer.weighted_sum(weights) for layer in self.materialised_layers()])

    def group_sums(self, groups: Tensor, weights: Tensor, count: int) -> Tensor:
        """Return the sums of w_i g_i over each group, shape [count, d]; the batch must be materialised.

        Args:
            groups: Group of each example, shape [n].
            weights: Weight of each example, shape [n].
            count: Number of groups.
        """
        return self.space.join([layer.group_sums(groups, weights, count) for layer in self.materialised_layers()])

    def materialised_layers(self) -> list[LinearGradients | DenseGradients]:
        """Return the layers of a materialised batch.

        Raises:
            TypeError: If `materialised` has not been called.
        """
        layers = [layer for layer in self.layers if isinstance(layer, LinearGradients | DenseGradients)]
        if len(layers) < len(self.layers):
            raise TypeError("these gradients are not materialised; call materialised() first")
        return layers

    def matvec(self, rows: Tensor, kind: str) -> Tensor:
        """Multiply rows with the undamped curvature of these examples, averaged over the examples.

        Args:
            rows: V, shape [K, d].
            kind: "ggn" (head scope): H = mean_i (diag(p_i) - p_i p_i') / T (x) a_i a_i';
                "fisher": H = mean_i g_i g_i'.
        """
        count = self.count.clamp(min=1)
        if kind == "fisher":
            return self.weighted_sum(self.dot(rows) / count)
        layer = self.head_layer
        projected = layer.project(self.space.split(rows)[0])  # (diag(p) - p p') f = p * (f - <p, f>), in place
        projected.sub_(projected @ self.probs.unsqueeze(2)).mul_((self.probs / (count * self.temperature)).unsqueeze(1))
        return self.space.join([layer.outer(projected)])

    @staticmethod
    def concatenate(batches: list[FactoredBatch]) -> FactoredBatch:
        """Join several batches (micro-batches of one step, or the probes of one check)."""
        if len(batches) == 1:
            return batches[0]
        first = batches[0]
        layers = tuple(
            replace(layer, a=torch.cat([b.layers[l].a for b in batches]), e=torch.cat([b.layers[l].e for b in batches]))
            for l, layer in enumerate(first.layers)
        )
        scales = tuple(_concatenated([b.scales[l] for b in batches]) for l in range(len(first.scales)))
        joined: dict[str, Any] = {name: torch.cat([getattr(b, name) for b in batches]) for name in PER_EXAMPLE}
        sizes = tuple(size for b in batches for size in b.step_sizes)
        return replace(first, layers=layers, scales=scales, step_sizes=sizes, **joined)

    def tensors(self) -> dict[str, Tensor]:
        """Return everything that is needed to store a materialised batch and rebuild it with `from_tensors`."""
        stored = {name: getattr(self, name) for name in PER_EXAMPLE}
        stored["temperature"] = torch.as_tensor(self.temperature, dtype=torch.float64)
        for l, layer in enumerate(self.materialised_layers()):
            stored |= {f"a{l}": layer.a, f"e{l}": layer.e}
        return stored

    @staticmethod
    def from_tensors(space: ParameterSpace, stored: dict[str, Tensor], closed_form: bool) -> FactoredBatch:
        """Rebuild a materialised batch from what `tensors` returned.

        Args:
            space: The layers in scope.
            stored: What `tensors` returned.
            closed_form: Whether the batch is of head scope.
        """
        rest: dict[str, Any] = {name: stored[name] for name in (*PER_EXAMPLE, "temperature")}
        layers = tuple(
            _rebuilt_layer(stored[f"a{l}"], stored[f"e{l}"], stored["recency"].dtype) for l in range(len(space.shapes))
        )
        sizes = (len(stored["recency"]),)
        return FactoredBatch(space, layers, (None,) * len(layers), step_sizes=sizes, closed_form=closed_form, **rest)


def _rebuilt_layer(a: Tensor, e: Tensor, dtype: torch.dtype) -> LinearGradients | DenseGradients:
    return LinearGradients(a, e) if a.dim() == 2 else DenseGradients(a, e, dtype)


def _scaled(layer: LayerGradients, scale: Tensor | None) -> LinearGradients | DenseGradients:
    if isinstance(layer, DenseGradients) or scale is None:
        raise TypeError("the batch is materialised already")
    return layer.scaled(scale)


def _concatenated(scales: list[Tensor | None]) -> Tensor | None:
    present = [scale for scale in scales if scale is not None]
    return torch.cat(present) if present else None
