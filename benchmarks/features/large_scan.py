"""`sgoif.find_label_issues` on many examples: time and peak memory.

    python -m benchmarks.features.large_scan --examples 1000000

The features are drawn from ten normal distributions in 256 dimensions, one for each class, and a tenth of the labels is
moved to another class. They are written to a .npy file and read from there, mapped.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

import sgoif
from benchmarks.common import Report, run_command
from benchmarks.features.scan import flip, quality

CLASSES = 10
DISTANCE = 3.0  # of the mean of a class from the origin, in deviations
CHUNK = 50_000


def write_features(path: Path, n: int, dim: int) -> np.ndarray:
    """Write features [n, dim] to a .npy file, and return their classes [n]."""
    rng = np.random.default_rng(0)
    true_labels = rng.integers(0, CLASSES, n)
    means = rng.normal(size=(CLASSES, dim))
    means *= DISTANCE / np.linalg.norm(means, axis=1, keepdims=True)
    mapped = np.lib.format.open_memmap(path, "w+", np.float32, (n, dim))
    for first in range(0, n, CHUNK):
        classes = true_labels[first : first + CHUNK]
        mapped[first : first + CHUNK] = rng.standard_normal((len(classes), dim), np.float32) + means[classes]
    mapped.flush()
    return true_labels


def measure(n: int, dim: int, folder: Path) -> dict[str, float]:
    path = folder / "features.npy"
    true_labels = write_features(path, n, dim)
    labels = flip(true_labels, 0.1, CLASSES, 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    started, cpu = time.perf_counter(), time.process_time()
    issues = sgoif.find_label_issues(path, labels)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    wrong = labels != true_labels
    return {
        "examples": n,
        "file_mib": round(path.stat().st_size / 2**20),
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "peak_before_mib": round(before),
        "wrong": round(100 * float(wrong.mean()), 2),
        **quality(issues.suspicion, issues.flagged, wrong),
    }


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--folder", type=Path, help="where the features are written; default: a temporary folder")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args(argv)
    report = Report("large_scan", options)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        report.report("find_label_issues", measure(options.examples, options.dim, Path(folder)))


if __name__ == "__main__":
    run_command(main)
