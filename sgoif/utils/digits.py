"""scikit-learn's handwritten digits, which come with the package and need no download."""

from __future__ import annotations

import numpy as np


def load_digit_images() -> tuple[np.ndarray, np.ndarray]:
    """Load the 1,797 digits as grey images.

    Returns:
        Images as uint8, shape [1797, 8, 8], with the 17 grey levels spread over 0..255, and labels as int64,
        shape [1797].
    """
    from sklearn.datasets import load_digits

    data = load_digits()
    return np.round(data.images * (255 / 16)).astype(np.uint8), data.target.astype(np.int64)
