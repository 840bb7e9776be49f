"""Choice of the reader: a folder of class folders, a CSV of path and label, or the name of a data set."""

from __future__ import annotations

import mimetypes
import os
from dataclasses import dataclass
from pathlib import Path

from sgoif.errors import UserError
from sgoif.scan.sources.csv_file import list_csv
from sgoif.scan.sources.folder import list_folder
from sgoif.scan.sources.image_listing import Listing
from sgoif.scan.sources.regular_files import require_no_special
from sgoif.scan.sources.torchvision_sets import list_dataset


@dataclass(frozen=True)
class ReadOptions:
    """How a source is read.

    Attributes:
        columns: Names of the path column and the label column of a CSV.
        encoding: Encoding of a CSV.
        root: Folder of torchvision's data sets.
        split: Part of a torchvision data set.
        download: Whether torchvision may download the data set.
    """

    columns: tuple[str, str] = ("path", "label")
    encoding: str = "utf-8"
    root: str = "data"
    split: str = "train"
    download: bool = False


def read_source(source: str, options: ReadOptions | None = None) -> Listing:
    """List the examples of a folder, a CSV file, or a data set by name.

    Args:
        source: Path of a folder or a CSV file, or the name of a data set.
        options: How it is read; None for the defaults.

    Raises:
        UserError: If there is no such source, or if it cannot be read.
    """
    options = options or ReadOptions()
    path = Path(source)
    if path.is_dir():
        return list_folder(path)
    if path.is_file():
        if (mimetypes.guess_type(path.name)[0] or "").startswith("image/"):
            raise UserError(f"{source} is one image; expected a folder of class folders, or a CSV of path and label")
        return list_csv(path, options.columns, options.encoding)
    require_no_special(path, "expected a folder of class folders, or a CSV of path and label")
    if os.sep in source or path.suffix:
        raise UserError(f"no folder or file {source}")
    return list_dataset(source, options.root, options.split, options.download, hint="; --download fetches it")
