"""Metrics of label-error and OOD detection: pure functions of scores and truth.

A noisy-label score is higher for a more suspicious label, an OOD score for an image further out of distribution.
Every value is a fraction (0.911, not 91.1). Scores that are not finite raise a UserError and are never ranked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from sgoif.errors import UserError

RECALL_PERCENTS = (1, 5, 10)
OOD_METRICS = ("auroc", "aupr_out_ap", "aupr_out_trapezoid", "aupr_in_ap", "aupr_in_trapezoid", "fpr95")


def finite_array(values: np.ndarray, what: str) -> np.ndarray:
    """Return values as float64.

    Raises:
        UserError: If one is NaN or infinite; the message begins with `what`.
    """
    values = np.asarray(values, dtype=np.float64)
    bad = int(np.size(values) - np.isfinite(values).sum())
    if bad:
        raise UserError(f"{what}: {bad} of {values.size} values are NaN or infinite")
    return values


def _scores_and_mask(scores: np.ndarray, positive: np.ndarray, what: str) -> tuple[np.ndarray, np.ndarray]:
    scores, positive = finite_array(scores, what), np.asarray(positive, dtype=bool)
    if scores.ndim != 1 or scores.shape != positive.shape:
        raise UserError(f"{what}: shape {scores.shape} does not fit the truth's shape {positive.shape}")
    if positive.all() or not positive.any():
        raise UserError(f"{what}: the truth has {int(positive.sum())} positives of {positive.size}; nothing to rank")
    return scores, positive


# ------------------------------------------------------------------------------------------------ noisy labels


def top_count(n: int, percent: int) -> int:
    """Return ceil(percent/100 * n), computed in integers (0.07 * 100 is 7.000000000000001 in floats)."""
    return -(-n * percent // 100)


def expected_hits(scores: np.ndarray, positive: np.ndarray, k: int) -> float:
    """Return the expected number of positives among the k highest scores when ties are broken at random.

    With `a` scores above the k-th highest value t, and m scores equal to t of which w are positive:
    hits = (positives above t) + (k - a) * w / m.
    """
    threshold = np.partition(scores, scores.size - k)[scores.size - k]
    above, tied = scores > threshold, scores == threshold
    return float(positive[above].sum() + (k - above.sum()) * positive[tied].sum() / tied.sum())


def detection(scores: np.ndarray, wrong: np.ndarray, what: str = "scores") -> dict[str, float]:
    """Return P@1%, AUC-PR (average precision), AUROC, R-precision and Recall@1/5/10% of a score for wrong labels.

    R-precision is the share of wrong labels among as many of the most suspicious as there are wrong labels.

    Args:
        scores: Higher is more suspicious, shape [n].
        wrong: Which labels are wrong, shape [n].
        what: Name of the scores in errors.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    scores, wrong = _scores_and_mask(scores, wrong, what)
    k = top_count(scores.size, 1)
    out = {
        "p_at_1": expected_hits(scores, wrong, k) / k,
        "auc_pr": float(average_precision_score(wrong, scores)),
        "auroc": float(roc_auc_score(wrong, scores)),
        "r_precision": expected_hits(scores, wrong, int(wrong.sum())) / int(wrong.sum()),
    }
    for percent in RECALL_PERCENTS:
        hits = expected_hits(scores, wrong, top_count(scores.size, percent))
        out[f"recall_at_{percent}"] = hits / int(wrong.sum())
    return out


def top_taus(epoch_scores: np.ndarray, what: str = "epoch_scores") -> list[float]:
    """Return the stability of the top of the ranking: Kendall's tau-b of the top 1% of every two adjacent epochs.

    The tau is taken over the union of the two top-1% sets (ties at the edge of a set go to the lower index). It is NaN
    if one epoch's scores are constant on the union.

    Args:
        epoch_scores: Scores of every epoch, shape [epochs, n].
        what: Name of the scores in errors.
    """
    from scipy.stats import kendalltau

    epoch_scores = finite_array(epoch_scores, what)
    k = top_count(epoch_scores.shape[1], 1)
    tops = np.argsort(-epoch_scores, axis=1, kind="stable")[:, :k]
    taus = []
    for e in range(len(epoch_scores) - 1):
        union = np.union1d(tops[e], tops[e + 1])
        before, after = epoch_scores[e, union], epoch_scores[e + 1, union]
        ordered = np.ptp(before) > 0 and np.ptp(after) > 0
        taus.append(float(kendalltau(before, after).statistic) if ordered else math.nan)
    return taus


