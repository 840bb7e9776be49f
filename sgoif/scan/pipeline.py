"""`sgoif scan`: list, decode, train and score, rank, show. Every stage can be interrupted and continued."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sgoif.errors import UserError
from sgoif.scan.output_folder import claim_folder, lock_folder
from sgoif.scan.progress import image_progress
from sgoif.scan.settings import Settings, choose_settings
from sgoif.scan.sources.image_listing import Listing
from sgoif.scan.sources.read import ReadOptions, read_source
from sgoif.utils.device import pick_device

MAX_NAMED_FILES = 10  # printed of those left out; all of them are in left_out.csv


def scan(
    source: str,
    out: Path | None,
    options: Mapping[str, Any],
    *,
    gallery_size: int | None,
    skip_tiny: bool,
    reading: ReadOptions,
) -> Path:
    """Scans the labels of a source.

    Args:
        source: A folder, a CSV file, or the name of a data set.
        out: Folder to write; None: <name of the source>-scan in the current folder.
        options: Settings of the training by name, and `device` and `threads`; None means the default.
        gallery_size: Number of examples in the gallery; None: the flagged ones, within limits.
        skip_tiny: Leave classes with too few images out.
        reading: How the source is read.

    Returns:
        The folder that was written.

    Raises:
        UserError: If the source, the settings or the folder cannot be used.
    """
    listing = read_source(source, reading)
    out = Path(out) if out else Path(f"{Path(source).resolve().stem}-scan")
    if listing.kind == "folder" and listing.base is not None and out.resolve().is_relative_to(listing.base):
        raise UserError(f"--out {out} lies inside {source}, where it would be taken for a class; choose another place")
    with lock_folder(out):
        _scan_into(out, listing, options, gallery_size, skip_tiny, reading)
    return out


def _scan_into(
    out: Path,
    listing: Listing,
    options: Mapping[str, Any],
    gallery_size: int | None,
    skip_tiny: bool,
    reading: ReadOptions,
) -> None:
    import torch

    from sgoif.scan.network import check_network
    from sgoif.scan.pixel_cache import MappedImages, channel_moments, decode_all, survey_headers
    from sgoif.scan.report import write_scan
    from sgoif.scan.train import train_and_score
    from sgoif.training.session import Session

    device = pick_device(options.get("device") or "auto", "--device", "leave it out to use the CPU").type
    digest = listing.digest()
    if options.get("threads"):
        torch.set_num_threads(options["threads"])
    console = Session(None, "", 0, label="scan")
    rows, side, grey = survey_headers(listing, image_progress(console, "looking at images"))
    if not rows:
        raise UserError(f"{listing.source}: none of its {len(listing)} files is a readable image")
    listing = listing.subset(rows)
    listing = listing.subset(listing.rows_of_large_classes(skip_tiny))
    settings = choose_settings(len(listing), side, grey, device, options)
    print(f"{len(listing)} images of {len(listing.classes)} classes from {listing.source}, into {out}")
    print(f"Training {settings.describe()}", flush=True)
    check_network(settings, len(listing.classes))
    identity = {"data": digest, "skip_tiny": skip_tiny, "gallery": gallery_size, **settings.to_dict()}
    if claim_folder(out, listing, identity, {"root": reading.root, "split": reading.split}):
        return

    state = out / "state"
    session = Session(state, repr(identity), settings.seed, device, save_every=10, label="scan")
    started = time.perf_counter()
    progress = image_progress(console, "decoding")
    pixels, decoded = decode_all(listing, state, settings.size, settings.channels, progress)
    seconds = {"decode": time.perf_counter() - started}
    listing = listing.subset(decoded)
    rows = listing.rows_of_large_classes(skip_tiny)
    listing = listing.subset(rows)
    kept = np.array(decoded)[rows]
    _print_left_out(listing)

    mean, std = _pretrained_normalisation(settings) or channel_moments(pixels, kept)
    images = MappedImages(pixels, kept, mean, std, torch.device(device))
    trained = train_and_score(images, np.array(listing.labels), len(listing.classes), settings, session)
    write_scan(out, listing, settings, trained, (mean, std), gallery_size, seconds | session.timers.seconds)
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
