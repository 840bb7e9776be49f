"""Which examples a detector removes before retraining, decided from its scores alone — never from the truth.

`by_mixture` reads the scores as a mixture of a clean and a suspicious Gaussian (the split DivideMix makes of the
losses; Li et al., ICLR 2020) and removes what more likely belongs to the suspicious one:

    p(s) = (1 - w) N(s; m0, v0) + w N(s; m1, v1),   m0 < m1;     remove s_i above the point between m0 and m1
                                                                 where both are equally likely

EM starts from the best two-means split (Otsu's threshold), so nothing is random. The removed set is always an upper
set of the ranking; it is empty where two Gaussians describe the scores no better than one (BIC).
"""

import numpy as np

MOST = 0.95  # never remove more than this share
_MIN_EXAMPLES = 10  # fewer say nothing about two components
_VARIANCE_FLOOR = 1e-4  # of the total variance: keeps a component from collapsing onto equal scores


def by_mixture(scores: np.ndarray, most: float = MOST) -> np.ndarray:
    """[N] bool: the examples of the suspicious component of a two-Gaussian mixture."""
    scores = np.asarray(scores, dtype=np.float64)
    none = np.zeros(scores.shape, dtype=bool)
    spread = scores.std()
    if scores.size < _MIN_EXAMPLES or not spread > 1e-12 * max(abs(scores.mean()), 1e-300):
        return none
    x = (scores - scores.mean()) / spread
    weight, mean, variance = fit_two(x)
    one_sided = _log_likelihood(x, np.ones(1), np.zeros(1), np.ones(1))
    gain = _log_likelihood(x, weight, mean, variance) - one_sided
    if 2 * gain <= 3 * np.log(x.size):  # BIC: three more parameters
        return none
    clean, suspicious = _log_joint(x, weight, mean, variance)
    likely_clean = (x <= mean[1]) & ((clean >= suspicious) | (x <= mean[0]))
    remove = x > (x[likely_clean].max() if likely_clean.any() else mean[0])
    return at_most(remove, scores, most)


def at_most(remove: np.ndarray, scores: np.ndarray, share: float = MOST) -> np.ndarray:
    """`remove` with its least suspicious members given back, should it hold more than `share` of the examples."""
    limit = int(share * scores.size)
    if remove.sum() <= limit:
        return remove
    ranked = np.argsort(-np.where(remove, scores, -np.inf), kind="stable")
    kept = np.zeros_like(remove)
    kept[ranked[:limit]] = True
    return kept


def otsu(x: np.ndarray) -> float:
    """The threshold of the two-means split: the greatest variance between {x <= t} and {x > t}. O(N log N)."""
    ordered = np.sort(x)
    below = np.arange(1, x.size)
    low = np.cumsum(ordered)[:-1] / below
    high = (ordered.sum() - np.cumsum(ordered)[:-1]) / (x.size - below)
    return float(ordered[np.argmax(below * (x.size - below) * (high - low) ** 2)])


def fit_two(x: np.ndarray, steps: int = 200, tolerance: float = 1e-7) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, means (ascending) and variances [2] of a Gaussian mixture, by EM."""
    floor = _VARIANCE_FLOOR * x.var()
    responsibility = np.stack([x <= otsu(x), x > otsu(x)]).astype(np.float64)  # [2, N]
    previous = -np.inf
    for _ in range(steps):
        total = np.maximum(responsibility.sum(axis=1), 1e-9)
        weight = total / x.size
        mean = responsibility @ x / total
        variance = np.maximum((responsibility * (x - mean[:, None]) ** 2).sum(axis=1) / total, floor)
        joint = _log_joint(x, weight, mean, variance)
        evidence = np.logaddexp(*joint)
        responsibility = np.exp(joint - evidence)
        if evidence.mean() - previous < tolerance:
            break
        previous = evidence.mean()
    order = np.argsort(mean)
    return weight[order], mean[order], variance[order]


def _log_joint(x, weight, mean, variance) -> np.ndarray:
    """[components, N] log of weight times density."""
    distance = (x - mean[:, None]) ** 2 / variance[:, None]
    return np.log(weight)[:, None] - 0.5 * (distance + np.log(2 * np.pi * variance)[:, None])


def _log_likelihood(x, weight, mean, variance) -> float:
    return float(np.logaddexp.reduce(_log_joint(x, weight, mean, variance), axis=0).sum())
