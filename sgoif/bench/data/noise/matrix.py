"""Draw the class-conditional noise matrices of the confident-learning experiments.

T[s, y] = P(label = s | true label = y): every column sums to 1, the diagonal sums to `trace`, and a fraction of
the entries off the diagonal is zero. The order of the random draws is part of the definition: with seed 0 the twelve
published matrices for CIFAR-10 come out bit for bit (cleanlab 2.9.0 is the oracle in the tests).
"""

from __future__ import annotations

import numpy as np

_TOLERANCE = 1e-6  # by how much the published procedure lets a probability exceed its bounds
_MIN_DIAGONAL = 1e-5


def noise_matrix(n_classes: int, trace: float, frac_zero: float = 0.0, seed: int = 0) -> np.ndarray:
    """Draw a random column-stochastic matrix with a given trace and fraction of zeros.

    `check_spec` in `noise/spec.py` tells users when the arguments are impossible; they are not checked here.

    Args:
        n_classes: Number of classes K, at least 2.
        trace: Sum of the diagonal, 0 < trace <= K.
        frac_zero: Fraction of zeros among the entries off the diagonal, at most (K - 2) / (K - 1), since each noisy
            column keeps at least one wrong label to flip to.
        seed: Seed of the draw.

    Returns:
        T with T[s, y] = P(label = s | true label = y), float64, shape [K, K].
    """
    rng = np.random.RandomState(seed)
    if n_classes == 2:
        return _two_classes(trace, frac_zero, rng)
    diagonal = _draw_summing_to(rng, n_classes, trace, low=_MIN_DIAGONAL)
    matrix = np.diag(diagonal)
    noisy = np.flatnonzero(diagonal != 1)
    # Columns without noise are full of zeros already; the other zeros are distributed over the noisy columns.
    zeros = int(n_classes * (n_classes - 1) * frac_zero) - (n_classes - len(noisy)) * (n_classes - 1)
    zeros_in_column = _distribute(rng, max(zeros, 0), bins=len(noisy), capacity=n_classes - 2)
    for y, n_zeros in zip(noisy, zeros_in_column, strict=True):
        n_targets = n_classes - 1 - n_zeros
        rates = _draw_summing_to(rng, n_targets, 1 - diagonal[y], high=1 - _MIN_DIAGONAL)
        targets = rng.choice(np.delete(np.arange(n_classes), y), n_targets, replace=False)
        matrix[targets, y] = rates[::-1]
    return matrix


def _two_classes(trace: float, frac_zero: float, rng: np.random.RandomState) -> np.ndarray:
    """Draw a 2 x 2 matrix: the diagonal determines it, and the only possible zero is a class without noise."""
    if frac_zero >= 0.5:
        matrix = np.array([[1.0, 1 - (trace - 1.0)], [0.0, trace - 1.0]])
        return matrix if rng.rand() > 0.5 else matrix[::-1, ::-1].copy()
    a, b = _draw_summing_to(rng, 2, trace)
    return np.array([[a, 1 - b], [1 - a, b]])


def _draw_summing_to(
    rng: np.random.RandomState, n: int, total: float, low: float = 0.0, high: float = 1.0
) -> np.ndarray:
    """Draw n random numbers in [low, high] that sum to `total`: a flat Dirichlet draw, repaired at the bounds.

    A repair moves the excess of the largest number to the smallest one (or the lack of the smallest to the largest) and
    then shifts a random share of what is left between the two, so that not every repaired number lies on its bound.
    """
    parts = rng.dirichlet(np.ones(n)) * total
    while parts.max() > high + _TOLERANCE:
        raised = parts.min() + (parts.max() - high)
        shift = (high - raised) * rng.rand()
        parts[parts.argmin()] = raised + shift
        parts[parts.argmax()] = high - shift
    while parts.min() < low - _TOLERANCE:
        lowered = parts.max() - (low - parts.min())
        shift = (lowered - low) * rng.rand()
        parts[parts.argmax()] = lowered - shift
        parts[parts.argmin()] = low + shift
    return parts


def _distribute(rng: np.random.RandomState, count: int, bins: int, capacity: int) -> np.ndarray:
    """Distribute `count` items at random over bins of this capacity; if they do not fit, fill all bins."""
    if count == 0:
        return np.zeros(bins, dtype=int)
    capacity = min(capacity, count)
    count = min(count, capacity * bins)
    counts = np.round(_draw_summing_to(rng, bins, 1, high=capacity / count) * count)
    while counts.sum() > count:
        counts[counts.argmax()] -= 1
    while counts.sum() < count:
        counts[counts.argmin()] += 1
    return counts.astype(int)
