"""Standardised features, and of many features their main directions: what heads are trained on.

Every feature is centred and divided by its deviation. The columns of a table have units of their own, so each counts
alike, unless it is constant but for rounding. Of `MAX_DIRECTIONS` features or more, as of an embedding, those that are
nearly constant beside the others stay small: they are noise of channels that are switched off. Of more than
`MAX_DIRECTIONS` features the directions of largest variance are kept: a linear head learns them first anyway, curvature
costs the cube of their number, and fewer of them let wrong labels be learnt by heart less.

A row far outside, such as one of missing values written as -9999, would set the scale of all others. Rows that lie more
than `FAR` times as far from the medians as half of all rows are left out of means and deviations, and what the head
sees of them is drawn in. Without such a row nothing is changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor, nn

from sgoif.errors import InfluenceError

MAX_DIRECTIONS = 256
MAX_FEATURES = 8_192  # their covariance must fit into memory
EXACT = 1e-9  # deviation, relative to the root mean square, below which all numbers of a feature are the same
ROUNDING = 1e-6  # deviation of a feature, relative to its own root mean square, below which it counts as constant
MIN_DEVIATION = 1e-3  # of one of many features, relative to the largest; it is not blown up to noise
LARGEST_DEVIATION = 30.0  # medians of all deviations; one in larger units does not make the others nearly constant
ITERATIONS = 8  # of the block power iteration
SAMPLE = 4_096  # rows whose medians tell where most of them lie
FAR = 100.0  # median distances from the medians, beyond which a row has no part in the scale
NEAR = 10.0  # median distances to which such a row is drawn in


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
        far: Positions of the rows that were left out of the fit.
        limit: Largest norm of projected features; infinite if no row was far outside.
        rounded: Positions of the features that hardly count though their numbers are not all the same.
    """

    mean: Tensor
    basis: Tensor

    def __init__(self, mean: Tensor, basis: Tensor, mean_square: float) -> None:
        super().__init__()
        self.mean_square = mean_square
        self.far: list[int] = []
        self.limit = math.inf
        self.rounded: list[int] = []
        self.register_buffer("mean", mean)
        self.register_buffer("basis", basis)

    @property
    def width(self) -> int:
        """Number of projected features."""
        return self.basis.shape[1]

    def forward(self, x: Tensor) -> Tensor:
        """Return the projected features, shape [n, k]."""
        projected: Tensor = (x.float() - self.mean) @ self.basis
        if math.isfinite(self.limit):
            norm = torch.linalg.vector_norm(projected, dim=1, keepdim=True)
            projected = projected * (self.limit / norm.clamp(min=self.limit))
        return projected

    def notes(self) -> list[str]:
        """Return what the user should know: a sentence each on rows far outside and on features lost to rounding."""
        notes = []
        if self.far:
            lies = f"and {len(self.far) - 1} more lie" if len(self.far) > 1 else "lies"
            notes.append(
                f"features: row {self.far[0]} {lies} more than {FAR:.0f} times as far out as half of all rows. Is a "
                "missing value filled in with a number there? Such labels are hardly judged; leave such rows out"
            )
        if self.rounded:
            vary = f"and {len(self.rounded) - 1} more vary" if len(self.rounded) > 1 else "varies"
            notes.append(
                f"features: column {self.rounded[0]} {vary} by less than a millionth of what its numbers are, and "
                "hardly counts. Is it a time in seconds? Subtract its mean first"
            )
        return notes


def fit_projection(features: FeatureBlocks) -> Projection:
    """Fit the projection, reading all features four times, in blocks.

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
    sample = _sample(features)
    centre = sample.median(0).values
    radius = float(torch.linalg.vector_norm(sample - centre, dim=1).median())
    far = _far_rows(features, centre, FAR * radius) if radius > 0 else torch.zeros(n, dtype=torch.bool)
    projection = _fit_to(features, ~far)
    if far.any():
        norms = torch.linalg.vector_norm(projection(sample), dim=1)
        projection.far, projection.limit = far.nonzero().flatten().tolist(), NEAR * float(norms.median())
    return projection


def _sample(features: FeatureBlocks) -> Tensor:
    """Return about `SAMPLE` rows at equal distances, shape [m, d]."""
    every = -(-len(features) // SAMPLE)
    return torch.cat([block[-first % every :: every] for first, block in features.blocks()])


def _far_rows(features: FeatureBlocks, centre: Tensor, distance: float) -> Tensor:
    """Return which rows lie further from the centre [d] than a distance, shape [N]."""
    parts = [torch.linalg.vector_norm((block - centre).double(), dim=1) > distance for _, block in features.blocks()]
    return torch.cat(parts)


def _fit_to(features: FeatureBlocks, kept: Tensor) -> Projection:
    """Fit the projection to the rows that are kept, bool of shape [N]."""
    n, d = int(kept.sum()), features.dim

    def blocks() -> Iterator[Tensor]:
        for first, block in features.blocks():
            rows = kept[first : first + len(block)]
            yield block if rows.all() else block[rows]

    total = torch.zeros(d, dtype=torch.float64)
    for block in blocks():
        total += block.double().sum(0)
    mean = total / n
    squares = torch.zeros(d, dtype=torch.float64)
    for block in blocks():
        squares += (block.double() - mean).square().sum(0)
    deviation = (squares / n).sqrt()
    if not float(deviation.max()) > 0:
        raise InfluenceError("features: every example has the same ones; nothing can be learnt from them")
    size = (mean.square() + deviation.square()).sqrt()
    least = ROUNDING * size
    if d >= MAX_DIRECTIONS:
        largest = torch.minimum(deviation.max(), LARGEST_DEVIATION * deviation[deviation > 0].median())
        least = least.clamp(min=MIN_DEVIATION * float(largest))
    scale = torch.maximum(deviation, torch.where(least > 0, least, 1.0))
    mean, scale = mean.float(), scale.float()
    if d <= MAX_DIRECTIONS:
        projection = Projection(mean, torch.diag(1 / scale), float((deviation / scale).square().sum()))
        projection.rounded = ((deviation > EXACT * size) & (deviation < ROUNDING * size)).nonzero().flatten().tolist()
        return projection
    covariance = torch.zeros(d, d)
    for block in blocks():
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
