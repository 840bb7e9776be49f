"""The anchor bank: K target gradients g_v, each the mean gradient of a bucket of examples.

    g_v = sum_i m_iv g_i / sum_i m_iv,     m_iv = [example i belongs to bucket v] * agreement_i,

where sums are exponential averages with a half-life of `config.half_life` epochs. Buckets are balanced over classes:
with K = m C anchors each class has m buckets (by position in the data set), with K < C classes share buckets.

In the scoring direction an anchor counts by the share of its bucket in the data (`prior`). Anchors of a rare class
would otherwise outvote the examples of frequent ones: a right label of a frequent class moves the network away from
every rare class, and would look harmful. The shares are those of the training labels; with trusted anchors those of
the trusted examples.

`stream` and `heldout` weight an example by the model's probability of its label, so that mislabelled examples, which
the model has not fitted yet, hardly count; `trusted` weights all examples alike. A batch is scored before it enters
the bank, so no example affects its own score at the same visit.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from sgoif.backend import collectives
from sgoif.backend.linalg import matmul_nt, smallest_eigenvalue
from sgoif.config import InfluenceConfig
from sgoif.errors import InfluenceError
from sgoif.gradients.factored_batch import FactoredBatch
from sgoif.solvers.iterative import norms


def bank_size(config: InfluenceConfig, n_classes: int) -> int:
    """Return the number of anchors K, one per class unless the configuration says otherwise.

    Raises:
        InfluenceError: If more anchors than classes are not a multiple of the classes.
    """
    count = config.anchors or n_classes
    if count > n_classes and count % n_classes:
        raise InfluenceError(
            f"InfluenceConfig.anchors = {count}: use a multiple of the {n_classes} classes, or fewer than them"
        )
    return count


class AnchorBank(nn.Module):
    """Keeps the running sums `total` [K, d] and `weight` [K].

    `labels_seen` [K] counts the training labels of each bucket; `lambda_min` is of the last coverage check.

    Args:
        config: Supplies source and coverage threshold.
        count: Number of anchors K.
        n_classes: Number of classes.
        dim: Number of parameters d.
        dtype: Type of the buffers.
    """

    total: Tensor
    weight: Tensor
    labels_seen: Tensor
    lambda_min: Tensor

    def __init__(self, config: InfluenceConfig, count: int, n_classes: int, dim: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.config = config
        self.count = count
        self.n_classes = n_classes
        self.register_buffer("total", torch.zeros(count, dim, dtype=dtype))
        self.register_buffer("weight", torch.zeros(count, dtype=dtype))
        self.register_buffer("labels_seen", torch.zeros(count, dtype=torch.float64))
        self.register_buffer("lambda_min", torch.tensor(torch.nan, dtype=dtype))

    def buckets(self, labels: Tensor, index: Tensor) -> Tensor:
        """Return the bucket of each example, shape [n]."""
        per_class = self.count // self.n_classes
        if per_class == 1:
            return labels
        return labels % self.count if per_class == 0 else labels * per_class + index % per_class

    def count_labels(self, batch: FactoredBatch) -> None:
        """Count the labels of training examples, for the shares of the buckets."""
        buckets = self.buckets(batch.labels, batch.index)
        self.labels_seen.index_add_(0, buckets, batch.valid.to(self.labels_seen.dtype))

    def prior(self) -> Tensor:
        """Return how far each anchor counts by the share of its bucket, shape [K]; the mean of all anchors is 1.

        All are 1 if `config.anchor_prior` is "uniform", or before anything has been counted.
        """
        counts = self.weight if self.config.source == "trusted" else self.labels_seen
        if collectives.active() and self.config.source != "trusted":
            counts = counts.clone()
            collectives.sum_(counts)
        known = (counts.sum() > 0) & (self.config.anchor_prior == "labels")
        shares = counts / counts.mean().clamp(min=torch.finfo(counts.dtype).tiny)
        return torch.where(known, shares, 1.0).to(self.weight.dtype)

    def update(self, batch: FactoredBatch, decay: float) -> None:
        """Add a materialised batch to the running sums, the old sums times `decay`."""
        buckets = self.buckets(batch.labels, batch.index)
        weights = batch.recency * (batch.valid if self.config.source == "trusted" else batch.agreement)  # m_iv
        self.total.mul_(decay).add_(batch.group_sums(buckets, weights, self.count))
        self.weight.mul_(decay).index_add_(0, buckets, weights)

    def replace(self, batches: Iterable[FactoredBatch], total_examples: int | None) -> None:
        """Replace the anchors by these gradients, or update them incrementally if only part of the data is passed.

        Args:
            batches: Materialised gradients of external data under the current parameters.
            total_examples: Size of the external data if `batches` are a part of it, None if they are all of it.
        """
        if total_examples is None:
            self.total.zero_()
            self.weight.zero_()
        for batch in batches:
            self.update(batch, 1.0 if total_examples is None else 1 - len(batch) / total_examples)

    def targets(self) -> Tensor:
        """Return g_v, shape [K, d]; zero for an empty bucket."""
        total, weight = self.total, self.weight
        if collectives.active() and self.config.source == "stream":
            total, weight = total.clone(), weight.clone()
            collectives.sum_(total, weight)
        return torch.where((weight > 0).unsqueeze(1), total / weight.unsqueeze(1), 0)

    def find_redundant(self, phi: Tensor, confidence: Tensor) -> tuple[Tensor, Tensor]:
        """Check the coverage of the anchors by the Gram matrix G of the unit phi_v.

        The anchor to refresh is the most redundant and least trusted one, with the largest (G^-1)_vv (1 - c_v). An
        orthonormal bank has lambda_min = 1. The unit vectors are used for this check only, never for a score.

        Args:
            phi: Directions, shape [K, d].
            confidence: c_v, shape [K].

        Returns:
            lambda_min of G, a scalar, and a mask of the anchor to refresh, if any, shape [K].
        """
        unit = phi / norms(phi).clamp(min=torch.finfo(phi.dtype).tiny)
        empty = torch.diag((norms(phi)[:, 0] == 0).to(phi.dtype))
        lambda_min, inverse = smallest_eigenvalue(matmul_nt(unit, unit) + empty)
        worst = (inverse * (1 - confidence)).argmax()
        chosen = torch.arange(self.count, device=phi.device) == worst
        return lambda_min, chosen & (lambda_min < self.config.coverage)

    def refresh(self, chosen: Tensor) -> None:
        """Halve the sums of the chosen anchors, mask [K], so that their targets move to the newest examples."""
        keep = torch.where(chosen, 0.5, 1.0).to(self.weight.dtype)
        self.total.mul_(keep.unsqueeze(1))
        self.weight.mul_(keep)
