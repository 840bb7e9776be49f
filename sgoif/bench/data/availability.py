"""What `doctor` says about a dataset, in one short line and without reading its pixels."""

from __future__ import annotations

import os
from pathlib import Path

from sgoif.bench.data import catalogue, locate
from sgoif.bench.data.image_folders import listing


def found(name: str, data_root: Path | str, mirror: Path | str | None = None) -> str:
    """'prepared', 'in the mirror', 'inside scikit-learn', 'unpacked here', 'can be downloaded …' or what it takes."""
    d = catalogue.get(name)
    data_root = Path(data_root)
    mirror = mirror or os.environ.get("SGOIF_DATA") or None
    if (data_root / d.name / "meta.json").is_file():
        return "prepared"
    where = Path(mirror) if mirror else None
    if listing.locate(d, data_root, where) is not None:
        return "unpacked here"
    if d.gated:
        return f"missing: {listing.how_to_get(d, data_root, where)}"
    if d.reader == "embedded":
        return "inside scikit-learn"
    place = locate.locate(d, where, data_root / "downloads" / d.name)
    if place is not None:
        return "downloaded" if data_root in next(iter(place.files.values())).parents else "in the mirror"
    if not d.sources:
        return f"missing: only from a mirror (SGOIF_DATA), folder {d.folder}/"
    return f"can be downloaded ({d.needs_mb} MB of disk)"
