"""Find a dataset's files on this machine, in the offline mirror or among earlier downloads, and verify them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sgoif.bench.data.dataset import Dataset
from sgoif.errors import UserError
from sgoif.utils.files import digest_file


@dataclass(frozen=True)
class LocatedFiles:
    """The files of a dataset on this machine.

    Attributes:
        form: `arrays` for plain npy files, `files` for official ones.
        files: `<part>_images` and `<part>_labels` -> path, or official file name -> path.
    """

    form: Literal["arrays", "files"]
    files: dict[str, Path]


def locate(d: Dataset, mirror: Path | None, downloads: Path) -> LocatedFiles | None:
    """Find the files of a dataset, official ones before plain arrays; they are not verified yet.

    Args:
        d: The dataset.
        mirror: Offline copy of the datasets, if there is one.
        downloads: Folder of the dataset's downloads.

    Returns:
        The files, or None unless all are on this machine.
    """
    folders = [downloads]
    if mirror is not None:
        folders = [mirror / d.folder, mirror / d.folder / "raw", mirror / d.name, mirror, downloads]
    for names in _official_forms(d):
        if names and (files := _all_in(folders, names)):
            return LocatedFiles("files", files)
    if mirror is not None and d.kind != "labels" and d.arrays:
        files = _all_in([mirror / d.folder, mirror / d.name], tuple(f"{key}.npy" for key in d.arrays))
        if files:
            return LocatedFiles("arrays", {name.removesuffix(".npy"): path for name, path in files.items()})
    return None


def _official_forms(d: Dataset) -> list[tuple[str, ...]]:
    """Return the sets of file names in which the official files may come, the first choice first."""
    official = tuple(s.filename for s in d.sources)
    forms = [official, tuple(d.loose)]
    if d.arrays and d.reader == "idx":
        forms.append(tuple(name.removesuffix(".gz") for name in official))
    if d.reader == "human":
        forms.append(("cifar_n.npz",))
    return forms


def _all_in(folders: list[Path], names: tuple[str, ...]) -> dict[str, Path]:
    """Return {name: path} from the first folder that holds all the names, with their own folders or without."""
    for folder in folders:
        for files in ({name: folder / name for name in names}, {name: folder / Path(name).name for name in names}):
            if all(path.is_file() for path in files.values()):
                return files
    return {}


def verify(d: Dataset, located: LocatedFiles) -> None:
    """Compare official files with their published checksums before anyone reads them.

    Raises:
        UserError: If a file differs, or neither it nor its arrays have a known checksum.
    """
    known = {s.filename: s.checksum for s in d.sources} | {name: f"md5:{md5}" for name, md5 in d.loose.items()}
    for name, path in located.files.items():
        checksum = known.get(name)
        if checksum is None:
            if not d.arrays:
                raise UserError(f"{path}: {d.name} has no published checksum, so it cannot be verified and is not used")
            continue  # the arrays inside are compared with their known sha256 after a harmless parse
        algorithm, expected = checksum.split(":")
        actual = digest_file(path, algorithm)
        if actual != expected:
            raise UserError(
                f"{path}: {algorithm} is {actual}, expected {expected}; the file is damaged or another version: "
                "delete it and run again, or put the right one there"
            )
