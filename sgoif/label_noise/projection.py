"""Standardised features, and of many features their main directions: what heads are trained on.

Every feature is centred and divided by its deviation. Of more than `MAX_DIRECTIONS` features the directions of largest
variance are kept: a linear head learns them first anyway, curvature costs the cube of their number, and fewer of them
let wrong labels be learnt by heart less.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor, nn

from sgoif.errors import InfluenceError

MAX_DIRECTIONS = 256
MAX_FEATURES = 8_192  # their covariance must fit into memory
MIN_DEVIATION = 1e-3  # of a feature, relative to the largest; a nearly constant one is not blown up to noise
ITERATIONS = 8  # of the block power iteration


class FeatureBlocks(Protocol):
    """N rows of `dim` features that are read in blocks."""

    @property
    def dim(self) -> int:
        """Number of features d."""

    def __len__(self) -> int: ...

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the first position and the rows [b, d] of every block, in order."""


class Projection(nn.Module):
    """Maps features [n, d] to what the head sees, [n, min(d, MAX_DIRECTIONS)].

    Attributes:
        mean: Mean of every feature, shape [d].
        basis: Directions over the deviations, shape [d, k].
        mean_square: Mean square norm of an example's projected features.
    """

    mean: Tensor
    basis: Tensor

    def __init__(self, mean: Tensor, basis: Tensor, mean_square: float) -> None:
        super().__init__()
        self.mean_square = mean_square
        self.register_buffer("mean", mean)
        self.register_buffer("basis", basis)

    def forward(self, x: Tensor) -> Tensor:
        """Return the projected features, shape [n, k]."""
        projected: Tensor = (x.float() - self.mean) @ self.basis
        return projected


def fit_projection(features: FeatureBlocks) -> Projection:
    """Fit the projection, reading all features twice, in blocks.

    Args:
        features: The features [N, d].

    Raises:
        InfluenceError: If a number is missing or infinite, all examples are alike, or there are too many features.
    """
    n, d = len(features), features.dim
    if d > MAX_FEATURES:
        raise InfluenceError(
            f"{d} features for each example; at most {MAX_FEATURES} are supported: reduce them first, "
            "for example with sklearn.decomposition.TruncatedSVD"
        )
    total = torch.zeros(d, dtype=torch.float64)
    for _, block in features.blocks():
        total += block.double().sum(0)
    mean = total / n
    squares = torch.zeros(d, dtype=torch.float64)
    for _, block in features.blocks():
        squares += (block.double() - mean).square().sum(0)
    deviation = (squares / n).sqrt()
    if not float(deviation.max()) > 0:
        raise InfluenceError("features: every example has the same ones; nothing can be learnt from them")
    scale = deviation.clamp(min=MIN_DEVIATION * float(deviation.max()))
    mean, scale = mean.float(), scale.float()
    if d <= MAX_DIRECTIONS:
        return Projection(mean, torch.diag(1 / scale), float((deviation / scale).square().sum()))
    covariance = torch.zeros(d, d)
    for _, block in features.blocks():
        standardised = (block - mean) / scale
        covariance.addmm_(standardised.T, standardised, alpha=1 / n)
    directions = main_directions(covariance, MAX_DIRECTIONS)
    variance = float((directions * (covariance @ directions)).sum())
    return Projection(mean, directions / scale.unsqueeze(1), variance)


def main_directions(covariance: Tensor, k: int) -> Tensor:
    """Return orthonormal directions [d, k] of nearly the largest variance, the largest first.

    Args:
        covariance: Symmetric and positive semi-definite, shape [d, d].
        k: How many, less than d.
    """
    start = torch.randn(len(covariance), k, generator=torch.Generator().manual_seed(0))
    directions = torch.linalg.qr(start.to(covariance))[0]
    for _ in range(ITERATIONS):
        directions = torch.linalg.qr(covariance @ directions)[0]
    variances, rotation = torch.linalg.eigh(directions.T @ covariance @ directions)
    sorted_directions: Tensor = directions @ rotation[:, variances.argsort(descending=True)]
    return sorted_directions
