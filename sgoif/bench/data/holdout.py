"""Set test images aside with their true labels.

They are the trusted set of the noisy-label methods that declare one, and the ID validation set of OOD methods.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sgoif.bench.data import load
from sgoif.errors import UserError
from sgoif.utils.files import save_npz

HOLD_OUT_SEED = 0


def held_out_file(run_dir: Path, dataset: str) -> Path:
    """Return the file of the images set aside, results/<run>/labels/<dataset>/val.npz."""
    return run_dir / "labels" / dataset / "val.npz"


def hold_out(root: Path, run_dir: Path, dataset: str, count: int) -> Path:
    """Set test images aside, always the same ones.

    Args:
        root: Folder of the prepared datasets.
        run_dir: Folder of the run.
        dataset: Name of the dataset.
        count: Number of images.

    Returns:
        The file written: `index` into the test set, sorted, `labels` and `ids`, shape [count] each.

    Raises:
        UserError: If the test set does not have more than `count` images.
    """
    labels = load.true_labels(root, dataset, "test")
    if not 0 < count < len(labels):
        raise UserError(f"{dataset}.val: {count} of {len(labels)} test images cannot be set aside; some must remain")
    index = np.sort(np.random.RandomState(HOLD_OUT_SEED).permutation(len(labels))[:count])
    path = held_out_file(run_dir, dataset)
    save_npz(path, index=index, labels=labels[index], ids=load.ids(root, dataset, "test")[index])
    path.touch()
    return path
