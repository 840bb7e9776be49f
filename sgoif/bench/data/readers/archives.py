"""Read the official file formats. Each reader takes {file name: path} of verified files and returns the parts.

Archives are read member by member and never unpacked, so no member can write anywhere. Pickles are read by an unpickler
that knows numpy arrays and nothing else, and only after their checksum was found right.
"""

from __future__ import annotations

import csv
import gzip
import io
import pickle
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from sgoif.bench.data.catalogue.photo_sets import IMAGENETTE_FOLDERS, IMAGENETTE_NOISY
from sgoif.bench.data.dataset import Dataset, Parts
from sgoif.bench.data.readers.jpeg_archives import read_dtd, read_imagenette, read_places365, read_tinyimagenet
from sgoif.errors import UserError
from sgoif.utils.files import load_npz

Files = Mapping[str, Path]


class ArraysOnly(pickle.Unpickler):
    """An unpickler that can build numpy arrays and the plain Python containers, and refuses every other name."""

    _KNOWN = frozenset(
        {("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode"), ("collections", "OrderedDict")}
        | {(f"numpy.{core}.multiarray", what) for core in ("core", "_core") for what in ("_reconstruct", "scalar")}
    )

    def find_class(self, module: str, name: str) -> object:
        """Return a class or function of numpy arrays; raise UserError for any other name."""
        if (module, name) not in self._KNOWN:
            raise UserError(f"a pickle asks for {module}.{name}, which is no array; delete the file")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def read_idx(d: Dataset, files: Files) -> Parts:
    """Read MNIST's format, gzipped or not."""
    stems = {"train": "train", "test": "t10k"}
    found = {name.removesuffix(".gz"): path for name, path in files.items()}
    return {
        part: (_idx(found[f"{stems[part]}-images-idx3-ubyte"], 3), _idx(found[f"{stems[part]}-labels-idx1-ubyte"], 1))
        for part in d.parts
    }


def _idx(path: Path, n_dims: int) -> np.ndarray:
    raw = path.read_bytes()
    try:
        raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (OSError, EOFError) as e:
        raise UserError(f"{path}: damaged gzip ({e}); fetch it again") from None
    start = 4 + 4 * n_dims
    if len(raw) < start or raw[:4] != bytes([0, 0, 8, n_dims]):
        raise UserError(f"{path}: not an idx file of bytes with {n_dims} dimensions; fetch it again")
    shape = np.frombuffer(raw, ">u4", n_dims, 4).astype(int)
    if len(raw) - start != shape.prod():
        raise UserError(f"{path}: {len(raw) - start} bytes where its header says {shape.prod()}; fetch it again")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)


def read_cifar(d: Dataset, files: Files) -> Parts:
    """Read the Python version of CIFAR: pickled batches, loose or in their tar.gz."""
    batches: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    wanted = {Path(name).name for name in d.loose}
    for name, path in files.items():
        if name.endswith(".tar.gz"):
            with tarfile.open(path) as tar:
                for member in tar:
                    content = tar.extractfile(member) if member.isfile() and member.name in d.loose else None
                    if content is not None:
                        batches[Path(member.name).name] = _batch(content.read())
        else:
            batches[Path(name).name] = _batch(path.read_bytes())
    if missing := wanted - batches.keys():
        raise UserError(f"{d.name}: the archive lacks {', '.join(sorted(missing))}; fetch it again")
    parts = {}
    for part in d.parts:
        mine = [batches[b] for b in sorted(batches) if b.startswith("test") == (part == "test")]
        parts[part] = (np.concatenate([x for x, _ in mine]), np.concatenate([y for _, y in mine]))
    return parts


def _batch(raw: bytes) -> tuple[np.ndarray, np.ndarray]:
    batch = ArraysOnly(io.BytesIO(raw), encoding="latin1").load()
    labels = batch["fine_labels"] if "fine_labels" in batch else batch["labels"]
    images = np.asarray(batch["data"], np.uint8).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), np.asarray(labels, np.int64)


def read_svhn(d: Dataset, files: Files) -> Parts:
    """Read MATLAB files, [height, width, RGB, example]; the digit 0 is stored as label 10."""
    from scipy.io import loadmat

    parts = {}
    for part in d.parts:
        stored = loadmat(files[f"{part}_32x32.mat"], variable_names=["X", "y"])
        images = np.ascontiguousarray(stored["X"].transpose(3, 0, 1, 2))
        parts[part] = (images, stored["y"].reshape(-1).astype(np.int64) % 10)
    return parts


def read_imagenette_noisy(d: Dataset, files: Files) -> dict[str, np.ndarray]:
    """Read Imagenette's noisy labels, in the order in which `read_imagenette` puts the training images.

    The file has a line for every image: its path, five columns of WordNet ids and whether it is a validation image. The
    column `noisy_labels_0` is the truth, the others have 1, 5, 25 and 50% of the training labels changed.
    """
    (path,) = files.values()
    label_of = {wnid: label for label, wnid in enumerate(IMAGENETTE_FOLDERS)}
    names = {column: f"noisy_labels_{percent}" for column, percent in IMAGENETTE_NOISY.items()}
    try:
        with open(path, newline="") as f:
            rows = [row for row in csv.DictReader(f) if row["path"].startswith("train/")]
        rows.sort(key=lambda row: (label_of[row["path"].split("/")[1]], row["path"]))
        return {column: np.array([label_of[row[name]] for row in rows], np.int64) for column, name in names.items()}
    except (KeyError, IndexError, UnicodeDecodeError) as e:
        raise UserError(
            f"{path}: not the noisy labels of Imagenette ({type(e).__name__}: {e}); fetch it again"
        ) from None


def read_human(d: Dataset, files: Files) -> dict[str, np.ndarray]:
    """Read CIFAR-N: a PyTorch file (a zip with one pickle of numpy arrays), or the same columns in `cifar_n.npz`."""
    (name, path), *_ = files.items()
    if name.endswith(".npz"):
        prefix = d.name.removesuffix("n") + "_"
        columns = {k.removeprefix(prefix): v for k, v in load_npz(path).items() if k.startswith(prefix)}
    else:
        with zipfile.ZipFile(path) as z:
            member = next(m for m in z.namelist() if m.endswith("/data.pkl"))
            columns = ArraysOnly(io.BytesIO(z.read(member))).load()
    if missing := set(d.arrays) - set(columns):
        raise UserError(f"{path} lacks the columns {', '.join(sorted(missing))}; fetch it again")
    return {key: np.asarray(columns[key], np.int64) for key in d.arrays}


READERS: dict[str, Callable[[Dataset, Files], Parts]] = {  # of images
    "idx": read_idx,
    "cifar": read_cifar,
    "svhn": read_svhn,
    "dtd": read_dtd,
    "imagenette": read_imagenette,
    "places365": read_places365,
    "tinyimagenet": read_tinyimagenet,
}
LABEL_READERS: dict[str, Callable[[Dataset, Files], dict[str, np.ndarray]]] = {
    "human": read_human,
    "imagenette_noisy": read_imagenette_noisy,
}
