"""The page for reviewing: one file with images, labels and reasons inside, which loads nothing from a network."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sgoif.scan.decode import Unreadable, make_thumbnail
from sgoif.scan.ranking import Ranking
from sgoif.scan.sources.image_listing import Listing
from sgoif.utils.files import atomic_write_text

if TYPE_CHECKING:
    from PIL.Image import Image

MIN_EXAMPLES = 100  # on a page where no number is asked for
MAX_EXAMPLES = 500
THUMBNAIL_PIXELS = 160
TINY_PIXELS = 64  # images up to this size are shown with sharp pixels
JPEG_QUALITY = 82
TEMPLATE = Path(__file__).with_name("gallery.html")


def write_gallery(
    path: Path,
    listing: Listing,
    ranking: Ranking,
    contributions: np.ndarray,
    probabilities: np.ndarray,
    size: int | None,
) -> None:
    """Writes the page with the most suspicious examples.

    Args:
        path: File to write.
        listing: The examples.
        ranking: Their scores and order.
        contributions: Part of each class's anchor in the score, shape [N, K].
        probabilities: Mean class probabilities over the visits, shape [N, C].
        size: Number of examples; None: as many as are flagged, within `MIN_EXAMPLES` and `MAX_EXAMPLES`.
    """
    size = size or min(max(ranking.estimated, MIN_EXAMPLES), MAX_EXAMPLES)
    items = [
        gallery_item(listing, ranking, contributions[i], probabilities[i], rank, int(i))
        for rank, i in enumerate(ranking.order[:size])
    ]
    content = repr([(item["path"], item["given"], item["score"]) for item in items])
    page = {
        "id": hashlib.sha256(content.encode()).hexdigest()[:16],
        "source": listing.source,
        "classes": listing.classes,
        "examples": len(listing),
        "estimated": ranking.estimated,
        "items": items,
    }
    atomic_write_text(path, TEMPLATE.read_text().replace("__DATA__", json_for_script(page)))


def json_for_script(value: object) -> str:
    """Returns JSON that may stand inside a script element: nothing in it can end the element or open a comment."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def gallery_item(
    listing: Listing, ranking: Ranking, contributions: np.ndarray, probabilities: np.ndarray, rank: int, i: int
) -> dict[str, Any]:
    """Returns what the page shows of example `i`, whose anchor contributions and probabilities are given."""
    label = listing.labels[i]
    others = probabilities.copy()
    others[label] = -1
    image, tiny = _thumbnail_uri(listing, i)
    half_width = float(ranking.half_width[i])
    return {
        "rank": rank + 1,
        "path": listing.names[i],
        "given": label,
        "suggested": int(ranking.suggested[i]),
        "other": int(others.argmax()),
        "probability": round(float(ranking.probability[i]), 4),
        "score": float(f"{ranking.score[i]:.4g}"),
        "half_width": float(f"{half_width:.4g}") if math.isfinite(half_width) else None,
        "confidence": round(float(ranking.confidence[i]), 3),
        "visits": int(ranking.visits[i]),
        "flagged": bool(ranking.flagged[i]),
        "why": main_contributions(contributions),
        "image": image,
        "tiny": tiny,
    }


def main_contributions(contributions: np.ndarray, limit: int = 4) -> list[list[float]]:
    """Returns [class, part of the score] of the anchors with the greatest parts, the most positive first."""
    greatest = np.argsort(-np.abs(contributions), kind="stable")[:limit].tolist()
    chosen = sorted(greatest, key=lambda c: -contributions[c])
    return [[c, float(f"{contributions[c]:.3g}")] for c in chosen if contributions[c] != 0]


def _thumbnail_uri(listing: Listing, i: int) -> tuple[str, bool]:
    """Returns a data URI, and whether the image is so small that its pixels should stay sharp."""
    try:
        small = make_thumbnail(listing.open, i, THUMBNAIL_PIXELS)
    except Unreadable:  # it was readable when the scan began; the page still names it
        return "data:,", False
    return data_uri(small), is_tiny(small)


def is_tiny(image: Image) -> bool:
    """Returns whether an image is so small that its pixels should stay sharp."""
    return max(image.size) <= TINY_PIXELS


def data_uri(image: Image) -> str:
    """Returns an image as a data URI: PNG for tiny images, JPEG otherwise."""
    out = io.BytesIO()
    if is_tiny(image):
        kind = "png"
        image.save(out, "PNG")
    else:
        kind = "jpeg"
        image.save(out, "JPEG", quality=JPEG_QUALITY)
    return f"data:image/{kind};base64,{base64.b64encode(out.getvalue()).decode()}"
