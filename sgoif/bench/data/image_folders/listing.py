"""Find unpacked datasets and list their images, with every fault written down.

Listing reads the official lists, looks at every file, and gives the arrays <part>_{paths,labels,ids,bytes} (and
`train_collected_labels` where labels were collected, not assigned), which `prepare` writes. Images are decoded when in
use. A faulty line or file costs that one image: it is left out, counted in meta.json and named in problems.csv.
"""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sgoif.bench.data.dataset import Dataset
from sgoif.bench.data.image_folders.base import ImageEntry, ProblemReport
from sgoif.bench.data.image_folders.layouts import LAYOUTS
from sgoif.errors import UserError

TAIL_BYTES = 4096  # at the end of a file, where the end of the image is looked for
END_MARKERS = {b"\xff\xd8": b"\xff\xd9", b"\x89P": b"IEND"}  # first two bytes (JPEG, PNG) -> what ends the image


class FileCheck(NamedTuple):
    """What is known of an image file: its size, and the kind and detail of a fault if it has one."""

    size: int
    fault: tuple[str, str] | None


def folders(d: Dataset, data_root: Path, mirror: Path | None) -> list[Path]:
    """Return the folders in which a dataset may have been unpacked, the first choice first."""
    downloads = data_root / "downloads" / d.folder
    return [downloads] if mirror is None else [mirror / d.folder, downloads]


def locate(d: Dataset, data_root: Path, mirror: Path | None) -> Path | None:
    """Return the folder of an unpacked dataset, or None if it is not on this machine."""
    if d.layout is None:
        return None
    for folder in folders(d, data_root, mirror):
        if any((folder / mark.format(name=d.name)).exists() for mark in LAYOUTS[d.layout].marks):
            return folder
    return None


def how_to_get(d: Dataset, data_root: Path, mirror: Path | None = None) -> str:
    """Return in one line where to get a dataset, where to put it, and how much disk it needs."""
    room = f"{d.needs_mb / 1000:,.0f} GB" if d.needs_mb >= 1000 else f"{d.needs_mb} MB"
    here = folders(d, data_root, mirror)[0]
    other = "" if mirror else f", or into {d.folder}/ of a folder that SGOIF_DATA names"
    return f"needs {d.gated}; unpack it into {here}{other}; {room} of disk"


def read(d: Dataset, root: Path) -> tuple[dict[str, np.ndarray], ProblemReport]:
    """List the images of an unpacked dataset.

    Args:
        d: A dataset with a layout.
        root: The folder it was unpacked into.

    Returns:
        The arrays of every part, shape [N] each, and a report of what was left out.

    Raises:
        UserError: If a list is missing, or a part has no usable image.
    """
    assert d.layout is not None, f"{d.name} has no layout"
    report = ProblemReport()
    parts = LAYOUTS[d.layout].read(d, root, report)
    arrays: dict[str, np.ndarray] = {}
    for part, entries in parts.items():
        kept, sizes = _without_faults(root, entries, report)
        if not kept:
            raise UserError(f"{d.name}: no usable {part} image in {root} ({report}); unpack the dataset again")
        arrays[f"{part}_paths"] = np.array([os.fsencode(e.path) for e in kept])
        arrays[f"{part}_labels"] = np.array([e.true_label for e in kept], np.int64)
        arrays[f"{part}_bytes"] = np.array(sizes, np.int64)
        arrays[f"{part}_ids"] = path_ids([e.path for e in kept])
        if d.truth != "all" and part == "train":
            arrays["train_collected_labels"] = np.array([e.collected_label for e in kept], np.int64)
    return arrays, report


def path_ids(paths: list[str]) -> np.ndarray:
    """Return the id of each image, a hash of its path inside the folder, uint64, shape [N]."""
    digests = (hashlib.blake2b(os.fsencode(p), digest_size=8).digest() for p in paths)
    return np.frombuffer(b"".join(digests), "<u8").copy()


def _without_faults(root: Path, entries: list[ImageEntry], report: ProblemReport) -> tuple[list[ImageEntry], list[int]]:
    """Return the entries whose file is there and looks whole, and the sizes of the files."""
    kept, sizes = [], []
    with ThreadPoolExecutor(min(32, 4 * (os.cpu_count() or 1))) as pool:
        checked = pool.map(lambda e: check_file(root / e.path), entries)
        for entry, (size, fault) in zip(entries, checked, strict=True):
            if fault is None:
                kept.append(entry)
                sizes.append(size)
            else:
                kind, detail = fault
                report.add(kind, entry.path, 0, f"{detail} (listed in {entry.file}, line {entry.line})")
    return kept, sizes


def check_file(path: Path) -> FileCheck:
    """Look for faults of an image file; only files without a proper end are decoded."""
    try:
        with open(path, "rb") as f:
            head = f.read(8)
            size = f.seek(0, os.SEEK_END)
            f.seek(max(0, size - TAIL_BYTES))
            tail = f.read(TAIL_BYTES)
    except FileNotFoundError:
        return FileCheck(0, ("missing file", "no such file"))
    except OSError as e:
        return FileCheck(0, ("unreadable file", e.strerror or str(e)))
    if not size:
        return FileCheck(0, ("empty file", "0 bytes"))
    end = END_MARKERS.get(head[:2])
    if end is not None and end in tail:
        return FileCheck(size, None)
    return FileCheck(size, _decoding_fault(path))


def _decoding_fault(path: Path) -> tuple[str, str] | None:
    from torchvision.io import ImageReadMode, decode_image, read_file

    try:
        decode_image(read_file(str(path)), ImageReadMode.RGB)
    except (RuntimeError, OSError) as e:
        return "broken image", " ".join(str(e).split())[:120]
    return None
