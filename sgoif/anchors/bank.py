"""The anchor bank: K target gradients g_v, each the mean gradient of a bucket of examples.

    g_v = sum_i m_iv g_i / sum_i m_iv,     m_iv = [example i belongs to bucket v] * agreement_i,

sums being exponential averages with a half-life of `config.half_life` epochs. Buckets are balanced over classes: with
K = m C anchors each class has m buckets (by position in the data set), with K < C classes share buckets.
`stream` and `heldout` weight an example by the model's probability of its given label, so that mislabelled examples,
which the model does not yet believe, hardly enter; `trusted` weights every example alike. A batch is scored before it
is folded in, hence no example votes on itself at the visit at which it is scored.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from sgoif.backend import collectives
from sgoif.backend.linalg import across, smallest_eigenvalue
from sgoif.config import InfluenceConfig
from sgoif.errors import InfluenceError
from sgoif.gradients.factored_batch import FactoredBatch
from sgoif.solvers.iterative import norms


def bank_size(config: InfluenceConfig, n_classes: int) -> int:
    """Number of anchors K: one per class unless the configuration says otherwise."""
    count = config.anchors or n_classes
    if count > n_classes and count % n_classes:
        raise InfluenceError(
            f"InfluenceConfig.anchors = {count}: use a multiple of the {n_classes} classes, or fewer than them"
        )
    return count


class AnchorBank(nn.Module):
    """Buffers: `total` `[K, d]` and `weight` `[K]`, the running sums; `smallest`, lambda_min at the last look at
    coverage (NaN before)."""

    def __init__(self, config: InfluenceConfig, count: int, n_classes: int, dim: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.config, self.count, self.n_classes = config, count, n_classes
        self.register_buffer("total", torch.zeros(count, dim, dtype=dtype))
        self.register_buffer("weight", torch.zeros(count, dtype=dtype))
        self.register_buffer("smallest", torch.tensor(torch.nan, dtype=dtype))

    def buckets(self, labels: Tensor, index: Tensor) -> Tensor:
        """Bucket of each example, `[n]`."""
        per_class = self.count // self.n_classes
        return labels % self.count if per_class == 0 else labels * per_class + index % per_class

    def fold(self, batch: FactoredBatch, decay: float) -> None:
        """Let a settled batch enter the bank, old sums times `decay`."""
        buckets = self.buckets(batch.labels, batch.index)
        share = batch.recency * (
            batch.valid if self.config.source == "trusted" else batch.agreement
        )  # m_iv in its bucket
        self.total.mul_(decay).add_(batch.grouped(buckets, share, self.count))
        self.weight.mul_(decay).index_add_(0, buckets, share)

    def take(self, batches: Iterable[FactoredBatch], size: int | None) -> None:
        """Let given data in (held-out or trusted examples under the current parameters): instead of what is there, or
        in turns, if these are some of `size` examples."""
        if size is None:
            self.total.zero_()
            self.weight.zero_()
        for batch in batches:
            self.fold(batch, 1.0 if size is None else 1 - len(batch) / size)

    def targets(self) -> Tensor:
        """g_v `[K, d]`; zero for an empty bucket."""
        total, weight = self.total, self.weight
        if collectives.active() and self.config.source == "stream":
            total, weight = total.clone(), weight.clone()
            collectives.sum_(total, weight)
        return torch.where((weight > 0).unsqueeze(1), total / weight.unsqueeze(1), 0)

    def redundant(self, phi: Tensor, confidence: Tensor) -> tuple[Tensor, Tensor]:
        """Coverage check: lambda_min of the Gram matrix of the unit phi_v, and a mask `[K]` of the anchor to refresh
        (or none).

        The one to go is the most redundant and least trusted: the largest (G^-1)_vv (1 - c_v). An orthonormal bank has
        lambda_min = 1. The unit copies serve this check only, never a score.
        """
        unit = phi / norms(phi).clamp(min=torch.finfo(phi.dtype).tiny)
        empty = torch.diag((norms(phi)[:, 0] == 0).to(phi.dtype))
        smallest, inverse = smallest_eigenvalue(across(unit, unit) + empty)
        worst = (inverse * (1 - confidence)).argmax()
        chosen = torch.arange(self.count, device=phi.device) == worst
        return smallest, chosen & (smallest < self.config.coverage)

    def refresh(self, chosen: Tensor) -> None:
        """Halve the memory of the chosen anchors, so that their targets move to the newest examples."""
        keep = torch.where(chosen, 0.5, 1.0).to(self.weight.dtype)
        self.total.mul_(keep.unsqueeze(1))
        self.weight.mul_(keep)