def top_tau(epoch_scores: np.ndarray, what: str = "epoch_scores") -> float:
    """Return the mean of `top_taus` over the pairs of epochs that have one; NaN if none has."""
    taus = [tau for tau in top_taus(epoch_scores, what) if not math.isnan(tau)]
    return float(np.mean(taus)) if taus else math.nan


def by_epoch(epoch_scores: np.ndarray, wrong: np.ndarray, what: str = "epoch_scores") -> dict[str, list[float]]:
    """Return the AUC-PR of each epoch's own scores, and the tau of its top 1% with the epoch before (first: NaN)."""
    from sklearn.metrics import average_precision_score

    ranked = [_scores_and_mask(scores, wrong, what) for scores in epoch_scores]
    precision = [float(average_precision_score(truth, scores)) for scores, truth in ranked]
    return {"auc_pr": precision, "tau_top1": [math.nan, *top_taus(epoch_scores, what)][: len(precision)]}


def removal(remove: np.ndarray, wrong: np.ndarray, what: str = "remove") -> dict[str, float]:
    """Return precision, recall and F1 of a removal mask, and its relative count error (removed - wrong) / wrong.

    Removing nothing has precision 0 by convention.
    """
    remove, wrong = np.asarray(remove, dtype=bool), np.asarray(wrong, dtype=bool)
    if remove.shape != wrong.shape:
        raise UserError(f"{what}: shape {remove.shape} does not fit the truth's shape {wrong.shape}")
    hits = int((remove & wrong).sum())
    removed = int(remove.sum())
    total = int(wrong.sum())
    return {
        "removal_precision": hits / removed if removed else 0.0,
        "removal_recall": hits / total if total else 0.0,
        "removal_f1": 2 * hits / (removed + total) if removed + total else 0.0,
        "removal_count_error": (removed - total) / total if total else math.nan,
    }


def accuracy(logits: np.ndarray, labels: np.ndarray, what: str = "test_logits") -> float:
    """Return the share of rows whose largest logit is the label."""
    logits, labels = finite_array(logits, what), np.asarray(labels)
    if logits.ndim != 2 or len(logits) != len(labels):
        raise UserError(f"{what}: shape {logits.shape} does not fit {len(labels)} labels")
    return float((logits.argmax(axis=1) == labels).mean())


# ------------------------------------------------------------------------------------------------ OOD


def ood(id_scores: np.ndarray, ood_scores: np.ndarray, what: str = "scores") -> dict[str, float]:
    """Return AUROC, AUPR with OOD (`out`) or ID (`in`) as the positive class, and FPR@95, of one OOD set.

    AUPR is computed as average precision (`_ap`) and as the trapezoid under the PR curve (`_trapezoid`), which
    published OOD tables use. FPR@95 is the share of ID images above the first (highest) threshold that finds >= 95% of
    the OOD images.

    Args:
        id_scores: Scores of the ID test images, shape [n].
        ood_scores: Scores of the OOD images, shape [m].
        what: Name of the scores in errors.
    """
    from sklearn.metrics import auc, average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

    scores = np.concatenate([np.ravel(id_scores), np.ravel(ood_scores)])
    is_ood = np.arange(scores.size) >= np.size(id_scores)
    scores, is_ood = _scores_and_mask(scores, is_ood, what)
    out = {"auroc": float(roc_auc_score(is_ood, scores))}
    for name, positive, score in (("out", is_ood, scores), ("in", ~is_ood, -scores)):
        precision, recall, _ = precision_recall_curve(positive, score)
        out[f"aupr_{name}_ap"] = float(average_precision_score(positive, score))
        out[f"aupr_{name}_trapezoid"] = float(auc(recall, precision))
    # every threshold is kept: dropping collinear points would skip the first one that reaches 95%
    false_positive, true_positive, _ = roc_curve(is_ood, scores, drop_intermediate=False)
    out["fpr95"] = float(false_positive[np.argmax(true_positive >= 0.95)])
    return out


def ood_means(
    per_set: Mapping[str, Mapping[str, float]], near: Iterable[str], far: Iterable[str]
) -> dict[str, dict[str, float]]:
    """Return unweighted means over sets, never pooled: {"near": ..., "far": ..., "overall": ...}."""
    groups = {"near": list(near), "far": list(far)}
    groups["overall"] = groups["near"] + groups["far"]
    return {
        group: {m: float(np.mean([per_set[s][m] for s in sets])) for m in OOD_METRICS}
        for group, sets in groups.items()
        if sets
    }
