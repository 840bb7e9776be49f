"""The content of the page for reviewing: which examples it shows, and what it says about each."""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from sgoif.scan import review
from sgoif.scan.findings.classes import find_class_issues
from sgoif.scan.findings.duplicates import Copies
from sgoif.scan.findings.find import NOTHING, ScanFindings
from sgoif.scan.page.class_names import readable_names
from sgoif.scan.page.pictures import TYPICAL_EXAMPLES, TYPICAL_PIXELS, thumbnail, typical_examples
from sgoif.scan.ranking import Ranking
from sgoif.scan.sources.image_listing import Listing
from sgoif.utils.files import atomic_write_text

MIN_EXAMPLES = 100  # on a page where no number is asked for
MAX_EXAMPLES = 500
MAX_GROUPS = 100  # of copies on a page
MAX_GROUP = 12  # copies of one group
MAX_OUTLIERS = 100
FOLDER = Path(__file__).parent
SCRIPTS = ("cards.js", "sections.js", "zoom.js", "decisions.js", "estimate.js", "bulk.js", "page.js")  # in this order


@dataclass
class PageEvidence:
    """What the training knows of N examples beside their ranking.

    Attributes:
        contributions: Part of each class's anchor in the score, shape [N, K].
        probabilities: Mean class probabilities over the visits, shape [N, C].
        features: Features whose distances tell how alike examples are, shape [N, k].
    """

    contributions: np.ndarray
    probabilities: np.ndarray
    features: np.ndarray


def write_gallery(
    path: Path,
    listing: Listing,
    ranking: Ranking,
    evidence: PageEvidence,
    size: int | None,
    findings: ScanFindings = NOTHING,
) -> None:
    """Write the page with the most suspicious examples.

    Args:
        path: File to write.
        listing: The examples.
        ranking: Their scores and order.
        evidence: What else is shown of them.
        size: Number of examples; None: as many as are flagged, within `MIN_EXAMPLES` and `MAX_EXAMPLES`.
        findings: Copies and outliers, which get sections of their own.
    """
    chosen = shown_examples(ranking, size)
    size = len(chosen)
    sections = page_sections(findings)
    others = [i for section in sections for group in section["groups"] for i in group["items"]]
    shown = list(dict.fromkeys([*chosen.tolist(), *others]))
    place = np.empty(len(ranking.order), int)
    place[ranking.order] = np.arange(len(place))
    items = [gallery_item(listing, ranking, evidence, int(place[i]), i) for i in shown]
    for n, (item, i) in enumerate(zip(items, shown, strict=True)):
        item["file"] = _file_link(path.parent, listing, i)
        item["suspicious"] = n < size
    for section in sections:
        for group in section["groups"]:
            group["items"] = [shown.index(i) for i in group["items"]]
    content = repr([(item["path"], item["given"], item["score"]) for item in items])
    page = {
        "id": hashlib.sha256(content.encode()).hexdigest()[:16],
        "source": listing.source,
        "classes": listing.classes,
        "names": readable_names(listing.classes, listing.shown_names),
        "summary": review.summary_sentence(ranking.wrong_probability, chosen),
        "estimate": estimate_settings(ranking.wrong_probability[ranking.order[size:]]),
        "class_issues": find_class_issues(
            np.array(listing.labels), ranking.wrong_probability, evidence.probabilities, listing.classes
        ),
        "sections": sections,
        "typical": _typical_pictures(listing, ranking, evidence, items),
        "items": items,
    }
    atomic_write_text(path, assemble(page))


def page_sections(findings: ScanFindings) -> list[dict[str, Any]]:
    """Return the sections of the page beside that of suspicious labels: title, explanation, and groups of examples."""
    copies = [{"told": _tell_copies(c), "items": c.examples[:MAX_GROUP]} for c in findings.copies[:MAX_GROUPS]]
    outliers, beyond = findings.outliers.examples[:MAX_OUTLIERS], findings.outliers.beyond_chance
    rest = "The next, which chance could explain" if beyond else "The farthest; chance could explain them"
    groups = [("Farther out than chance explains", outliers[:beyond]), (rest, outliers[beyond:])]
    sections = [
        {
            "name": "copies",
            "title": "Copies",
            "told": "Copies under several labels: at most one of the labels can be right.",
            "groups": copies,
        },
        {
            "name": "outliers",
            "title": "Outliers",
            "told": "Examples that are least like the rest: perhaps no class is right for them.",
            "groups": [{"told": told, "items": items} for told, items in groups if items],
        },
    ]
    return [section for section in sections if section["groups"]]


def _tell_copies(copies: Copies) -> str:
    if copies.kind == "exact":
        return "Exact copies"
    return f"Near copies (cosine of their features: {copies.similarity:.3f})"


