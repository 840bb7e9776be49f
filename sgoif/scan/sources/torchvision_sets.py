"""Data sets by name: torchvision's, and scikit-learn's digits, which need no download."""

from __future__ import annotations

import inspect
from difflib import get_close_matches

from sgoif.errors import UserError
from sgoif.scan.sources.image_list import Listing


def from_name(name: str, root: str, split: str, download: bool) -> Listing:
    """`digits`, or the training part (`split`) of a torchvision classification data set found under `root`."""
    if name.lower() == "digits":
        return digits()
    from torchvision import datasets

    known = {c.lower(): c for c in datasets.__all__ if c not in ("FakeData", "ImageFolder", "DatasetFolder")}
    if name.lower() not in known:
        near = get_close_matches(name.lower(), ["digits", *known], n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "e.g. CIFAR10, or digits"
        raise UserError(f"{name} is neither a folder, a file nor a data set of torchvision; {hint}")
    title = known[name.lower()]
    kind = getattr(datasets, title)
    takes = inspect.signature(kind).parameters
    part = {"train": split == "train"} if "train" in takes else {"split": split} if "split" in takes else {}
    try:
        data = kind(root, **part, **({"download": download} if "download" in takes else {}))
    except (RuntimeError, OSError, ValueError, TypeError, ImportError) as e:
        told = " ".join(str(e).split())
        hint = "" if download or "download" not in takes else "; --download fetches it"
        raise UserError(f"{title} under {root}: {told[:200]}{hint}") from None
    targets = next((getattr(data, a) for a in ("targets", "labels", "_labels") if hasattr(data, a)), None)
    if targets is None or len(targets) != len(data):
        raise UserError(f"{title} is not a classification data set with one label per image")
    labels = [int(t) for t in targets]
    classes = [str(c) for c in getattr(data, "classes", None) or sorted(set(labels))]
    return _named(title, f"{title}/{split}", labels, classes, lambda i: _picture(data[i][0]))


def digits() -> Listing:
    """scikit-learn's 1,797 handwritten digits of 8 x 8 pixels."""
    from PIL import Image

    from sgoif.utils.digits import load_digit_images

    images, labels = load_digit_images()
    classes = [str(c) for c in range(10)]
    return _named("digits", "digits", labels.tolist(), classes, lambda i: Image.fromarray(images[i]))


def _named(source: str, prefix: str, labels: list[int], classes: list[str], open) -> Listing:
    width = len(str(len(labels) - 1))
    names = [f"{prefix}/{i:0{width}d}" for i in range(len(labels))]
    return Listing("dataset", source, names, labels, classes, open)


def _picture(x):
    if not hasattr(x, "convert"):
        raise UserError(f"this data set gives {type(x).__name__} where an image was expected")
    return x
