"""The facts of every dataset: title, licence, sizes, classes, official files and checksums.

Way in: `get(name)`, or `DATASETS` for all of them. The checksum of an official file is `Dataset.sources[i].checksum`,
that of an array `Dataset.arrays[key]`; both are written beside the dataset in one of the `*_sets` modules; weights that
training may start from are in `weights`. Reads no
files and needs no network; writes nothing.
"""

from __future__ import annotations

from sgoif.bench.data.catalogue import bundled_sets, cifar_sets, folder_sets, grey_sets, ood_sets, photo_sets, weights
from sgoif.bench.data.dataset import Dataset, OfficialFile
from sgoif.errors import UserError
from sgoif.utils.suggest import suggest

__all__ = ["DATASETS", "Dataset", "OfficialFile", "get"]

DATASETS: dict[str, Dataset] = {
    d.name: d
    for d in (
        *bundled_sets.BUNDLED_SETS,
        *grey_sets.GREY_SETS,
        *cifar_sets.CIFAR_SETS,
        *photo_sets.PHOTO_SETS,
        *ood_sets.OFFICIAL_SETS,
        *ood_sets.STAND_IN_SETS,
        *folder_sets.FOLDER_SETS,
        *weights.WEIGHTS,
    )
}


def get(name: str) -> Dataset:
    """Return the dataset of that name.

    Raises:
        UserError: If there is none; the message suggests the nearest names.
    """
    if name not in DATASETS:
        raise UserError(f"no dataset is called {name!r}; {suggest(name, DATASETS)}")
    return DATASETS[name]
