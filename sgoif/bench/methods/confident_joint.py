"""Estimates the joint of given and true labels from out-of-fold probabilities, as confident learning counts it.

Northcutt, Jiang & Chuang, JAIR 70 (2021) 1373-1411; `baselines/noisy/confident_learning.py` has the formulas and what
is made of them. Here is what other methods share: how many labels it takes for wrong, the number that all detectors
remove when they are compared at the same number.
"""

from __future__ import annotations

import numpy as np

SLACK = 1e-6  # a probability this close to a threshold, or to the maximum, reaches it


def self_confidence(p: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[N] probability of the given label."""
    return p[np.arange(len(p)), labels]


def thresholds(p: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[K] mean self-confidence of each class; 2 (out of reach) for a class without examples."""
    n = np.bincount(labels, minlength=p.shape[1])
    total = np.bincount(labels, weights=self_confidence(p, labels), minlength=p.shape[1])
    return np.where(n > 0, np.maximum(total / np.maximum(n, 1), 2 * SLACK), 2.0)


def confident_guess(p: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[N] the class each example confidently belongs to; -1 for none."""
    confident = p >= thresholds(p, labels) - SLACK
    how_many = confident.sum(axis=1)
    return np.where(how_many == 0, -1, np.where(how_many == 1, confident.argmax(axis=1), p.argmax(axis=1)))


def confident_joint(p: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[K given, K guessed] raw counts; at least one rightly labelled example in every class."""
    k, guess = p.shape[1], confident_guess(p, labels)
    counted = guess >= 0
    joint = np.bincount(labels[counted] * k + guess[counted], minlength=k * k).reshape(k, k)
    np.fill_diagonal(joint, np.maximum(joint.diagonal(), 1))
    return joint


def calibrate(joint: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The joint in whole examples, with as many in row j as are given label j."""
    n = np.bincount(labels, minlength=len(joint))
    return round_rows(joint / joint.sum(axis=1, keepdims=True) * n[:, None])


def round_rows(x: np.ndarray) -> np.ndarray:
    """Nearest integers with the same row sums: what a row lacks goes where rounding took most."""
    nearest = np.rint(x)
    missing = np.rint(x.sum(axis=1, keepdims=True)) - nearest.sum(axis=1, keepdims=True)  # at most K / 2 either way
    rank = np.argsort(np.argsort(x - nearest, axis=1, kind="stable"), axis=1, kind="stable")
    return (nearest + (rank >= x.shape[1] - missing) - (rank < -missing)).astype(np.int64)


def count_wrong(p: np.ndarray, labels: np.ndarray) -> int:
    """Return how many labels confident learning takes for wrong: those off the diagonal of the calibrated joint.

    Args:
        p: Out-of-fold probabilities, shape [N, K].
        labels: Noisy labels, shape [N].
    """
    return int(len(labels) - np.trace(calibrate(confident_joint(p, labels), labels)))
