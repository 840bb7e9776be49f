"""Every dataset that is known, and how to ask for one by name. Needs no data and no network."""

from __future__ import annotations

import difflib

from sgoif.bench.data.catalogue import bundled_sets, cifar_sets, folder_sets, grey_sets, ood_sets
from sgoif.bench.data.dataset import Dataset, Source
from sgoif.errors import UserError

__all__ = ["DATASETS", "Dataset", "Source", "get"]

DATASETS: dict[str, Dataset] = {
    d.name: d
    for d in (
        *bundled_sets.EMBEDDED,
        *grey_sets.GREY,
        *cifar_sets.CIFAR,
        *ood_sets.OFFICIAL,
        *ood_sets.STAND_INS,
        *folder_sets.TREES,
    )
}


def get(name: str) -> Dataset:
    """The dataset of that name, or a UserError with the nearest names."""
    if name in DATASETS:
        return DATASETS[name]
    lower = {known.lower(): known for known in DATASETS}
    close = [lower[n] for n in difflib.get_close_matches(str(name).lower(), lower, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(sorted(DATASETS, key=str.lower))}"
    raise UserError(f"no dataset is called {name!r}; {hint}")
