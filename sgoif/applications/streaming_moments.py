"""What the shift sentinel keeps of the training images: pooled views, streamed moments, and the metric they give."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.errors import InfluenceError


def pooled(maps: Tensor, width: int = 1024) -> list[Tensor]:
    """Two views [n, d] of maps [n, C, H, W]: what is there (mean and standard deviation of each channel) and where
    (means over the finest grid of at most `width` cells x channels that divides the map evenly; left out if that is
    one cell). Vectors [n, C] stay as they are."""
    if maps.ndim == 2 or maps.shape[2:].numel() == 1:
        return [maps.flatten(1)]
    channels, height, across = maps.shape[1:]
    mean = maps.mean((2, 3), keepdim=True)
    views = [torch.cat([mean.flatten(1), (maps - mean).square().mean((2, 3)).sqrt()], 1)]
    sides = [g for g in range(2, height + 1) if height % g == across % g == 0 and g * g * channels <= width]
    if sides:
        views.append(F.adaptive_avg_pool2d(maps, max(sides)).flatten(1))
    return views


class Moments:
    """Streaming class sums and second moment of rows [n, d], in float64: any split into batches gives the same."""

    def __init__(self, n_classes: int, width: int, device: torch.device | str = "cpu"):
        options = {"dtype": torch.float64, "device": device}
        self.counts = torch.zeros(n_classes, **options)
        self.sums = torch.zeros(n_classes, width, **options)
        self.products = torch.zeros(width, width, **options)

    def add(self, rows: Tensor, labels: Tensor) -> None:
        rows = rows.double()
        self.counts.index_add_(0, labels, torch.ones_like(labels, dtype=torch.float64))
        self.sums.index_add_(0, labels, rows)
        self.products.addmm_(rows.T, rows)

    @property
    def count(self) -> Tensor:
        return self.counts.sum()

    @property
    def mean(self) -> Tensor:
        return self.sums.sum(0) / self.count

    @property
    def class_means(self) -> Tensor:
        """[K, d]; a class without an example has the mean of all."""
        means = self.sums / self.counts.clamp(min=1).unsqueeze(1)
        return torch.where(self.counts.unsqueeze(1) > 0, means, self.mean)

    def second_moment(self) -> Tensor:
        """E[a a'], the input factor of K-FAC."""
        return self.products / self.count

    def covariance(self) -> Tensor:
        return self.second_moment() - torch.outer(self.mean, self.mean)


class Metric:
    """x' (M + damping * tr(M)/d I)^-1 x for a symmetric positive semi-definite M, by a Cholesky factor in float64."""

    def __init__(self, matrix: Tensor, damping: float, dtype: torch.dtype = torch.float32):
        matrix = matrix.double()
        self.damping = damping * matrix.diagonal().mean().clamp(min=1e-12)
        eye = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
        factor, failed = torch.linalg.cholesky_ex(matrix + self.damping * eye)
        if failed:
            raise InfluenceError(f"Metric: damping {damping!r} does not make the matrix positive definite; raise it")
        # root root' is the damped inverse
        self.root = torch.linalg.solve_triangular(factor, eye, upper=False).mT.to(dtype)

    def whiten(self, rows: Tensor) -> Tensor:
        return rows @ self.root

    def leverage(self, rows: Tensor) -> Tensor:
        """[n] x' (M + damping)^-1 x"""
        return self.whiten(rows).square().sum(1)
