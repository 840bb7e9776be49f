"""A folder of class folders as the source of a scan: FOLDER/<class>/**/<image>."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from sgoif.errors import UserError
from sgoif.scan.sources.image_listing import Listing
from sgoif.scan.sources.regular_files import NOT_REGULAR, is_special, open_image_file

PARTS = {"train", "training", "val", "valid", "validation", "dev", "test", "testing"}  # of a data set, as folders
NOT_READ = {".heic", ".heif", ".avif", ".jxl", ".svg", ".raw", ".dng", ".cr2", ".cr3", ".nef", ".arw"}
MAX_NAMED = 5  # folders in a message


def list_folder(folder: Path) -> Listing:
    """List the images of a folder; the label is the name of the first folder below it.

    Hidden files and folders, and files with the suffix of something else than an image, are ignored. Left out are
    images of a kind that cannot be read, files without a suffix, files whose names are not UTF-8, pipes, sockets and
    devices, linked folders inside a class, and classes that are links to a folder that is read anyway. Class folders
    without an image are named on standard error.

    Raises:
        UserError: If the folder may not be read, has no images in class folders, or its folders are parts of a data set
            with class folders in them.
    """
    found = _FoundImages(folder, _image_suffixes())
    labels = _class_names(folder)
    for label in sorted(labels, key=lambda label: (folder / label).is_symlink()):  # a link gives way to a real folder
        found.add_class(label)
    pairs = [(name, label) for label in labels for name in found.names.get(label, [])]
    if not pairs:
        raise UserError(_no_images(folder, found))
    classes = sorted({label for _, label in pairs})
    _require_no_parts(folder, found)
    _tell_empty(folder, found)
    number = {name: i for i, name in enumerate(classes)}
    names = [name for name, _ in pairs]
    return Listing(
        kind="folder",
        source=str(folder),
        names=names,
        labels=[number[label] for _, label in pairs],
        classes=classes,
        open=lambda i: open_image_file(folder / names[i]),
        base=folder.resolve(),
        left_out=sorted(found.left_out),
    )


class _FoundImages:
    """The images of the classes of a folder, by class; no folder is read twice, whatever links lead to it.

    Args:
        folder: The folder of class folders.
        suffixes: Suffixes of images.
    """

    def __init__(self, folder: Path, suffixes: set[str]):
        self.folder = folder
        self.suffixes = suffixes
        self.names: dict[str, list[str]] = {}
        self.left_out: list[tuple[str, str]] = []
        real = folder.resolve()
        self._read = {str(above): f"{above}, which holds it" for above in (real, *real.parents)}

    def add_class(self, label: str) -> None:
        """Read FOLDER/<label> in a fixed order; names are relative to FOLDER."""
        self.names[label] = []
        for inner, folders, files in os.walk(self.folder / label, onerror=_raise_unreadable):
            shown = Path(inner).relative_to(self.folder).as_posix()
            real = os.path.realpath(inner)
            if real in self._read:
                self._leave_out(shown, f"the same folder as {self._read[real]}")
                folders.clear()
                continue
            self._read[real] = f"{shown}, which is read already"
            visible = sorted(f for f in folders if not f.startswith("."))
            folders[:] = [f for f in visible if not os.path.islink(os.path.join(inner, f))]
            for linked in sorted(set(visible) - set(folders)):
                self._leave_out(f"{shown}/{linked}", "a linked folder inside a class")
            for file in sorted(files):
                if not file.startswith("."):
                    self._add_file(label, f"{shown}/{file}")

    def _add_file(self, label: str, name: str) -> None:
        suffix = Path(name).suffix.lower()
        if suffix and suffix not in self.suffixes | NOT_READ:
            return
        if not suffix:
            self._leave_out(name, "its name has no suffix, as .png")
        elif suffix not in self.suffixes:
            self._leave_out(name, f"{suffix} cannot be read; convert it, for example to .png")
        elif not _is_utf8(name):
            self._leave_out(name, "its name is not UTF-8")
        elif is_special(self.folder / name):
            self._leave_out(name, NOT_REGULAR)
        else:
            self.names[label].append(name)

    def _leave_out(self, name: str, reason: str) -> None:
        self.left_out.append((_as_utf8(name), _as_utf8(reason)))


def _image_suffixes() -> set[str]:
    """Return the suffixes that PIL can open."""
    from PIL import Image

    return {suffix for suffix, plugin in Image.registered_extensions().items() if plugin in Image.OPEN}


def _class_names(folder: Path) -> list[str]:
    try:
        return sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    except PermissionError:
        raise UserError(f"{folder} may not be read: check its permissions") from None


def _require_no_parts(folder: Path, found: _FoundImages) -> None:
    """Raise UserError if what was taken for classes are train, val, … with class folders in them."""
    used = [label for label, names in found.names.items() if names]
    parts = [p for p in used if p.lower() in PARTS and all(name.count("/") > 1 for name in found.names[p])]
    if len(parts) > 1 or parts == used:
        named = ", ".join(map(repr, parts))
        raise UserError(
            f"{folder}: {named}: parts of a data set, not classes; scan one of them, as {folder / parts[0]}"
        )


def _tell_empty(folder: Path, found: _FoundImages) -> None:
    """Names the class folders without an image; those that are not read at all are in `left_out` themselves."""
    skipped = {name for name, _ in found.left_out}
    empty = [label for label, names in found.names.items() if not names and _as_utf8(label) not in skipped]
    if empty:
        named = ", ".join(repr(_as_utf8(label)) for label in empty[:MAX_NAMED])
        more = f" and {len(empty) - MAX_NAMED} more" if len(empty) > MAX_NAMED else ""
        print(f"note: {folder}: no image that can be read in {named}{more}, so no such class", file=sys.stderr)


def _raise_unreadable(error: OSError) -> NoReturn:
    raise UserError(f"{error.filename} may not be read ({error.strerror}): check its permissions")


def _no_images(folder: Path, found: _FoundImages) -> str:
    loose = any(p.suffix.lower() in found.suffixes for p in folder.iterdir())
    hint = "its images lie outside class folders" if loose else "there is no image in it"
    if found.left_out:
        name, reason = found.left_out[0]
        hint += f" but what is left out, e.g. {name} ({reason})"
    return f"{folder}: {hint}; expected {folder.name}/<class>/<image>, or a CSV of path and label"


def _as_utf8(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "replace")


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
