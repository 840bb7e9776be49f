"""From wherever a dataset lies to verified arrays in the data folder: data/<name>/<part>_{images,labels,ids}.npy.

An unpacked dataset is listed instead (`trees.py`): its images stay where they are.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from sgoif.bench.data import catalogue, locate
from sgoif.bench.data import download as net
from sgoif.bench.data.checksums import check_array, check_part, content_hash, describe, example_ids
from sgoif.bench.data.dataset import Dataset
from sgoif.bench.data.image_folders import listing
from sgoif.bench.data.readers import archives, bundled
from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_json, load_npz, read_json, save_npy, save_npz

Say = Callable[[str], None]


def prepare(
    name: str,
    data_root: Path | str,
    mirror: Path | str | None = None,
    download: bool = True,
    say: Say = lambda line: None,
    progress: net.Progress | None = None,
) -> Path:
    """The folder with the prepared dataset, after making it or finding it whole.

    What is there is compared with the hashes in its meta.json first, and made again if anything differs. `mirror` (or
    the environment variable SGOIF_DATA) is an offline copy; what it lacks is downloaded, if `download` allows it.
    """
    d = catalogue.get(name)
    data_root = Path(data_root)
    folder = data_root / d.name
    wrong = problem(folder)
    if wrong is None:
        _write_meta(d, folder, read_json(folder / "meta.json"))
        return folder
    if (folder / "meta.json").exists():
        say(f"{wrong}: preparing {d.name} again")
    mirror = mirror or os.environ.get("SGOIF_DATA") or None
    mirror = Path(mirror) if mirror else None
    tree = listing.locate(d, data_root, mirror)
    if tree is not None and (d.gated or locate.locate(d, mirror, data_root / "downloads" / d.name) is None):
        return _list(d, folder, tree, say)
    if d.gated:
        raise UserError(f"{d.name} is not here; it {listing.how_to_get(d, data_root, mirror)}")
    _check_disk(d, data_root)
    arrays, source = _read(d, data_root, mirror, download, progress)
    (folder / "meta.json").unlink(missing_ok=True)  # until the new one is written, nothing vouches for the arrays
    if d.kind == "labels":
        save_npz(folder / "labels.npz", **arrays)
    else:
        for key, array in arrays.items():
            save_npy(folder / f"{key}.npy", array)
    _write_meta(d, folder, {"arrays": {key: describe(a) for key, a in arrays.items()}, "source": source})
    return folder


def _list(d: Dataset, folder: Path, tree: Path, say: Say) -> Path:
    """Lists the images of an unpacked dataset; what is wrong with it is written to problems.csv and told."""
    arrays, report = listing.read(d, tree)
    (folder / "meta.json").unlink(missing_ok=True)
    for key, array in arrays.items():
        save_npy(folder / f"{key}.npy", array)
    report.write(folder / "problems.csv")
    counts = {part: len(arrays[f"{part}_paths"]) for part in d.parts}
    for part, n in counts.items():
        if n != d.parts[part]:
            say(f"{d.name} {part}: {n:,} images, where the published set has {d.parts[part]:,}")
    if report.problems:
        say(f"{d.name}: left out or noted: {report}; each is named in {folder / 'problems.csv'}")
    known = {"counts": counts, "problems": report.counts(), "tree": str(tree.resolve()), "source": "unpacked tree"}
    _write_meta(d, folder, {"arrays": {key: describe(a) for key, a in arrays.items()}, **known})
    return folder


def problem(folder: Path) -> str | None:
    """What is wrong with a prepared dataset, by file name; None when every array has the hash its meta.json says."""
    path = folder / "meta.json"
    if not path.is_file():
        return f"{path} is missing"
    try:
        known = read_json(path)
        described = known["arrays"]
        if "tree" in known and not Path(known["tree"]).is_dir():
            return f"{known['tree']}, where the images lay, is gone"
        whole = load_npz(folder / "labels.npz") if (folder / "labels.npz").is_file() else None
    except (UserError, KeyError, TypeError) as e:
        return f"{path.parent} is damaged ({e})"
    for key, expected in described.items():
        file = folder / (f"{key}.npy" if whole is None else "labels.npz")
        try:
            array = np.load(file, mmap_mode="r", allow_pickle=False) if whole is None else whole[key]
        except (OSError, ValueError, EOFError, KeyError) as e:
            return f"{file} is damaged or missing ({e})"
        if describe(array) != expected:
            return f"{file} does not have the sha256 in meta.json"
    return None


def _write_meta(d: Dataset, folder: Path, known: Mapping) -> None:
    """meta.json: facts of the registry, hashes of the arrays. Untouched when nothing changed."""
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
    d: Dataset, data_root: Path, mirror: Path | None, download: bool, progress: net.Progress | None
) -> tuple[dict[str, np.ndarray], str]:
    """All arrays of the dataset, verified, and where they came from."""
    if d.reader == "embedded":
        return _checked(d, bundled.read(d.name)), "inside scikit-learn"
    downloads = data_root / "downloads" / d.name
    found = locate.locate(d, mirror, downloads)
    if found is None:
        _fetch(d, mirror, downloads, download, progress)
        found = locate.locate(d, mirror, downloads)
    if found.form == "arrays":
        plain = {key: _plain(path) for key, path in found.files.items()}
        parts = {part: (plain[f"{part}_images"], plain[f"{part}_labels"]) for part in d.parts}
        return _checked(d, parts), "mirror, plain arrays"
    locate.verify(d, found)
    if d.kind == "labels":
        columns = archives.read_human(d, found.files)
        for key, column in columns.items():
            check_array(d, key, column)
        return columns, "official files"
    return _checked(d, archives.READERS[d.reader](d, found.files)), "official files"


def _fetch(d: Dataset, mirror: Path | None, downloads: Path, download: bool, progress: net.Progress | None) -> None:
    place = f"{mirror}/{d.folder}" if mirror else str(downloads)
    if not d.sources:
        raise UserError(
            f"{d.name} has no public download; put {' and '.join(f'{k}.npy' for k in d.arrays)} into the folder "
            f"{d.folder}/ of an offline mirror and name the mirror with SGOIF_DATA"
        )
    if not download:
        files = ", ".join(s.filename for s in d.sources)
        raise UserError(f"{d.name} is not in {place} and downloading is off; put {files} there or allow the download")
    for source in d.sources:
        net.fetch(source, downloads, progress)


def _plain(path: Path) -> np.ndarray:
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as e:
        raise UserError(f"{path}: not a readable npy ({e}); copy it again") from None


def _checked(d: Dataset, parts: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, np.ndarray]:
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
