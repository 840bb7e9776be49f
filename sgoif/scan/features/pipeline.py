"""`sgoif scan --features`: read, train a head and score, rank, show."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from sgoif.errors import InfluenceError, UserError
from sgoif.scan.output_folder import claim_folder, lock_folder
from sgoif.scan.settings import choose_head_settings
from sgoif.scan.sources.feature_files import FeatureFile, read_features
from sgoif.scan.sources.read import ReadOptions
from sgoif.utils.device import pick_device


def scan_features(
    features: Path,
    labels: Path | None,
    out: Path | None,
    options: Mapping[str, Any],
    *,
    gallery_size: int | None,
    skip_tiny: bool,
    reading: ReadOptions,
) -> Path:
    """Scans labels by features from a file.

    Args:
        features: A .npy, .npz or .parquet file, or the folder of a Hugging Face data set.
        labels: CSV or .npy of the labels; None where the features' file has them.
        out: Folder to write; None: <name of the file>-scan in the current folder.
        options: Settings of the training by name, and `device` and `threads`; None means the default.
        gallery_size: Number of examples in the gallery; None: the flagged ones, within limits.
        skip_tiny: Leave classes with too few examples out.
        reading: How a CSV is read.

    Returns:
        The folder that was written.

    Raises:
        UserError: If the files, the settings or the folder cannot be used.
    """
    found = read_features(features, labels, reading.columns, reading.encoding)
    out = Path(out) if out else Path(f"{features.resolve().stem}-scan")
    if features.is_dir() and out.resolve().is_relative_to(features.resolve()):
        raise UserError(f"--out {out} lies inside {features}; choose another place")
    with lock_folder(out):
        _scan_into(out, found, options, gallery_size, skip_tiny, reading)
    return out


def _scan_into(
    out: Path,
    found: FeatureFile,
    options: Mapping[str, Any],
    gallery_size: int | None,
    skip_tiny: bool,
    reading: ReadOptions,
) -> None:
    import torch

    from sgoif.features.arrays import FeatureArray
    from sgoif.features.projection import fit_projection
    from sgoif.scan.features.training import train_head_and_score
    from sgoif.scan.report import write_scan
    from sgoif.training.session import Session

    device = pick_device(options.get("device") or "auto", "--device", "leave it out to use the CPU").type
    if options.get("threads"):
        torch.set_num_threads(options["threads"])
    rows = found.listing.rows_of_large_classes(skip_tiny)
    listing = found.listing.subset(rows)
    settings = choose_head_settings(len(listing), device, options)
    identity = {
        "data": f"{found.listing.digest()}-{found.state}",
        "skip_tiny": skip_tiny,
        "gallery": gallery_size,
        **settings.to_dict(),
    }
    if claim_folder(out, listing, identity, {"root": reading.root, "split": reading.split}):
        return
    session = Session(out / "state", repr(identity), settings.seed, device, save_every=10, label="scan")
    started = time.perf_counter()
    with _unclaimed_if_refused(out, listing.source):
        array = FeatureArray(found.load(out / "state"), select=np.array(rows))
        projection = fit_projection(array)
    seconds = {"read": time.perf_counter() - started}
    print(f"{len(listing)} examples of {len(listing.classes)} classes, {array.dim} features each, into {out}")
    print(f"Training {settings.describe()}", flush=True)
    labels = np.array(listing.labels)
    trained = train_head_and_score(array, projection, labels, len(listing.classes), settings, session)
    write_scan(out, listing, settings, trained, ((), ()), gallery_size, seconds | session.timers.seconds)
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
