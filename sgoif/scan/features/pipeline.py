"""`sgoif scan --features`: read, train a head and score, rank, show."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from sgoif.errors import InfluenceError, UserError
from sgoif.scan.output_folder import lock_folder
from sgoif.scan.settings import FEATURES, choose_head_settings
from sgoif.scan.sources.class_names_file import read_class_names
from sgoif.scan.sources.feature_files import FeatureFile, read_features
from sgoif.scan.task import ScanTask

START = {"method": FEATURES, "model": "", "why": "--features names a file of them", "weights": None}  # in report.json


def scan_features(features: Path, labels: Path | None, task: ScanTask) -> Path:
    """Scan labels by features from a file.

    Args:
        features: A .npy, .npz or .parquet file, or the folder of a Hugging Face data set.
        labels: CSV or .npy of the labels; None where the features' file has them.
        task: Where to write, and how to read and train.

    Returns:
        The folder that was written.

    Raises:
        UserError: If the files, the settings or the folder cannot be used.
    """
    found = read_features(features, labels, task.reading.columns, task.reading.encoding)
    if task.classes is not None:
        found.listing.shown_names = read_class_names(task.classes, found.listing.classes)
    out = task.folder(features)
    if features.is_dir() and out.resolve().is_relative_to(features.resolve()):
        raise UserError(f"--out {out} lies inside {features}; choose another place")
    with lock_folder(out):
        _scan_into(out, found, task)
    return out


def _scan_into(out: Path, found: FeatureFile, task: ScanTask) -> None:
    from sgoif.features.arrays import FeatureArray
    from sgoif.features.fourier import choose_projection
    from sgoif.label_noise.projection import fit_projection
    from sgoif.scan.features.training import train_head_and_score
    from sgoif.scan.report import write_scan

    device = task.use_device()
    rows = found.listing.rows_of_large_classes(task.skip_tiny)
    listing = found.listing.subset(rows)
    settings = choose_head_settings(len(listing), device, task.options)
    session = task.open_session(out, listing, f"{found.listing.digest()}-{found.state}", settings)
    if session is None:
        return
    started = time.perf_counter()
    with _unclaimed_if_refused(out, listing.source):
        array = FeatureArray(found.load(out / "state"), select=np.array(rows))
        projection = fit_projection(array)
    seconds = {"read": time.perf_counter() - started}
    print(f"{len(listing)} examples of {len(listing.classes)} classes, {array.dim} features each, into {out}")
    for note in projection.notes():
        print(f"note: {note}", file=sys.stderr)
    labels, linear = np.array(listing.labels), projection
    projection = choose_projection(array, labels, len(listing.classes), linear, settings.seed)
    if added := projection.width - linear.width:
        print(f"{added} random Fourier features are added: with them held-out labels are predicted better")
    start = START | {"fourier_features": added}
    print(f"Training {settings.describe()}", flush=True)
    trained = train_head_and_score(array, projection, labels, len(listing.classes), settings, session)
    seconds |= session.timers.seconds
    contents = (row for _, block in array.blocks() for row in block.numpy())
    write_scan(out, listing, settings, trained, ((), ()), task.gallery_size, seconds, start, contents)
    session.clear()


@contextmanager
def _unclaimed_if_refused(out: Path, source: str) -> Iterator[None]:
    """Leaves no trace of a scan whose features turn out to be of no use, and says why they are."""
    try:
        yield
    except (InfluenceError, UserError) as e:
        (out / "scan.json").unlink()
        shutil.rmtree(out / "state")
        raise UserError(str(e) if isinstance(e, UserError) else f"{source}: {e}") from None
