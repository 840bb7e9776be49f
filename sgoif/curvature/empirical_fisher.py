"""Empirical Fisher, matrix-free: C = 1/n sum_i g_i g_i' over the newest n examples.

    damping = config.damping * tr(C) / d

With the gradients as columns of J [d, n] and their Gram matrix M = J'J [n, n], the inverse is exact in the dual
(Woodbury):

    (lambda I + J J' / n)^-1 v = (v - J (n lambda I + M)^-1 J' v) / lambda.

In head scope J' v = dot(v) and J u = weighted_sum(u) never multiply a gradient out.
"""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor

from sgoif.backend import collectives
from sgoif.backend.linalg import damped_inverse
from sgoif.config import InfluenceConfig
from sgoif.curvature.base import MIN_MEAN_EIGENVALUE, Curvature
from sgoif.gradients.factored_batch import FactoredBatch
from sgoif.gradients.parameter_space import ParameterSpace


class FisherCurvature(Curvature):
    """Keeps the newest batches: at least `config.probe_examples` examples in head scope, one batch in deep scopes."""

    name = "fisher"

    damping: Tensor
    trace: Tensor
    largest: Tensor
    dual: Tensor

    def __init__(self, space: ParameterSpace, config: InfluenceConfig, closed_form: bool, dtype: torch.dtype) -> None:
        super().__init__(space, config, closed_form, dtype)
        self.keeps_several = closed_form
        self.min_examples = config.probe_examples if closed_form else 1
        self.kind = "fisher"
        self.batches: list[FactoredBatch] = []
        self._examples: FactoredBatch | None = None
        self.register_buffer("damping", torch.ones((), dtype=dtype))
        self.register_buffer("trace", torch.ones((), dtype=dtype))
        self.register_buffer("largest", torch.ones((), dtype=dtype))

    @property
    def examples(self) -> FactoredBatch:
        """The examples of the last refresh."""
        assert self._examples is not None, "refresh() comes first"
        return self._examples

    def update(self, batch: FactoredBatch, decay: float) -> None:
        self.batches.append(batch.newest(self.min_examples))
        while sum(len(b) for b in self.batches[1:]) >= self.min_examples:
            self.batches.pop(0)

    def refresh(self) -> None:
        self._invert(FactoredBatch.concatenate(self.batches))

    def _invert(self, examples: FactoredBatch) -> None:
        self._examples = examples
        gram = reduce(torch.add, [layer.gram() for layer in examples.materialised_layers()])
        count = examples.count.clamp(min=1)
        self.trace = gram.diagonal().sum() / count
        self.largest = torch.linalg.matrix_norm(gram) / count
        collectives.sum_(self.trace)
        self.trace = self.trace / collectives.size()
        self.damping = self.config.damping * (self.trace / self.space.dim).clamp(min=MIN_MEAN_EIGENVALUE)
        self.dual = damped_inverse(gram, count * self.damping)

    def flops_per_product(self) -> int:
        examples = self.config.probe_examples if self.keeps_several else self.config.deep_examples
        return (8 * examples + 5) * self.space.dim

    def matvec(self, rows: Tensor) -> Tensor:
        return self.examples.matvec(rows, "fisher") + self.damp(rows)

    def solve(self, rows: Tensor) -> Tensor:
        inside = self.examples.weighted_sum(self.dual @ self.examples.dot(rows))
        solution = (rows - inside) / self.damping
        collectives.sum_(solution)
        return solution / collectives.size()

    def damp(self, rows: Tensor) -> Tensor:
        return rows * self.damping

    def condition(self) -> Tensor:
        return 1 + self.largest / self.damping

    def mean_eigenvalue(self) -> Tensor:
        return self.trace / self.space.dim + self.damping

    def get_extra_state(self) -> dict[str, list[dict[str, Tensor]]]:
        """Return the stored examples, and those of the last refresh, which may be older."""
        refreshed = [] if self._examples is None else [self._examples]
        kept = {"batches": self.batches, "refreshed": refreshed}
        return {name: [batch.tensors() for batch in batches] for name, batches in kept.items()}

    def set_extra_state(self, state: dict[str, list[dict[str, Tensor]]]) -> None:
        """Restore the stored examples, and the inverse of the last refresh."""
        self.batches, refreshed = (
            [FactoredBatch.from_tensors(self.space, tensors, self.keeps_several) for tensors in state[name]]
            for name in ("batches", "refreshed")
        )
        for examples in refreshed:
            self._invert(examples)
