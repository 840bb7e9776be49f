"""Test images set aside with their clean labels.

They are the trusted set of the noisy-label methods that declare one, and the ID validation set of OOD methods.
"""

from pathlib import Path

import numpy as np

from sgoif.bench.data import load
from sgoif.errors import UserError
from sgoif.utils.files import save_npz


def held_out_file(run_dir: Path, dataset: str) -> Path:
    return run_dir / "labels" / dataset / "val.npz"


def hold_out(root: Path, run_dir: Path, dataset: str, count: int) -> Path:
    """Writes labels/<dataset>/val.npz: `index` into the test set (a fixed shuffle, sorted), `labels`, `ids`."""
    labels = load.true_labels(root, dataset, "test")
    if not 0 < count < len(labels):
        raise UserError(f"{dataset}.val: {count} of {len(labels)} test images cannot be set aside; some must remain")
    index = np.sort(np.random.RandomState(0).permutation(len(labels))[:count])
    path = held_out_file(run_dir, dataset)
    save_npz(path, index=index, labels=labels[index], ids=load.ids(root, dataset, "test")[index])
    path.touch()
    return path
