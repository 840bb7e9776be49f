"""Confident Learning. Northcutt, Jiang & Chuang, JAIR 70 (2021) 1373-1411 (arXiv:1911.00068).

From out-of-fold probabilities p [N, K] and given labels y:

    thresholds   t_k = mean of p_ik over the examples given k
    guess        example i belongs to k if p_ik >= t_k; if to several, to argmax_k p_ik; if to none, it is not counted
    joint        C[j, k] = number of examples given j that belong to k; its rows are scaled to the number of examples
                 given j and rounded to whole examples. C / N estimates the joint of given and true labels, so that
                 1 - trace(C) / N is the estimated noise rate.

Five prune rules say which labels are wrong:

    argmax                 argmax_k p_ik != y_i                                     (C_confusion)
    confident              the off-diagonal examples that were counted in C         (C_confident joint)
    prune_by_class         of class j, the N_j - C[j, j] with the lowest p_ij       (PBC)
    prune_by_noise_rate    of each pair j != k, the C[j, k] given j with the highest p_ik - p_ij  (PBNR)
    both                   prune_by_class and prune_by_noise_rate                   (C + NR)

As in cleanlab 2, no rule calls a label wrong that the prediction agrees with, and each class keeps an example.

Candidates: 1 - p_iy (self-confidence, cleanlab's default), the margin max_{k != y} p_ik - p_iy and the
confidence-weighted entropy H(p_i) / (p_iy log K); `adjusted_*` take p'_ik ~ p_ik - t_k + max t, which forgives classes
the network is unsure of. Removal rule: `prune` (default `prune_by_noise_rate`, the paper's and cleanlab's
recommendation). What is left is retrained with class weights 1 / P(given k | true k) = sum_j C[j, k] / C[k, k], which
make up for what was pruned, as cleanlab's `CleanLearning` does. (The released training script has the sizes of the
classes before over those after pruning.)

Code: https://github.com/cleanlab/cleanlab, https://github.com/cgnorthcutt/confidentlearning-reproduce
Deviations: the paper's Co-Teaching on the pruned set is left out. A fold is predicted by the network of the last epoch,
    without augmentation (released: of the epoch with the best accuracy on clean test images, with crops and flips).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sgoif.bench.methods.base import Detection, NoisyLabelDetector
from sgoif.bench.methods.confident_joint import (
    SLACK,
    calibrate,
    confident_guess,
    confident_joint,
    self_confidence,
    thresholds,
)
from sgoif.bench.methods.cross_validation import out_of_fold
from sgoif.bench.methods.tasks import NoisyTask


def prune_masks(p: np.ndarray, labels: np.ndarray, joint: np.ndarray) -> dict[str, np.ndarray]:
    """The labels each of the five rules calls wrong, [N] bool each; `joint` is the calibrated one."""
    k, guess = p.shape[1], confident_guess(p, labels)
    none_right = (joint.diagonal() < 1)[:, None]  # every example of the class would be called wrong: leave one
    counts = np.where(none_right, np.maximum(joint - 1, 0), joint)
    np.fill_diagonal(counts, np.maximum(counts.diagonal(), 1))

    by_class, by_noise_rate = np.zeros(len(p), dtype=bool), np.zeros(len(p), dtype=bool)
    for j in range(k):
        members = np.flatnonzero(labels == j)
        if len(members) < 2:
            continue
        by_class[members[np.argsort(p[members, j], kind="stable")[: max(len(members) - counts[j, j], 0)]]] = True
        margins = p[members] - p[members, j : j + 1]  # [members, K]
        place = np.argsort(np.argsort(-margins, axis=0, kind="stable"), axis=0)  # 0 = widest margin towards that class
        chosen = place < counts[j]
        chosen[:, j] = False
        by_noise_rate[members] = chosen.any(axis=1)

    agrees = (p + SLACK * np.eye(k)[labels]).argmax(axis=1) == labels
    masks = {
        "argmax": p.argmax(axis=1) != labels,
        "confident": (guess >= 0) & (guess != labels),
        "prune_by_class": by_class,
        "prune_by_noise_rate": by_noise_rate,
        "both": by_class & by_noise_rate,
    }
    return {rule: mask & ~agrees for rule, mask in masks.items()}


def margin(p: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """max_{k != y} p_k - p_y, in [-1, 1]."""
    others = p.copy()
    others[np.arange(len(p)), labels] = -np.inf
    return others.max(axis=1) - self_confidence(p, labels)


def weighted_entropy(p: np.ndarray, labels: np.ndarray) -> np.ndarray:
    entropy = -np.sum(p * np.log(np.where(p > 0, p, 1.0)), axis=1) / np.log(p.shape[1])
    return entropy / np.maximum(self_confidence(p, labels), SLACK)


def adjusted(p: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Probabilities with each class's threshold taken off, shifted to be positive and normalised."""
    t = thresholds(p, labels)
    shifted = p - t + t.max()
    return shifted / shifted.sum(axis=1, keepdims=True)


def class_weights(joint: np.ndarray) -> np.ndarray:
    """[K] 1 / P(given k | true k), by which the classes that lost examples count more in retraining."""
    return joint.sum(axis=0) / np.maximum(joint.diagonal(), 1)


RULES = ("argmax", "confident", "prune_by_class", "prune_by_noise_rate", "both")


class ConfidentLearning(NoisyLabelDetector):
    name = "confident_learning"
    title = "CL"
    group = "Methods of the paper"
    order = 8
    reads_folds = True
    candidates: ClassVar = {
        "self_confidence": "one minus the out-of-fold probability of the label (cleanlab's default)",
        "normalized_margin": "margin of the best other class over the label",
        "confidence_weighted_entropy": "entropy of the prediction over the probability of the label",
        "adjusted_self_confidence": "self-confidence of probabilities adjusted by the classes' thresholds",
        "adjusted_margin": "margin of probabilities adjusted by the classes' thresholds",
    }
    ranked_by = "adjusted_margin"

    @dataclass(frozen=True)
    class Params:
        prune: str = "prune_by_noise_rate"

    def __init__(self, **params):
        super().__init__(**params)
        self.need(self.params.prune in RULES, "prune", f"one of {', '.join(RULES)}")

    def detect(self, task: NoisyTask) -> Detection:
        p, labels = out_of_fold(task), task.labels.cpu().numpy()
        joint = calibrate(confident_joint(p, labels), labels)
        masks = prune_masks(p, labels, joint)
        extras = {f"pruned_{rule}": float(mask.sum()) for rule, mask in masks.items()}
        scores = {
            "self_confidence": 1.0 - self_confidence(p, labels),
            "normalized_margin": margin(p, labels),
            "confidence_weighted_entropy": weighted_entropy(p, labels),
            "adjusted_self_confidence": 1.0 - self_confidence(adjusted(p, labels), labels),
            "adjusted_margin": margin(adjusted(p, labels), labels),
        }
        return self.detection(
            scores,
            remove=masks[self.params.prune],
            class_weights=class_weights(joint),
            extras={"noise_rate": float(1 - np.trace(joint) / len(labels)), **extras},
        )
