"""Class means and a covariance that the classes share, for methods that measure Mahalanobis distances.

The sums are streamed in float64, so that no feature of a single image is kept.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sgoif.applications import Moments

EPS = torch.finfo(torch.float64).eps


def whitening(covariance: Tensor) -> Tensor:
    """Return R with R R' equal to the pseudo-inverse of a covariance.

    Directions with less than d x 2.2e-16 of the largest variance are left out. That is where scikit-learn's
    `EmpiricalCovariance` cuts, and so the reference implementations: its covariance of float32 features is in float64.

    Args:
        covariance: Symmetric, positive semi-definite, shape [d, d].

    Returns:
        float64, shape [d, rank].
    """
    values, vectors = torch.linalg.eigh(covariance.double())
    kept = values > len(values) * EPS * values[-1].clamp_min(0)
    return vectors[:, kept] * values[kept].rsqrt()


class ClassGaussians:
    """One Gaussian for each class, all with the same covariance.

    Attributes:
        moments: Streamed sums.
    """

    def __init__(self, n_classes: int, width: int, device: torch.device | str = "cpu") -> None:
        """Start without any row.

        Args:
            n_classes: Number of classes K.
            width: Length d of a row.
            device: Where the sums are kept.
        """
        self.moments = Moments(n_classes, width, device)

    @classmethod
    def of_training(cls, features: Tensor, labels: Tensor, n_classes: int) -> ClassGaussians:
        """Return the Gaussians of training features [n, d] with labels [n], ready for distances."""
        gaussians = cls(n_classes, features.shape[1], features.device)
        gaussians.add(features, labels)
        gaussians.finish()
        return gaussians

    def add(self, rows: Tensor, labels: Tensor) -> None:
        """Add rows, shape [n, d], with their classes, shape [n]."""
        self.moments.add(rows, labels)

    def finish(self) -> None:
        """Compute means and covariances of the rows so far; call it before measuring distances."""
        m = self.moments
        means = m.class_means
        between = (means * m.counts[:, None]).T @ means / m.count
        self._root, self._background_root = whitening(m.second_moment() - between), whitening(m.covariance())
        self._means, self._mean = means @ self._root, m.mean @ self._background_root

    def distances(self, rows: Tensor) -> Tensor:
        """Return squared Mahalanobis distances to the class means, float64, shape [n, K]."""
        whitened = rows.double() @ self._root
        squares = whitened.square().sum(1, keepdim=True) + self._means.square().sum(1)
        return (squares - 2 * whitened @ self._means.T).clamp_min(0)

    def background(self, rows: Tensor) -> Tensor:
        """Return squared Mahalanobis distances to the mean of all, in the covariance of all, float64, shape [n]."""
        return (rows.double() @ self._background_root - self._mean).square().sum(1)
