"""Training statistics of the shift sentinel: pooled activations, streamed moments, and the metric that follows."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.errors import InfluenceError


def pooled(maps: Tensor, width: int = 1024) -> list[Tensor]:
    """Reduce feature maps to one or two views with one row per image.

    The first view says what is there: mean and standard deviation of each channel. The second says where: means over
    the cells of the finest grid that divides the map evenly and has at most `width` values; it is left out if that grid
    is a single cell.

    Args:
        maps: Feature maps, shape [n, C, H, W], or vectors, shape [n, C], which stay as they are.
        width: Largest number of values of the second view, cells times channels.

    Returns:
        The views, each of shape [n, d].
    """
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
    """Streaming class sums and second moments in float64; any split into batches gives the same.

    Attributes:
        counts: Number of rows of each class, shape [K].
        sums: Sum of the rows of each class, shape [K, d].
        products: Sum of the outer products of all rows, shape [d, d].
    """

    def __init__(self, n_classes: int, width: int, device: torch.device | str = "cpu") -> None:
        """Start without any row.

        Args:
            n_classes: Number of classes K.
            width: Length d of a row.
            device: Where the sums are kept.
        """
        self.counts = torch.zeros(n_classes, dtype=torch.float64, device=device)
        self.sums = torch.zeros(n_classes, width, dtype=torch.float64, device=device)
        self.products = torch.zeros(width, width, dtype=torch.float64, device=device)

    def add(self, rows: Tensor, labels: Tensor) -> None:
        """Add a batch.

        Args:
            rows: Shape [n, d].
            labels: Classes of the rows, shape [n].
        """
        rows = rows.double()
        self.counts.index_add_(0, labels, torch.ones_like(labels, dtype=torch.float64))
        self.sums.index_add_(0, labels, rows)
        self.products.addmm_(rows.T, rows)

    @property
    def count(self) -> Tensor:
        """Number of rows, a scalar."""
        return self.counts.sum()

    @property
    def mean(self) -> Tensor:
        """Mean of all rows, shape [d]."""
        return self.sums.sum(0) / self.count

    @property
    def class_means(self) -> Tensor:
        """Mean of the rows of each class, shape [K, d]; the mean of all rows for a class without any."""
        means = self.sums / self.counts.clamp(min=1).unsqueeze(1)
        return torch.where(self.counts.unsqueeze(1) > 0, means, self.mean)

    def second_moment(self) -> Tensor:
        """Return E[a a'], the input factor of K-FAC, shape [d, d]."""
        return self.products / self.count

    def covariance(self) -> Tensor:
        """Return the covariance of the rows, shape [d, d]."""
        return self.second_moment() - torch.outer(self.mean, self.mean)


class MahalanobisMetric:
    """The squared length x' (M + damping * tr(M)/d I)^-1 x, by a Cholesky factor in float64.

    Attributes:
        damping: The absolute damping, damping * tr(M)/d, a scalar.
        root: R with R R' equal to the damped inverse, shape [d, d].
    """

    def __init__(self, matrix: Tensor, damping: float, dtype: torch.dtype = torch.float32) -> None:
        """Factorise the damped matrix.

        Args:
            matrix: Symmetric positive semi-definite M, shape [d, d].
            damping: Damping relative to the mean eigenvalue of M.
            dtype: Precision of `root`.

        Raises:
            InfluenceError: If the damped matrix is not positive definite.
        """
        matrix = matrix.double()
        self.damping = damping * matrix.diagonal().mean().clamp(min=1e-12)
        eye = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
        factor, failed = torch.linalg.cholesky_ex(matrix + self.damping * eye)
        if failed:
            raise InfluenceError(
                f"MahalanobisMetric: damping {damping!r} does not make the matrix positive definite; increase it"
            )
        self.root = torch.linalg.solve_triangular(factor, eye, upper=False).mT.to(dtype)

    def whiten(self, rows: Tensor) -> Tensor:
        """Return rows whose plain squared length is their length in this metric, shape [n, d].

        Args:
            rows: Shape [n, d].
        """
        whitened: Tensor = rows @ self.root
        return whitened

    def leverage(self, rows: Tensor) -> Tensor:
        """Return the squared lengths x' (M + damping)^-1 x, shape [n].

        Args:
            rows: Shape [n, d].
        """
        return self.whiten(rows).square().sum(1)
