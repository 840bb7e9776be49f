"""Decides from the scores of a detector alone which examples are removed before retraining; no true label is used.

`by_mixture` fits a mixture of clean and suspicious examples to the scores, as DivideMix does with losses (Li et al.,
ICLR 2020), and removes the examples that are more likely suspicious. With x = sign(s) sqrt|s|, which shortens the long
tail that losses and influences have:

    p(x) = (1 - w) N(x; m0, v) + w N(x; m1, v),   m0 < m1;      remove i if w N(x_i; m1, v) > (1 - w) N(x_i; m0, v)

The variance is shared: with two variances, a narrow clean component leaves every moderately difficult example to the
wide one. Sharing it also makes the rule one threshold, so that the removed set is always the top of the ranking. EM
starts from the best two-means split (Otsu's threshold); nothing is random. Nothing is removed if two Gaussians describe
the scores no better than one (BIC). `sgoif.label_noise` has another mixture, with a variance for each component.
"""

from __future__ import annotations

import numpy as np

MAX_REMOVED_SHARE = 0.95
MIN_EXAMPLES = 10  # too few to tell two components apart
MIN_RELATIVE_SPREAD = 1e-9  # scores that differ less than this are all equal but for rounding
MIN_RELATIVE_VARIANCE = 1e-6  # of a component, relative to the variance of all


def by_mixture(scores: np.ndarray) -> np.ndarray:
    """Return which examples belong to the suspicious component of a two-Gaussian mixture.

    Args:
        scores: Higher = more suspicious, shape [N].

    Returns:
        Bool, shape [N]; all False if there are not two components.
    """
    scores = np.asarray(scores, dtype=np.float64)
    none = np.zeros(scores.shape, dtype=bool)
    x = np.sign(scores) * np.sqrt(np.abs(scores))
    if scores.size < MIN_EXAMPLES or not x.std() > MIN_RELATIVE_SPREAD * np.abs(x).max():
        return none
    x = (x - x.mean()) / x.std()
    weights, means, variance = fit_two_gaussians(x)
    joint = _log_joint(x, weights, means, variance)
    one_gaussian = -0.5 * (x**2 + np.log(2 * np.pi))
    gain = np.logaddexp(*joint).sum() - one_gaussian.sum()
    if 2 * gain <= 2 * np.log(x.size):  # BIC: a second mean and a weight are two more parameters
        return none
    return at_most(joint[1] > joint[0], scores)


def at_most(remove: np.ndarray, scores: np.ndarray, share: float = MAX_REMOVED_SHARE) -> np.ndarray:
    """Limit a removal to a share of the examples, by keeping the least suspicious of the removed.

    Args:
        remove: Bool, shape [N].
        scores: Higher = more suspicious, shape [N].
        share: Largest share of the N examples that may be removed.

    Returns:
        Bool, shape [N]: `remove` itself if it is small enough.
    """
    limit = int(share * scores.size)
    if remove.sum() <= limit:
        return remove
    most_suspicious = np.argsort(-np.where(remove, scores, -np.inf), kind="stable")[:limit]
    limited = np.zeros_like(remove)
    limited[most_suspicious] = True
    return limited


def otsu(x: np.ndarray) -> float:
    """Return the threshold t with the greatest variance between {x <= t} and {x > t}, for x of shape [N]."""
    ordered = np.sort(x)
    below = np.arange(1, x.size)
    sums = np.cumsum(ordered)
    low, high = sums[:-1] / below, (sums[-1] - sums[:-1]) / (x.size - below)
    return float(ordered[np.argmax(below * (x.size - below) * (high - low) ** 2)])


def fit_two_gaussians(
    x: np.ndarray, max_steps: int = 300, tolerance: float = 1e-9
) -> tuple[np.ndarray, np.ndarray, float]:
    """Fit a mixture of two Gaussians with a common variance by EM.

    Args:
        x: Values, shape [N].
        max_steps: Limit of EM steps.
        tolerance: EM ends when the mean log-likelihood grows by less.

    Returns:
        Weights, shape [2]; means, shape [2], ascending; the common variance.
    """
    above = x > otsu(x)
    responsibility = np.stack([~above, above]).astype(np.float64)  # [2, N]
    previous = -np.inf
    for _ in range(max_steps):
        total = np.maximum(responsibility.sum(axis=1), 1e-9)
        weights, means = total / x.size, responsibility @ x / total
        squares = (responsibility * (x - means[:, None]) ** 2).sum()
        variance = max(squares / x.size, MIN_RELATIVE_VARIANCE * x.var())
        joint = _log_joint(x, weights, means, variance)
        log_likelihood = np.logaddexp(*joint)
        responsibility = np.exp(joint - log_likelihood)
        if log_likelihood.mean() - previous < tolerance:
            break
        previous = log_likelihood.mean()
    return weights, means, variance


def _log_joint(x: np.ndarray, weights: np.ndarray, means: np.ndarray, variance: float) -> np.ndarray:
    """Return log(weight times density) of both components, shape [2, N]."""
    return np.log(weights)[:, None] - 0.5 * ((x - means[:, None]) ** 2 / variance + np.log(2 * np.pi * variance))
