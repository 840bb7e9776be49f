"""`sgoif scan`: list, decode, train and score, rank, show. Every stage can be interrupted and continued."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sgoif.errors import UserError
from sgoif.scan.output_folder import lock_folder
from sgoif.scan.progress import image_progress
from sgoif.scan.settings import Settings, choose_settings
from sgoif.scan.sources.image_listing import Listing
from sgoif.scan.sources.read import read_source
from sgoif.scan.task import ScanTask

MAX_NAMED_FILES = 10  # printed of those left out; all of them are in left_out.csv


def scan(source: str, task: ScanTask) -> Path:
    """Scans the labels of a source.

    Args:
        source: A folder, a CSV file, or the name of a data set.
        task: Where to write, and how to read and train.

    Returns:
        The folder that was written.

    Raises:
        UserError: If the source, the settings or the folder cannot be used.
    """
    listing = read_source(source, task.reading)
    out = task.folder(Path(source))
    if listing.kind == "folder" and listing.base is not None and out.resolve().is_relative_to(listing.base):
        raise UserError(f"--out {out} lies inside {source}, where it would be taken for a class; choose another place")
    with lock_folder(out):
        _scan_into(out, listing, task)
    return out


def _scan_into(out: Path, listing: Listing, task: ScanTask) -> None:
    import torch

    from sgoif.scan.network import check_network
    from sgoif.scan.pixel_cache import MappedImages, channel_moments, decode_all, survey_headers
    from sgoif.scan.report import write_scan
    from sgoif.scan.train import train_and_score
    from sgoif.training.session import Session

    device = task.use_device()
    digest = listing.digest()
    console = Session(None, "", 0, label="scan")
    rows, side, grey = survey_headers(listing, image_progress(console, "looking at images"))
    if not rows:
        raise UserError(f"{listing.source}: none of its {len(listing)} files is a readable image")
    listing = listing.subset(rows)
    listing = listing.subset(listing.rows_of_large_classes(task.skip_tiny))
    settings = choose_settings(len(listing), side, grey, device, task.options)
    print(f"{len(listing)} images of {len(listing.classes)} classes from {listing.source}, into {out}")
    print(f"Training {settings.describe()}", flush=True)
    check_network(settings, len(listing.classes))
    session = task.open_session(out, listing, digest, settings)
    if session is None:
        return

    started = time.perf_counter()
    progress = image_progress(console, "decoding")
    pixels, decoded = decode_all(listing, out / "state", settings.size, settings.channels, progress)
    seconds = {"decode": time.perf_counter() - started}
    listing = listing.subset(decoded)
    rows = listing.rows_of_large_classes(task.skip_tiny)
    listing = listing.subset(rows)
    kept = np.array(decoded)[rows]
    _print_left_out(listing)

    mean, std = _pretrained_normalisation(settings) or channel_moments(pixels, kept)
    images = MappedImages(pixels, kept, mean, std, torch.device(device))
    trained = train_and_score(images, np.array(listing.labels), len(listing.classes), settings, session)
    seconds |= session.timers.seconds
    contents = (pixels[i] for i in kept)
    write_scan(out, listing, settings, trained, (mean, std), task.gallery_size, seconds, contents)
    session.clear()


def _print_left_out(listing: Listing) -> None:
    for name, reason in listing.left_out[:MAX_NAMED_FILES]:
        print(f"  left out: {name} ({reason})")
    if len(listing.left_out) > MAX_NAMED_FILES:
        print(f"  … and {len(listing.left_out) - MAX_NAMED_FILES} more, see left_out.csv")


def _pretrained_normalisation(settings: Settings) -> tuple[Sequence[float], Sequence[float]] | None:
    """Returns mean and deviation that pretrained weights expect, or None where the data's own are used."""
    if not settings.pretrained:
        return None
    import timm

    about = timm.get_pretrained_cfg(settings.model)
    if about is None:
        return None
    return about.mean[: settings.channels], about.std[: settings.channels]
