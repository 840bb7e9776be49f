"""The two records that the catalogues are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Source:
    """One official file. `checksum`: md5:... or sha256:..., or None where only the arrays in it have a known hash."""

    url: str
    filename: str
    checksum: str | None
    size: int | None = None  # bytes, where published


@dataclass(frozen=True)
class Dataset:
    """The facts of one dataset.

    kind: 'labelled' (train and test, to learn from), 'ood' (images whose labels no one needs) or 'labels' (a label file
    that belongs to another dataset). reader: how its official files are read, see `official.READERS`; 'embedded' for
    data that comes inside scikit-learn; None where only plain arrays from a mirror, or an unpacked tree, can be used.
    """

    name: str
    title: str
    kind: str
    licence: str
    citation: str
    parts: Mapping[str, int]
    classes: tuple[str, ...] = ()
    superclasses: tuple[int, ...] | None = None  # the superclass of each class
    image_size: int = 0
    channels: int = 1
    mean: tuple[float, ...] = ()  # of pixels in [0, 1]; empty where the set is never trained on
    std: tuple[float, ...] = ()
    flip: bool = False  # does a mirrored image still belong to its class
    reader: str | None = None
    tree: str | None = None  # how it is read where it was unpacked, see `tree_layouts.LAYOUTS`
    margin: int = 0  # pixels around the image that decoding keeps, for random crops
    truth: str = "all"  # for which training images the true label is known: all, partial or none
    sources: tuple[Source, ...] = ()
    loose: Mapping[str, str] = field(default_factory=dict)  # md5 of official files that come out of the archive
    folder: str = ""  # its folder in an offline mirror
    arrays: Mapping[str, str] = field(default_factory=dict)  # '<part>_images' or '<part>_labels' -> sha256 as uint8
    gated: str | None = None  # what it takes to get the data, where a download is not enough
    needs_mb: int = 1  # disk for the archives and the prepared arrays together

    @property
    def n_classes(self) -> int:
        return len(self.classes)