def shown_examples(ranking: Ranking, size: int | None) -> np.ndarray:
    """Return the positions of the examples on the page, most suspicious first (see `write_gallery`)."""
    return ranking.order[: size or min(max(ranking.estimated, MIN_EXAMPLES), MAX_EXAMPLES)]


def estimate_settings(rest: np.ndarray) -> dict[str, Any]:
    """Return what estimate.js needs: the constants of `review`, and in bins the probabilities of what is not shown."""
    values, counts = review.bin_probabilities(rest)
    return {
        "grid": review.GRID,
        "reach": review.REACH,
        "slope": review.SLOPE,
        "slope_sd": review.SLOPE_SD,
        "shift_sd": review.SHIFT_SD,
        "half_life": review.HALF_LIFE,
        "least": review.LEAST_PROBABILITY,
        "most": review.MOST_PROBABILITY,
        "normal_quantile": review.NORMAL_QUANTILE,
        "last": review.LAST,
        "rest": [[float(f"{p:.6g}"), int(n)] for p, n in zip(values, counts, strict=True)],
    }


def assemble(page: dict[str, Any]) -> str:
    """Return the page as HTML, with style, scripts and content inside."""
    scripts = "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in SCRIPTS)
    html = (FOLDER / "gallery.html").read_text(encoding="utf-8")
    html = html.replace("__STYLE__", (FOLDER / "gallery.css").read_text(encoding="utf-8"))
    return html.replace("__SCRIPT__", scripts).replace("__DATA__", json_for_script(page))


def json_for_script(value: object) -> str:
    """Return JSON that may stand inside a script element: nothing in it can end the element or open a comment."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def gallery_item(listing: Listing, ranking: Ranking, evidence: PageEvidence, rank: int, i: int) -> dict[str, Any]:
    """Return what the page shows of example `i`."""
    label = listing.labels[i]
    others = evidence.probabilities[i].copy()
    others[label] = -1
    other = int(others.argmax())
    image, tiny = thumbnail(listing, i)
    return {
        "rank": rank + 1,
        "path": listing.names[i],
        "given": label,
        "other": other,
        "wrong": round(float(ranking.wrong_probability[i]), 4),
        "flagged": bool(ranking.flagged[i]),
        "probabilities": [_digits(float(evidence.probabilities[i, c])) for c in (label, other)],
        "suspicion": _digits(float(ranking.suspicion[i])),
        "score": _digits(float(ranking.score[i])),
        "interval": informative_interval(float(ranking.score[i]), float(ranking.half_width[i])),
        "confidence": _digits(float(ranking.confidence[i])),
        "visits": int(ranking.visits[i]),
        "judged": bool(ranking.visited[i]),
        "why": main_contributions(evidence.contributions[i]),
        "image": image,
        "tiny": tiny,
    }


def _digits(value: float) -> float:
    return float(f"{value:.3g}")


def informative_interval(score: float, half_width: float) -> list[float] | None:
    """Return the interval of a score, or None where it says nothing: it is infinite, or holds both signs."""
    if not math.isfinite(half_width) or half_width >= abs(score):
        return None
    return [_digits(score - half_width), _digits(score + half_width)]


def main_contributions(contributions: np.ndarray, limit: int = 4) -> list[list[float]]:
    """Return [class, part of the score] of the anchors with the greatest parts, the most positive first."""
    greatest = np.argsort(-np.abs(contributions), kind="stable")[:limit].tolist()
    chosen = sorted(greatest, key=lambda c: -contributions[c])
    return [[c, _digits(float(contributions[c]))] for c in chosen if contributions[c] != 0]


def _file_link(folder: Path, listing: Listing, i: int) -> str | None:
    """Return the way from the page to the file of example `i`; None where the examples are not files."""
    if listing.base is None:
        return None
    return quote(os.path.relpath(listing.base / listing.names[i], folder.resolve()))


def _typical_pictures(
    listing: Listing, ranking: Ranking, evidence: PageEvidence, items: list[dict[str, Any]]
) -> dict[int, list[dict[str, Any]]]:
    """Return the pictures of typical examples of every class that the page names."""
    used = {item[name] for item in items for name in ("given", "other")}
    found = typical_examples(evidence.features, np.array(listing.labels), ranking.flagged, TYPICAL_EXAMPLES)
    pictures: dict[int, list[dict[str, Any]]] = {}
    for c in sorted(used):
        shown = [(*thumbnail(listing, int(i), TYPICAL_PIXELS), listing.names[i]) for i in found[c]]
        pictures[c] = [{"image": image, "tiny": tiny, "path": name} for image, tiny, name in shown if image]
    return pictures
