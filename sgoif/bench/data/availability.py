"""Find out whether a dataset is on this machine, without reading its pixels."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from sgoif.bench.data import catalogue, locate
from sgoif.bench.data.image_folders import listing


@dataclass(frozen=True)
class Availability:
    """Where a dataset is.

    Attributes:
        description: One short line for `make doctor`.
        missing: Whether someone has to fetch it by hand; False if it is here or can be downloaded.
    """

    description: str
    missing: bool = False


def check_availability(name: str, data_root: Path | str, mirror: Path | str | None = None) -> Availability:
    """Find out where a dataset is, or what it takes to get it.

    Args:
        name: Name of the dataset.
        data_root: Folder of the prepared datasets and the downloads.
        mirror: Offline copy of the datasets; the environment variable SGOIF_DATA if None.

    Returns:
        Where it is: prepared, unpacked, inside scikit-learn, made here, downloaded, in the mirror, on the network or
        missing.
    """
    d = catalogue.get(name)
    data_root = Path(data_root)
    mirror = mirror or os.environ.get("SGOIF_DATA") or None
    mirror = Path(mirror) if mirror else None
    if (data_root / d.name / "meta.json").is_file():
        return Availability("prepared")
    if listing.locate(d, data_root, mirror) is not None:
        return Availability("unpacked here")
    if d.gated:
        return Availability(f"missing: {listing.how_to_get(d, data_root, mirror)}", missing=True)
    if d.reader == "bundled":
        return Availability("inside scikit-learn")
    if d.reader == "trained":
        return Availability("made here in seconds")
    place = locate.locate(d, mirror, data_root / "downloads" / d.name)
    if place is not None:
        is_download = data_root in next(iter(place.files.values())).parents
        return Availability("downloaded" if is_download else "in the mirror")
    if not d.sources:
        return Availability(f"missing: only from a mirror (SGOIF_DATA), folder {d.folder}/", missing=True)
    return Availability(f"can be downloaded ({d.needs_mb} MB of disk)")
