"""Classes that are confused as a whole, and classes too small to judge."""

from __future__ import annotations

from typing import Any

import numpy as np

SMALL_CLASS = 20  # with fewer examples a class's labels are judged by too few others
CONFUSED_SHARE = 0.3  # of a class's labels that probably belong to one other class


def find_class_issues(
    labels: np.ndarray, wrong_probability: np.ndarray, probabilities: np.ndarray, names: list[str]
) -> list[dict[str, Any]]:
    """Find what concerns whole classes.

    Args:
        labels: Labels, shape [N].
        wrong_probability: Probability that each label is wrong, shape [N].
        probabilities: Class probabilities of each example, shape [N, C].
        names: Names of the classes.

    Returns:
        Classes of which at least `CONFUSED_SHARE` probably belong to one other class (kind "confused", the greatest
        share first), then classes with fewer than `SMALL_CLASS` examples (kind "small").
    """
    others = probabilities.copy()
    others[np.arange(len(labels)), labels] = -1
    moved = np.zeros((len(names), len(names)))
    np.add.at(moved, (labels, others.argmax(1)), wrong_probability)
    sizes = np.bincount(labels, minlength=len(names))
    share = moved / np.maximum(sizes, 1)[:, None]
    pairs = [(a, int(share[a].argmax())) for a in range(len(names))]
    confused = sorted((p for p in pairs if share[p] >= CONFUSED_SHARE), key=lambda p: -share[p])
    return [
        {"kind": "confused", "given": names[a], "other": names[b], "share": round(float(share[a, b]), 3)}
        for a, b in confused
    ] + [
        {"kind": "small", "given": names[c], "examples": int(sizes[c])}
        for c in np.flatnonzero(sizes < SMALL_CLASS).tolist()
    ]
