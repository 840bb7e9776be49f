"""Where a dataset's files lie: in the offline mirror, among earlier downloads, or still on the network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sgoif.bench.data.dataset import Dataset
from sgoif.errors import UserError
from sgoif.utils.files import digest_file


@dataclass(frozen=True)
class Found:
    """form: 'arrays' ({'<part>_images': path, ...}) or 'files' ({official file name: path})."""

    form: str
    files: dict[str, Path]


def locate(d: Dataset, mirror: Path | None, downloads: Path) -> Found | None:
    """The dataset's files if they are all on this machine, not yet verified; official files before plain arrays."""
    places = [downloads]
    if mirror is not None:
        places = [mirror / d.folder, mirror / d.folder / "raw", mirror / d.name, mirror, downloads]
    official = tuple(s.filename for s in d.sources)
    forms: list[tuple[str, ...]] = [official, tuple(d.loose)]
    if d.arrays and d.reader == "idx":
        forms.append(tuple(name.removesuffix(".gz") for name in official))
    if d.reader == "human":
        forms.append(("cifar_n.npz",))
    for names in forms:
        if names and (files := _all_in(places, names)):
            return Found("files", files)
    if mirror is not None and d.kind != "labels" and d.arrays:
        files = _all_in([mirror / d.folder, mirror / d.name], tuple(f"{key}.npy" for key in d.arrays))
        if files:
            return Found("arrays", {name.removesuffix(".npy"): path for name, path in files.items()})
    return None


def _all_in(places: list[Path], names: tuple[str, ...]) -> dict[str, Path]:
    """{name: path} from the first place that holds all the names, or nothing."""
    for place in places:
        for base in (str, lambda name: Path(name).name):
            files = {name: place / base(name) for name in names}
            if all(path.is_file() for path in files.values()):
                return files
    return {}


def verify(d: Dataset, found: Found) -> None:
    """Compares official files with their published checksums before anyone reads them."""
    known = {s.filename: s.checksum for s in d.sources} | {name: f"md5:{md5}" for name, md5 in d.loose.items()}
    for name, path in found.files.items():
        checksum = known.get(name)
        if checksum is None:
            if not d.arrays:
                raise UserError(f"{path}: {d.name} has no published checksum, so it cannot be verified and is not used")
            continue  # the arrays inside are compared with their known sha256 after a harmless parse
        algorithm, expected = checksum.split(":")
        got = digest_file(path, algorithm)
        if got != expected:
            raise UserError(
                f"{path}: {algorithm} is {got}, expected {expected}; the file is damaged or another version: "
                "delete it and run again, or put the right one there"
            )
