"""Which examples a detector removes before retraining, decided from its scores alone — never from the truth.

`by_mixture` reads the scores as a mixture of clean and suspicious examples, as DivideMix does with losses (Li et al.,
ICLR 2020), and removes what more likely is suspicious. With x = sign(s) sqrt|s|, which shortens the long tail that
losses and influences have:

    p(x) = (1 - w) N(x; m0, v) + w N(x; m1, v),   m0 < m1;      remove i if w N(x_i; m1, v) > (1 - w) N(x_i; m0, v)

The variance is shared: with two of them a narrow clean component leaves every moderately difficult example to the wide
one. It also makes the rule one threshold, so that the removed set is always the top of the ranking. EM starts from
the best two-means split (Otsu's threshold); nothing is random. Nothing is removed where two Gaussians describe the
scores no better than one (BIC).
"""

import numpy as np

MOST = 0.95  # never remove more than this share
_MIN_EXAMPLES = 10  # fewer say nothing about two components


def by_mixture(scores: np.ndarray) -> np.ndarray:
    """[N] bool: the examples of the suspicious component of a two-Gaussian mixture."""
    scores = np.asarray(scores, dtype=np.float64)
    none = np.zeros(scores.shape, dtype=bool)
    x = np.sign(scores) * np.sqrt(np.abs(scores))
    if scores.size < _MIN_EXAMPLES or not x.std() > 1e-9 * np.abs(x).max():
        return none
    x = (x - x.mean()) / x.std()
    weight, mean, variance = fit_two(x)
    joint = _log_joint(x, weight, mean, variance)
    one = -0.5 * (x**2 + np.log(2 * np.pi))
    gain = np.logaddexp(*joint).sum() - one.sum()
    if 2 * gain <= 2 * np.log(x.size):  # BIC: a second mean and a weight are two more parameters
        return none
    return at_most(joint[1] > joint[0], scores)


def at_most(remove: np.ndarray, scores: np.ndarray, share: float = MOST) -> np.ndarray:
    """`remove` with its least suspicious members given back, should it hold more than `share` of the examples."""
    limit = int(share * scores.size)
    if remove.sum() <= limit:
        return remove
    most_suspicious = np.argsort(-np.where(remove, scores, -np.inf), kind="stable")[:limit]
    kept = np.zeros_like(remove)
    kept[most_suspicious] = True
    return kept


def otsu(x: np.ndarray) -> float:
    """The threshold of the two-means split: the greatest variance between {x <= t} and {x > t}. O(N log N)."""
    ordered = np.sort(x)
    below = np.arange(1, x.size)
    sums = np.cumsum(ordered)
    low, high = sums[:-1] / below, (sums[-1] - sums[:-1]) / (x.size - below)
    return float(ordered[np.argmax(below * (x.size - below) * (high - low) ** 2)])


def fit_two(x: np.ndarray, steps: int = 300, tolerance: float = 1e-9) -> tuple[np.ndarray, np.ndarray, float]:
    """Weights [2], means [2] (ascending) and the shared variance of a Gaussian mixture, by EM."""
    above = x > otsu(x)
    responsibility = np.stack([~above, above]).astype(np.float64)  # [2, N]
    previous = -np.inf
    for _ in range(steps):
        total = np.maximum(responsibility.sum(axis=1), 1e-9)
        weight, mean = total / x.size, responsibility @ x / total
        variance = max((responsibility * (x - mean[:, None]) ** 2).sum() / x.size, 1e-6 * x.var())
        joint = _log_joint(x, weight, mean, variance)
        evidence = np.logaddexp(*joint)
        responsibility = np.exp(joint - evidence)
        if evidence.mean() - previous < tolerance:
            break
        previous = evidence.mean()
    return weight, mean, variance


def _log_joint(x: np.ndarray, weight: np.ndarray, mean: np.ndarray, variance: float) -> np.ndarray:
    """[2, N] log of weight times density."""
    return np.log(weight)[:, None] - 0.5 * ((x - mean[:, None]) ** 2 / variance + np.log(2 * np.pi * variance))
