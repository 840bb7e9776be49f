"""A page of a scan with names and labels that hurt, and what its tests ask the browser."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from sgoif.scan.findings.duplicates import Copies
from sgoif.scan.findings.find import ScanFindings
from sgoif.scan.findings.outliers import Outliers
from sgoif.scan.page.gallery import PageEvidence, write_gallery
from sgoif.scan.sources.image_listing import Listing
from tests.helpers.browser import chromium

needs_browser = pytest.mark.skipif(chromium() is None, reason="no Chromium on this machine")
EVIL = "</script><img src=x onerror=\"document.title='owned'\"><b>&amp;\"',\u2028.png"
CLASSES = ["cat", "dog, brown", 'ow"l', "<i>emu</i>"]
WRONG = np.linspace(0.98, 0.32, 12)
FOCUS = "document.activeElement.closest('article')?.querySelector('.path')?.textContent.split(' ').slice(1).join(' ')"
SHOWN = "[...document.querySelectorAll('article')].filter(a => !a.hidden).length"
COUNT = "document.getElementById('count').textContent"


def decisions(b) -> dict:
    return {d["path"]: (d["decision"], d["label"]) for d in json.loads(b.ask("asJSON()"))["decisions"]}


def write_page(folder: Path) -> SimpleNamespace:
    """Write a page of 12 examples in 4 classes with names and labels that hurt."""
    rng = np.random.default_rng(0)
    names = [f"{i:02d}.png" for i in range(11)] + [EVIL]
    labels = [i % 4 for i in range(12)]
    pictures = [Image.fromarray(rng.integers(0, 255, (30, 90, 3)).astype(np.uint8)) for _ in names]
    listing = Listing("dataset", "<u>my</u> images", names, labels, CLASSES, lambda i: pictures[i])
    anchors, beliefs = rng.normal(size=(12, 4)), rng.dirichlet([1, 1, 1, 1], 12)
    ranking = SimpleNamespace(
        order=np.arange(12),
        suspicion=anchors.sum(1),
        score=anchors.sum(1),
        half_width=np.where(np.arange(12) == 3, np.inf, 0.5),
        confidence=np.full(12, 0.9),
        visits=np.full(12, 7),
        visited=np.full(12, True),
        flagged=np.arange(12) < 6,
        wrong_probability=WRONG,
        estimated=6,
    )
    path = folder / "gallery.html"
    evidence = PageEvidence(anchors, beliefs, rng.normal(size=(12, 5)))
    write_gallery(path, listing, ranking, evidence, 12)
    copies = [Copies("exact", [0, 9], 1.0), Copies("near", [3, 10, 11], 0.987)]
    with_findings = path.with_name("findings.html")
    write_gallery(with_findings, listing, ranking, evidence, 8, ScanFindings(copies, Outliers([8, 2, 11], 2)))
    return SimpleNamespace(
        path=path,
        with_findings=with_findings,
        names=names,
        labels=labels,
        other=[int(o) for o in others(beliefs, labels)],
    )


def others(beliefs, labels):
    masked = beliefs.copy()
    masked[np.arange(len(labels)), labels] = -1
    return masked.argmax(1)
