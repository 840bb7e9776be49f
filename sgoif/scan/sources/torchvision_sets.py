"""Data sets by name: torchvision's, and scikit-learn's digits, which need no download."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sgoif.errors import UserError
from sgoif.scan.sources.image_listing import Listing
from sgoif.utils.suggest import nearest_names

if TYPE_CHECKING:
    from PIL.Image import Image

NOT_BY_NAME = ("FakeData", "ImageFolder", "DatasetFolder")  # torchvision classes that are not one data set
LABEL_ATTRIBUTES = ("targets", "labels", "_labels")


def list_dataset(name: str, root: str, split: str, download: bool, hint: str = "") -> Listing:
    """List `digits`, or one part of a torchvision classification data set.

    Args:
        name: Name of the data set in any case.
        root: Folder of torchvision's data sets.
        split: Part of the data set, e.g. "train".
        download: Whether torchvision may download it.
        hint: End of the message if it is not there and could have been downloaded.

    Raises:
        UserError: If there is no such data set, it is not on this machine, or it has not one label per image.
    """
    if name.lower() == "digits":
        return _list_digits()
    title = _torchvision_name(name)
    data = _load(title, root, split, download, hint)
    targets = next((getattr(data, a) for a in LABEL_ATTRIBUTES if hasattr(data, a)), None)
    if targets is None or len(targets) != len(data):
        raise UserError(f"{title} is not a classification data set with one label per image")
    labels = [int(t) for t in targets]
    classes = [str(c) for c in getattr(data, "classes", None) or sorted(set(labels))]
    return _numbered(title, f"{title}/{split}", labels, classes, lambda i: _require_image(data[i][0]))


def _torchvision_name(name: str) -> str:
    """Return the name in torchvision's spelling."""
    from torchvision import datasets

    known = {title.lower(): title for title in datasets.__all__ if title not in NOT_BY_NAME}
    if name.lower() not in known:
        near = nearest_names(name, ["digits", *known.values()])
        hint = f"did you mean {' or '.join(near)}?" if near else "e.g. CIFAR10, or digits"
        raise UserError(f"{name} is neither a folder, a file nor a data set of torchvision; {hint}")
    return str(known[name.lower()])


def _load(title: str, root: str, split: str, download: bool, hint: str) -> Any:
    """Return the torchvision data set; its classes choose a part by `train` or by `split`, or have but one."""
    from torchvision import datasets

    kind = getattr(datasets, title)
    accepted = inspect.signature(kind).parameters
    arguments: dict[str, object] = {}
    if "train" in accepted:
        if split not in ("train", "test"):
            raise UserError(f"{title} has the parts train and test, not {split!r}")
        arguments["train"] = split == "train"
    elif "split" in accepted:
        arguments["split"] = split
    elif split != "train":
        raise UserError(f"{title} has no part {split!r}; it is not divided")
    if "download" in accepted:
        arguments["download"] = download
    try:
        return kind(root, **arguments)
    except (RuntimeError, OSError, ValueError, TypeError, ImportError) as e:
        reason = " ".join(str(e).split())[:200]
        fetchable = "download" in accepted and not download
        raise UserError(f"{title} under {root}: {reason}{hint if fetchable else ''}") from None


def _list_digits() -> Listing:
    """List scikit-learn's 1,797 handwritten digits of 8 x 8 pixels."""
    from PIL import Image

    from sgoif.utils.digits import load_digit_images

    images, labels = load_digit_images()
    classes = [str(c) for c in range(10)]
    return _numbered("digits", "digits", labels.tolist(), classes, lambda i: Image.fromarray(images[i]))


def _numbered(source: str, prefix: str, labels: list[int], classes: list[str], open: Callable[[int], Image]) -> Listing:
    """Return a listing whose names are numbers of equal width behind a prefix."""
    width = len(str(len(labels) - 1))
    names = [f"{prefix}/{i:0{width}d}" for i in range(len(labels))]
    return Listing("dataset", source, names, labels, classes, open)


def _require_image(x: Any) -> Image:
    if not hasattr(x, "convert"):
        raise UserError(f"this data set gives {type(x).__name__} where an image was expected")
    image: Image = x
    return image
