"""The page for reviewing: one file with pictures, labels and reasons inside, which asks nothing of any network."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
from pathlib import Path

import numpy as np

from sgoif.scan.decode import Unreadable, thumbnail
from sgoif.scan.sources.image_list import Listing
from sgoif.utils.files import atomic_write_text

USUAL = (100, 500)  # examples on a page where no number is asked for
SIDE = 160  # pixels of a thumbnail
TEMPLATE = Path(__file__).with_name("gallery.html")


def write_gallery(
    path: Path, listing: Listing, ranking, anchors: np.ndarray, beliefs: np.ndarray, most: int | None
) -> None:
    """The `most` most suspicious examples (None: the flagged ones, within `USUAL`); `anchors` `[N, K]` says which
    classes' anchors speak against each."""
    most = most or min(max(ranking.estimated, USUAL[0]), USUAL[1])
    items = [item(listing, ranking, anchors, beliefs, rank, int(i)) for rank, i in enumerate(ranking.order[:most])]
    named = repr([(x["path"], x["given"], x["score"]) for x in items])
    page = {
        "id": hashlib.sha256(named.encode()).hexdigest()[:16],
        "source": listing.source,
        "classes": listing.classes,
        "examples": len(listing),
        "estimated": ranking.estimated,
        "items": items,
    }
    atomic_write_text(path, TEMPLATE.read_text().replace("__DATA__", embedded(page)))


def embedded(value) -> str:
    """JSON that may stand inside a script element: nothing in it can end the element or open a comment."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def item(listing: Listing, ranking, anchors: np.ndarray, beliefs: np.ndarray, rank: int, i: int) -> dict:
    given = listing.labels[i]
    others = beliefs[i].copy()
    others[given] = -1
    image, tiny = picture(listing, i)
    width = float(ranking.half_width[i])
    return {
        "rank": rank + 1,
        "path": listing.names[i],
        "given": given,
        "suggested": int(ranking.suggested[i]),
        "other": int(others.argmax()),
        "probability": round(float(ranking.probability[i]), 4),
        "score": float(f"{ranking.score[i]:.4g}"),
        "half_width": float(f"{width:.4g}") if math.isfinite(width) else None,
        "confidence": round(float(ranking.confidence[i]), 3),
        "visits": int(ranking.visits[i]),
        "flagged": bool(ranking.flagged[i]),
        "why": reasons(anchors[i]),
        "image": image,
        "tiny": tiny,
    }


def reasons(parts: np.ndarray, most: int = 4) -> list[list]:
    """[class, part of the score] of the anchors with the greatest parts, most harmed first."""
    chosen = sorted(np.argsort(-np.abs(parts), kind="stable")[:most].tolist(), key=lambda c: -parts[c])
    return [[c, float(f"{parts[c]:.3g}")] for c in chosen if parts[c] != 0]


def picture(listing: Listing, i: int) -> tuple[str, bool]:
    """(data URI, is it so small that its pixels should stay sharp)."""
    try:
        small = thumbnail(listing.open, i, SIDE)
    except Unreadable:  # it was readable when the scan began; the page still names it
        return "data:,", False
    return data_uri(small), max(small.size) <= 64


def data_uri(small) -> str:
    """PNG for tiny pictures, JPEG otherwise."""
    out, kind = io.BytesIO(), "PNG" if max(small.size) <= 64 else "JPEG"
    small.save(out, kind, **({} if kind == "PNG" else {"quality": 82}))
    return f"data:image/{kind.lower()};base64,{base64.b64encode(out.getvalue()).decode()}"
