"""Finding wrong labels by features: `sgoif.find_label_issues` beside cleanlab, on the same features and labels.

    python -m benchmarks.features.scan                                    # digits
    python -m benchmarks.features.scan --data DIR --features emb.npy      # also Imagenette, from DIR/imagenette96
    python -m benchmarks.features.scan --cifar-labels cifar_n.npz --cifar-features c10.npy --cifar-first 25000

`emb.npy` has a row of features for each training image of Imagenette, in the order of its noisy_imagenette.csv.
`c10.npy` has one for each image of CIFAR-10's training set from `--cifar-first` on. `--methods` runs some
of the methods; figures of the others are taken from the report `--earlier`.
cleanlab is given out-of-fold probabilities (five folds) three times: of a logistic regression on the features as they
are, of one on standardised features, and of the head that `find_label_issues` trains. Of its three scores the best is
shown, chosen with the truth; flags are those of its `find_label_issues` with the same probabilities.
"""

import argparse
import csv
import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import average_precision_score

import sgoif
from benchmarks.common import Report, run_command
from sgoif.features.arrays import FeatureArray
from sgoif.features.head import HeadRecipe, HeadTraining
from sgoif.label_noise.projection import fit_projection

FOLDS = 5
HUMAN = {"aggregate": "aggre", "worst": "worse"}  # CIFAR-10N: name of the row, name of the labels
BINS = 10  # of probabilities
MIN_IN_BIN = 200
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


def largest_gap(probability: np.ndarray, wrong: np.ndarray) -> float:
    """Largest difference of probability and frequency over the ten bins with `MIN_IN_BIN` examples."""
    place = np.minimum((probability * BINS).astype(int), BINS - 1)
    members = [place == b for b in range(BINS)]
    gaps = [abs(probability[m].mean() - wrong[m].mean()) for m in members if m.sum() >= MIN_IN_BIN]
    return round(float(max(gaps, default=0.0)), 3)


def run_sgoif(features: np.ndarray, labels: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    started = time.process_time()
    issues = sgoif.find_label_issues(features, labels)
    seconds = round(time.process_time() - started, 1)
    gap = largest_gap(issues.probability, wrong)
    return {**quality(issues.suspicion, issues.flagged, wrong), "largest_gap": gap, "cpu_seconds": seconds}


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
        flagged = find_label_issues(labels, predicted, n_jobs=1)  # its processes are forked, and hang beside threads
        scores = {name: -get_label_quality_scores(labels, predicted, method=name) for name in SCORES}
    seconds = round(time.process_time() - started, 1)
    best = max(SCORES, key=lambda name: average_precision_score(wrong, scores[name]))
    return {**quality(scores[best], flagged, wrong), "cpu_seconds": seconds, "score": best}


def standardised(features: np.ndarray) -> np.ndarray:
    deviation = features.std(0)
    return (features - features.mean(0)) / np.maximum(deviation, 1e-3 * deviation.max())


METHODS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], Mapping[str, float | str]]] = {
    "sgoif": run_sgoif,
    "cleanlab": lambda x, y, wrong: run_cleanlab(logistic_regression, x, y, wrong),
    "cleanlab_standardised": lambda x, y, wrong: run_cleanlab(logistic_regression, standardised(x), y, wrong),
    "cleanlab_head": lambda x, y, wrong: run_cleanlab(watched_head, x, y, wrong),
}


def compare(case: Case, methods: Sequence[str] = tuple(METHODS)) -> dict[str, Any]:
    """Figures of methods on one case."""
    _, features, labels, true_labels = case
    wrong = labels != true_labels
    figures: dict[str, Any] = {"examples": len(labels), "wrong": round(100 * float(wrong.mean()), 1)}
    return figures | {name: METHODS[name](features, labels, wrong) for name in methods}


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


def cifar_cases(labels: Path, features: np.ndarray, first: int) -> list[Case]:
    with np.load(labels, allow_pickle=False) as stored:
        part = slice(first, first + len(features))
        true = stored["cifar10_clean_label"][part].astype(np.int64)
        given = {name: stored[f"cifar10_{key}_label"][part].astype(np.int64) for name, key in HUMAN.items()}
    return [(f"CIFAR-10N {name}", features, human, true) for name, human in given.items()]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with imagenette96/")
    parser.add_argument("--features", type=Path, help=".npy of the features of its training images")
    parser.add_argument("--cifar-labels", type=Path, help=".npz of CIFAR-10N's labels")
    parser.add_argument("--cifar-features", type=Path, help=".npy of the features of CIFAR-10's training images")
    parser.add_argument("--cifar-first", type=int, default=0, help="training image that their first row belongs to")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--earlier", type=Path, help="report to take figures of the other methods from")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args(argv)
    cases = digit_cases()
    if (options.data is None) != (options.features is None):
        parser.error("--data and --features go together")
    if (options.cifar_labels is None) != (options.cifar_features is None):
        parser.error("--cifar-labels and --cifar-features go together")
    if options.data is not None:
        cases += imagenette_cases(options.data, np.load(options.features, allow_pickle=False))
    if options.cifar_labels is not None:
        features = np.load(options.cifar_features, allow_pickle=False)
        cases += cifar_cases(options.cifar_labels, features, options.cifar_first)
    report = Report("scan", options)
    earlier = {} if options.earlier is None else json.loads(options.earlier.read_text())
    if earlier:
        report.extra["earlier_commit"] = earlier["commit"]
    for case in cases:
        known = earlier.get("figures", {}).get(case[0], {})
        report.report(case[0], {**known, **compare(case, options.methods)})


if __name__ == "__main__":
    run_command(main)
