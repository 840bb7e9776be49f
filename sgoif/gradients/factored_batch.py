"""`FactoredBatch`: the gradients of one training step in factored form, and the curvature they span.

The loss behind every gradient is the softened cross-entropy l_T(f, y) = T * CE(f / T, y), so that with p = softmax(f
/ T)

    dl/df = p - onehot(y),        d2l/df2 = (diag(p) - p p') / T,

whatever loss, reduction or loss scale the training itself uses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sgoif.gradients.layers import LayerBatch, RowBatch
from sgoif.gradients.parameter_space import Space

PER_EXAMPLE = ("index", "labels", "probs", "agreement", "valid", "recency")


@dataclass(frozen=True)
class FactoredBatch:
    """One step's examples. `layers[l]` holds raw factors, `scale[l]` `[n]` what multiplies them (None = ones)."""

    space: Space
    layers: tuple[LayerBatch, ...]
    scales: tuple[Tensor | None, ...]
    index: Tensor  # [n] position in the data set
    labels: Tensor  # [n] given labels
    probs: Tensor  # [n, C] softened probabilities; zero rows where the example was not finite
    agreement: Tensor  # [n] unsoftened probability of the given label, zero where not finite
    valid: Tensor  # [n] bool: finite examples
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
    def mass(self) -> Tensor:
        """Weight of each example in running averages, `[n]`."""
        return self.valid * self.recency

    def newest(self, count: int) -> FactoredBatch:
        """The newest whole steps of a head-scope batch that hold at least `count` examples, as recent as each other."""
        kept: list[int] = []
        for size in reversed(self.step_sizes):
            if sum(kept) >= count:
                break
            kept.insert(0, size)
        rows = slice(len(self) - sum(kept), None)
        layer = RowBatch(self.layers[0].a[rows], self.layers[0].e[rows])
        picked = {name: getattr(self, name)[rows] for name in PER_EXAMPLE}
        picked["recency"] = torch.ones_like(picked["recency"])
        return replace(self, layers=(layer,), step_sizes=tuple(kept), **picked)

    def inner(self, rows: Tensor) -> Tensor:
        """<g_i, V_k> for V `[K, d]`: `[n, K]`; zero for examples that are not finite."""
        total = None
        for layer, scale, block in zip(self.layers, self.scales, self.space.split(rows), strict=True):
            part = layer.inner(block)
            part = part if scale is None else part * scale.unsqueeze(1)
            total = part if total is None else total + part
        return total if self.closed_form else torch.where(torch.isfinite(total), total, 0)

    def settled(self) -> FactoredBatch:
        """With scales multiplied in and non-finite examples zeroed: safe to accumulate. Outside head scope the
        gradients are multiplied out, so it is for few examples."""
        if self.closed_form:
            return self
        layers = tuple(layer.scaled(scale) for layer, scale in zip(self.layers, self.scales, strict=True))
        return replace(self, layers=layers, scales=(None,) * len(layers))

    def weighted(self, weights: Tensor) -> Tensor:
        """sum_i W_ik g_i for W `[n, K]`: `[K, d]`. Call on a settled batch."""
        return self.space.join([layer.weighted(weights) for layer in self.layers])

    def grouped(self, groups: Tensor, weights: Tensor, count: int) -> Tensor:
        """sum_i w_i g_i over each of `count` groups `[n]`, w `[n]`: `[count, d]`. Call on a settled batch."""
        return self.space.join([layer.grouped(groups, weights, count) for layer in self.layers])

    def matvec(self, rows: Tensor, kind: str) -> Tensor:
        """Undamped curvature of these examples times V `[K, d]`, averaged over examples.

        kind 'ggn' (head scope): H = mean_i (diag(p_i) - p_i p_i') / T (x) a_i a_i';  kind 'fisher': H = mean_i g_i
        g_i'.
        """
        count = self.count.clamp(min=1)
        if kind == "fisher":
            return self.weighted(self.inner(rows) / count)
        layer = self.layers[0]
        projected = layer.project(self.space.split(rows)[0])  # (diag(p) - p p') f = p * (f - <p, f>), in place
        projected.sub_(projected @ self.probs.unsqueeze(2)).mul_((self.probs / (count * self.temperature)).unsqueeze(1))
        return self.space.join([layer.outer(projected)])

    @staticmethod
    def concatenate(batches: list[FactoredBatch]) -> FactoredBatch:
        """Several batches as one (micro-batches of one step, or the probes of one check)."""
        if len(batches) == 1:
            return batches[0]
        first = batches[0]
        layers = tuple(
            replace(layer, a=torch.cat([b.layers[l].a for b in batches]), e=torch.cat([b.layers[l].e for b in batches]))
            for l, layer in enumerate(first.layers)
        )
        scales = tuple(
            None if scale is None else torch.cat([b.scales[l] for b in batches]) for l, scale in enumerate(first.scales)
        )
        joined = {name: torch.cat([getattr(b, name) for b in batches]) for name in PER_EXAMPLE}
        sizes = tuple(size for b in batches for size in b.step_sizes)
        return replace(first, layers=layers, scales=scales, step_sizes=sizes, **joined)

    def tensors(self) -> dict[str, Tensor]:
        """Everything a closed-form batch needs to be stored and rebuilt (see `from_tensors`)."""
        named = {name: getattr(self, name) for name in PER_EXAMPLE}
        temperature = torch.as_tensor(self.temperature, dtype=torch.float64)
        return {**named, "a": self.layers[0].a, "e": self.layers[0].e, "temperature": temperature}

    @staticmethod
    def from_tensors(space: Space, stored: dict[str, Tensor]) -> FactoredBatch:
        rest = {name: tensor for name, tensor in stored.items() if name not in ("a", "e")}
        layer, sizes = RowBatch(stored["a"], stored["e"]), (len(stored["a"]),)
        return FactoredBatch(space, (layer,), (None,), step_sizes=sizes, closed_form=True, **rest)
