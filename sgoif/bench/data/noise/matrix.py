"""The class-conditional noise matrices of the confident-learning experiments.

T[s, y] = P(label = s | true label = y): every column sums to 1, the diagonal sums to `trace`, and a fraction of
the entries off the diagonal is zero. The order of the random draws is part of the definition: with seed 0 the twelve
published matrices for CIFAR-10 come out bit for bit (cleanlab 2.9.0 is the oracle in the tests).
"""

from __future__ import annotations

import numpy as np

_SLACK = 1e-6  # what the published procedure allows a probability to stick out of its bounds
_LEAST_DIAGONAL = 1e-5


def noise_matrix(n_classes: int, trace: float, frac_zero: float = 0.0, seed: int = 0) -> np.ndarray:
    """A random column-stochastic matrix [n_classes, n_classes] with this trace and this fraction of zeros.

    Needs n_classes >= 2, 0 < trace <= n_classes and 0 <= frac_zero <= (n_classes - 2) / (n_classes - 1), since each
    noisy column keeps at least one wrong label to flip to; `noise.check_spec` says so to the user.
    """
    rng = np.random.RandomState(seed)
    if n_classes == 2:
        return _two_classes(trace, frac_zero, rng)
    diagonal = _parts(rng, n_classes, trace, low=_LEAST_DIAGONAL)
    matrix = np.diag(diagonal)
    noisy = np.flatnonzero(diagonal != 1)
    # Columns without noise are full of zeros already; the rest of the zeros is dealt out over the noisy columns.
    zeros = int(n_classes * (n_classes - 1) * frac_zero) - (n_classes - len(noisy)) * (n_classes - 1)
    zeros_in_column = _deal(rng, max(zeros, 0), bins=len(noisy), most=n_classes - 2)
    for y, n_zeros in zip(noisy, zeros_in_column, strict=True):
        n_targets = n_classes - 1 - n_zeros
        rates = _parts(rng, n_targets, 1 - diagonal[y], high=1 - _LEAST_DIAGONAL)
        targets = rng.choice(np.delete(np.arange(n_classes), y), n_targets, replace=False)
        matrix[targets, y] = rates[::-1]
    return matrix


def _two_classes(trace: float, frac_zero: float, rng: np.random.RandomState) -> np.ndarray:
    """With two classes the diagonal says it all, and the only possible zero is a class without noise."""
    if frac_zero >= 0.5:
        matrix = np.array([[1.0, 1 - (trace - 1.0)], [0.0, trace - 1.0]])
        return matrix if rng.rand() > 0.5 else matrix[::-1, ::-1].copy()
    a, b = _parts(rng, 2, trace)
    return np.array([[a, 1 - b], [1 - a, b]])


def _parts(rng: np.random.RandomState, n: int, total: float, low: float = 0.0, high: float = 1.0) -> np.ndarray:
    """n random numbers in [low, high] that sum to `total`: a flat Dirichlet draw, repaired where it sticks out.

    A repair moves the excess of the largest number to the smallest one (or the lack of the smallest to the largest) and
    then shifts a random share of what is left between the two, so that not every repaired number lies on its bound.
    """
    parts = rng.dirichlet(np.ones(n)) * total
    while parts.max() > high + _SLACK:
        raised = parts.min() + (parts.max() - high)
        shift = (high - raised) * rng.rand()
        parts[parts.argmin()] = raised + shift
        parts[parts.argmax()] = high - shift
    while parts.min() < low - _SLACK:
        lowered = parts.max() - (low - parts.min())
        shift = (lowered - low) * rng.rand()
        parts[parts.argmax()] = lowered - shift
        parts[parts.argmin()] = low + shift
    return parts


def _deal(rng: np.random.RandomState, balls: int, bins: int, most: int) -> np.ndarray:
    """How many of the balls fall into each bin, at most `most` in one; the sum is `balls`, or all bins full."""
    if balls == 0:
        return np.zeros(bins, dtype=int)
    most = min(most, balls)
    balls = min(balls, most * bins)
    counts = np.round(_parts(rng, bins, 1, high=most / balls) * balls)
    while counts.sum() > balls:
        counts[counts.argmax()] -= 1
    while counts.sum() < balls:
        counts[counts.argmin()] += 1
    return counts.astype(int)
