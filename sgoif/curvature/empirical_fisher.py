"""Empirical Fisher, matrix-free: C = 1/n sum_i g_i g_i' over the newest n examples, damping = config.damping * tr(C)
/ d.

With the gradients as columns of J `[d, n]` and M = J'J `[n, n]` their Gram matrix, the inverse is exact in the dual
(Woodbury):

    (lambda I + J J' / n)^-1 v = (v - J (n lambda I + M)^-1 J' v) / lambda,

and J' v = inner(v), J u = weighted(u) never multiply a gradient out in head scope.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sgoif.backend import collectives
from sgoif.curvature.base import Curvature
from sgoif.curvature.kfac import damped_inverse
from sgoif.gradients.factored_batch import FactoredBatch


class FisherCurvature(Curvature):
    """Keeps the newest batches (at least `config.probe_examples` examples in head scope, one batch elsewhere)."""

    name = "fisher"

    def __init__(self, space, config, closed_form, dtype) -> None:
        super().__init__(space, config, closed_form, dtype)
        self.capacity = config.probe_examples if closed_form else 1
        self.kind = "fisher"
        self.batches: list[FactoredBatch] = []
        self.examples: FactoredBatch | None = None
        self.register_buffer("damping", torch.ones((), dtype=dtype))
        self.register_buffer("trace", torch.ones((), dtype=dtype))
        self.register_buffer("largest", torch.ones((), dtype=dtype))

    def update(self, batch: FactoredBatch, decay: float) -> None:
        if not batch.closed_form:
            self.batches = [batch]
            return
        self.batches.append(batch.newest(self.capacity))
        while sum(len(b) for b in self.batches[1:]) >= self.capacity:
            self.batches.pop(0)

    def refresh(self) -> None:
        self.examples = FactoredBatch.concatenate(self.batches)
        gram = sum(layer.gram() for layer in self.examples.layers)
        count = self.examples.count.clamp(min=1)
        self.trace = gram.diagonal().sum() / count
        self.largest = torch.linalg.matrix_norm(gram) / count
        collectives.sum_(self.trace)
        self.trace = self.trace / collectives.size()
        self.damping = self.config.damping * (self.trace / self.space.dim).clamp(min=1e-12)
        self.dual = damped_inverse(gram, count * self.damping)

    def arithmetic(self) -> int:
        examples = self.config.probe_examples if self.capacity > 1 else self.config.deep_examples
        return (8 * examples + 5) * self.space.dim

    def matvec(self, rows: Tensor) -> Tensor:
        return self.examples.matvec(rows, "fisher") + self.damp(rows)

    def solve(self, rows: Tensor) -> Tensor:
        inside = self.examples.weighted(self.dual @ self.examples.inner(rows))
        solution = (rows - inside) / self.damping
        collectives.sum_(solution)
        return solution / collectives.size()

    def damp(self, rows: Tensor) -> Tensor:
        return rows * self.damping

    def condition(self) -> Tensor:
        return 1 + self.largest / self.damping

    def mean_eigenvalue(self) -> Tensor:
        return self.trace / self.space.dim + self.damping

    def get_extra_state(self) -> list[dict[str, Tensor]] | None:
        """The stored examples of a head-scope backend; elsewhere they are dropped and refilled by the next update."""
        if self.capacity == 1:
            return None
        return [batch.tensors() for batch in self.batches]

    def set_extra_state(self, state: list[dict[str, Tensor]] | None) -> None:
        self.batches = [FactoredBatch.from_tensors(self.space, tensors) for tensors in state or []]
        if self.batches:
            self.refresh()
