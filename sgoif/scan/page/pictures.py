"""Pictures inside a page: thumbnails as data URIs, and which examples are typical of their class."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

import numpy as np

from sgoif.scan.decode import Unreadable, make_thumbnail
from sgoif.scan.sources.image_listing import Listing

if TYPE_CHECKING:
    from PIL.Image import Image

THUMBNAIL_PIXELS = 320
TYPICAL_PIXELS = 160
TYPICAL_EXAMPLES = 3  # of each class
LOSSLESS_PIXELS = 64  # images up to this size are kept without loss
SHARP_PIXELS = 16  # and up to this size shown with sharp pixels; larger ones are recognised better if smoothed
JPEG_QUALITY = 80


def thumbnail(listing: Listing, i: int, side: int = THUMBNAIL_PIXELS) -> tuple[str | None, bool]:
    """Return a picture of example `i` as data URI, None if it cannot be read any more, and whether it is tiny."""
    try:
        small = make_thumbnail(listing.open, i, side)
    except Unreadable:  # it was readable when the scan began; the page still names it
        return None, False
    return data_uri(small), is_tiny(small)


def is_tiny(image: Image) -> bool:
    """Return whether an image is so small that its pixels should stay sharp."""
    return max(image.size) <= SHARP_PIXELS


def data_uri(image: Image) -> str:
    """Return an image as a data URI: PNG for small images, JPEG otherwise."""
    out = io.BytesIO()
    if max(image.size) <= LOSSLESS_PIXELS:
        kind = "png"
        image.save(out, "PNG")
    else:
        kind = "jpeg"
        image.save(out, "JPEG", quality=JPEG_QUALITY)
    return f"data:image/{kind};base64,{base64.b64encode(out.getvalue()).decode()}"


def typical_examples(features: np.ndarray, labels: np.ndarray, suspicious: np.ndarray, limit: int) -> list[np.ndarray]:
    """Find the examples of each class that are nearest to its mean.

    Features are compared by their direction, so that bright and faint images count alike.

    Args:
        features: Features of the examples, shape [N, d].
        labels: Their labels, shape [N].
        suspicious: Examples that do not stand for their class while it has others, bool, shape [N].
        limit: Examples of a class.

    Returns:
        Positions of at most `limit` examples for each class, the most typical first.
    """
    rows = np.asarray(features, np.float32)
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    found = []
    for c in range(int(labels.max()) + 1):
        members = np.flatnonzero((labels == c) & ~suspicious)
        if len(members) == 0:
            members = np.flatnonzero(labels == c)
        nearness = rows[members] @ rows[members].mean(0) if len(members) else np.empty(0)
        found.append(members[np.argsort(-nearness, kind="stable")[:limit]])
    return found
