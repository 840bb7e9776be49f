"""A folder of class folders as the source of a scan: FOLDER/<class>/**/<image>."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from sgoif.errors import UserError
from sgoif.scan.sources.image_listing import Listing


def list_folder(folder: Path) -> Listing:
    """Lists the images of a folder; the label is the name of the first folder below it.

    Hidden files and folders, and files without the suffix of an image, are ignored. Files whose names are not UTF-8 are
    left out.

    Raises:
        UserError: If the folder may not be read, or has no images in class folders.
    """
    from PIL import Image

    suffixes = _image_suffixes()
    names: list[str] = []
    labels: list[str] = []
    left_out: list[tuple[str, str]] = []
    for label in _class_names(folder):
        for name in _walk_images(folder, label, suffixes):
            if _is_utf8(name):
                names.append(name)
                labels.append(label)
            else:
                left_out.append((os.fsencode(name).decode("utf-8", "replace"), "its name is not UTF-8"))
    if not names:
        raise UserError(_no_images(folder, suffixes))
    classes = sorted(set(labels))
    number = {name: i for i, name in enumerate(classes)}
    return Listing(
        kind="folder",
        source=str(folder),
        names=names,
        labels=[number[label] for label in labels],
        classes=classes,
        open=lambda i: Image.open(folder / names[i]),
        base=folder.resolve(),
        left_out=left_out,
    )


def _image_suffixes() -> set[str]:
    """Returns the suffixes that PIL can open."""
    from PIL import Image

    return {suffix for suffix, plugin in Image.registered_extensions().items() if plugin in Image.OPEN}


def _class_names(folder: Path) -> list[str]:
    try:
        return sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    except PermissionError:
        raise UserError(f"{folder} may not be read: check its permissions") from None


def _walk_images(folder: Path, label: str, suffixes: set[str]) -> Iterator[str]:
    """Yields the images below FOLDER/<label>, relative to FOLDER, in a fixed order."""
    for inner, folders, files in os.walk(folder / label, onerror=_raise_unreadable):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for file in sorted(files):
            if not file.startswith(".") and Path(file).suffix.lower() in suffixes:
                yield (Path(inner) / file).relative_to(folder).as_posix()


def _raise_unreadable(error: OSError) -> NoReturn:
    raise UserError(f"{error.filename} may not be read ({error.strerror}): check its permissions")


def _no_images(folder: Path, suffixes: set[str]) -> str:
    loose = any(p.suffix.lower() in suffixes for p in folder.iterdir())
    hint = "its images lie outside class folders" if loose else "there is no image in it"
    return f"{folder}: {hint}; expected {folder.name}/<class>/<image>, or a CSV of path and label"


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
