"""Finding wrong labels by features: `sgoif.find_label_issues` beside cleanlab, on the same features and labels.

    python -m benchmarks.scan                                    # digits
    python -m benchmarks.scan --data DIR --features emb.npy      # also Imagenette, from DIR/imagenette96

`emb.npy` has a row of features for each training image of Imagenette, in the order of its noisy_imagenette.csv.
cleanlab is given out-of-fold probabilities (five folds) three times: of a logistic regression on the features as they
are, of one on standardised features, and of the head that `find_label_issues` trains. Of its three scores the best is
shown, chosen with the truth; flags are those of its `find_label_issues` with the same probabilities.
"""

import argparse
import csv
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import average_precision_score

import sgoif
from benchmarks.common import Report
from sgoif.features.arrays import FeatureArray
from sgoif.features.head import HeadRecipe, HeadTraining
from sgoif.features.projection import fit_projection

FOLDS = 5
SCORES = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")
Case = tuple[str, np.ndarray, np.ndarray, np.ndarray]  # name, features [N, d], labels [N], true labels [N]


def quality(suspicion: np.ndarray, flagged: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    """AUC-PR, share of flagged labels, precision and recall of the flags, in percent."""
    found = flagged & wrong
    shares = {
        "auc_pr": average_precision_score(wrong, suspicion),
        "flagged": flagged.mean(),
        "precision": found.sum() / max(flagged.sum(), 1),
        "recall": found.sum() / wrong.sum(),
    }
    return {name: round(100 * float(value), 1) for name, value in shares.items()}


def run_sgoif(features: np.ndarray, labels: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    started = time.process_time()
    issues = sgoif.find_label_issues(features, labels)
    seconds = round(time.process_time() - started, 1)
    return {**quality(issues.suspicion, issues.flagged, wrong), "cpu_seconds": seconds}


def folds(labels: np.ndarray) -> Any:
    from sklearn.model_selection import StratifiedKFold

    return StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(labels, labels)


def logistic_regression(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Out-of-fold probabilities [N, C]."""
    from sklearn.linear_model import LogisticRegression

    found = np.zeros((len(labels), int(labels.max()) + 1))
    for train, test in folds(labels):
        model = LogisticRegression(max_iter=1000).fit(features[train], labels[train])
        found[np.ix_(test, model.classes_)] = model.predict_proba(features[test])
    return found


def watched_head(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Out-of-fold probabilities [N, C] of the head that `find_label_issues` trains."""
    found = np.zeros((len(labels), int(labels.max()) + 1))
    for train, test in folds(labels):
        array = FeatureArray(features, select=train)
        recipe = HeadRecipe.for_examples(len(train))
        head = HeadTraining(array, labels[train], found.shape[1], fit_projection(array), recipe)
        for epoch in range(recipe.epochs):
            head.epoch(epoch)
        with torch.no_grad():
            found[test] = head.head(head.projection(torch.from_numpy(features[test]))).softmax(1).double().numpy()
    return found / found.sum(1, keepdims=True)


def run_cleanlab(
    probabilities: Any, features: np.ndarray, labels: np.ndarray, wrong: np.ndarray
) -> dict[str, float | str]:
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of iterations that have not converged
        predicted = probabilities(features, labels)
        flagged = find_label_issues(labels, predicted)
        scores = {name: -get_label_quality_scores(labels, predicted, method=name) for name in SCORES}
    seconds = round(time.process_time() - started, 1)
    best = max(SCORES, key=lambda name: average_precision_score(wrong, scores[name]))
    return {**quality(scores[best], flagged, wrong), "cpu_seconds": seconds, "score": best}


def standardised(features: np.ndarray) -> np.ndarray:
    deviation = features.std(0)
    return (features - features.mean(0)) / np.maximum(deviation, 1e-3 * deviation.max())


def compare(case: Case) -> dict[str, Any]:
    """Figures of every method on one case."""
    _, features, labels, true_labels = case
    wrong = labels != true_labels
    return {
        "examples": len(labels),
        "wrong": round(100 * float(wrong.mean()), 1),
        "sgoif": run_sgoif(features, labels, wrong),
        "cleanlab": run_cleanlab(logistic_regression, features, labels, wrong),
        "cleanlab_standardised": run_cleanlab(logistic_regression, standardised(features), labels, wrong),
        "cleanlab_head": run_cleanlab(watched_head, features, labels, wrong),
    }


def flip(labels: np.ndarray, rate: float, n_classes: int, seed: int) -> np.ndarray:
    """Labels of which a share was moved to another class, all others alike."""
    rng = np.random.default_rng(seed)
    moved = (labels + rng.integers(1, n_classes, len(labels))) % n_classes
    return np.where(rng.random(len(labels)) < rate, moved, labels)


def pair_flip(labels: np.ndarray, rate: float, n_classes: int, seed: int) -> np.ndarray:
    """Labels of the even classes of which a share was moved to the next class."""
    moved = (np.random.default_rng(seed).random(len(labels)) < rate) & (labels % 2 == 0)
    return np.where(moved, (labels + 1) % n_classes, labels)


def long_tail(true_labels: np.ndarray, ratio: float) -> np.ndarray:
    """Positions of a subset whose classes fall geometrically from the first to 1 / ratio of it in the last."""
    counts = np.bincount(true_labels)
    keep = []
    for c in range(len(counts)):
        size = int(counts.min() * ratio ** (-c / (len(counts) - 1)))
        keep.append(np.flatnonzero(true_labels == c)[:size])
    return np.sort(np.concatenate(keep))


def digit_cases() -> list[Case]:
    from sklearn.datasets import load_digits

    data = load_digits()
    pixels = data.data.astype(np.float32)
    return [
        ("digits, symmetric 20%", pixels, flip(data.target, 0.2, 10, 0), data.target),
        ("digits, pair 40% of five classes", pixels, pair_flip(data.target, 0.4, 10, 0), data.target),
    ]


def imagenette_cases(root: Path, features: np.ndarray) -> list[Case]:
    with open(root / "imagenette96" / "noisy_imagenette.csv", newline="") as f:
        rows = [row for row in csv.DictReader(f) if row["is_valid"] == "False"]
    if len(rows) != len(features):
        raise SystemExit(f"{len(features)} rows of features for {len(rows)} training images of Imagenette")
    classes = sorted({row["noisy_labels_0"] for row in rows})
    labels = {rate: np.array([classes.index(row[f"noisy_labels_{rate}"]) for row in rows]) for rate in (0, 5, 25, 50)}
    true = labels[0]
    cases = [(f"Imagenette, published {rate}%", features, labels[rate], true) for rate in (5, 25, 50)]
    kept = long_tail(true, 50)
    cases.append(("Imagenette, symmetric 20%, 50 : 1", features[kept], flip(true[kept], 0.2, 10, 0), true[kept]))
    return cases


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with imagenette96/")
    parser.add_argument("--features", type=Path, help=".npy of the features of its training images")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args(argv)
    cases = digit_cases()
    if (options.data is None) != (options.features is None):
        parser.error("--data and --features go together")
    if options.data is not None:
        cases += imagenette_cases(options.data, np.load(options.features, allow_pickle=False))
    report = Report("scan", options)
    for case in cases:
        report.report(case[0], compare(case))


if __name__ == "__main__":
    main()
