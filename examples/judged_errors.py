"""Judged label errors of public test sets, and pictures of finds: `real_label_errors.ipynb`, docs/scripts/finds.py.

For suspected errors of well-known test sets five people each were asked which label is right: C. Northcutt, A. Athalye
and J. Mueller, *Pervasive Label Errors in Test Sets Destabilize Machine Learning Benchmarks*, 2021 (Apache-2.0).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sgoif.bench.data.dataset import OfficialFile
from sgoif.bench.data.download import fetch

if TYPE_CHECKING:
    from PIL.Image import Image

COMMIT = "5457895eee26e49187de5c4d6617b9de6f172221"
CHECKSUMS = {
    "cifar10": "81b2c16c9eee060d6cc2390f6bbce1e0e7be0a050574be5177c9428f3596b5b5",
    "mnist": "448bd00fc9df262c68d50d48709d7fa3d5dc966bc66580e5df20e0dcba6e5612",
}
MAJORITY = 3  # of five people


@dataclass(frozen=True)
class Judged:
    """The judgement of five people on one test label.

    Attributes:
        index: Position in the test set.
        given: How many chose the given label.
        guessed: How many chose the label that was suspected to be right.
    """

    index: int
    given: int
    guessed: int

    @property
    def wrong(self) -> bool:
        """Whether fewer than three of five chose the given label."""
        return self.given < MAJORITY


def judged_labels(name: str, folder: Path) -> list[Judged]:
    """Returns the judged labels of a test set; downloads them, verified, unless they are in the folder.

    Args:
        name: "cifar10" or "mnist".
        folder: Where the file is kept.

    Raises:
        UserError: If the file cannot be downloaded, or is not the one that is expected.
    """
    file = f"{name}_mturk.json"
    url = f"https://raw.githubusercontent.com/cleanlab/label-errors/{COMMIT}/mturk/{file}"
    path = fetch(OfficialFile(url, file, f"sha256:{CHECKSUMS[name]}"), folder)
    return parse_judged(path.read_text(encoding="utf-8"))


def parse_judged(text: str) -> list[Judged]:
    """Returns the judged labels of a published file."""
    return [Judged(row["id"], row["mturk"]["given"], row["mturk"]["guessed"]) for row in json.loads(text)]


def contact_sheet(images: Sequence[np.ndarray], captions: Sequence[str], columns: int = 6, side: int = 128) -> Image:
    """Draws images in rows, each above its caption, a line of text for each line of the caption.

    Args:
        images: uint8, each [H, W] or [H, W, 3].
        captions: One for each image.
        columns: Images in a row.
        side: Side of each image in the picture, in pixels.
    """
    from PIL import Image, ImageDraw, ImageFont

    size, gap = max(side // 9, 10), side // 10
    font = ImageFont.load_default(size)
    lines = max((caption.count("\n") + 1 for caption in captions), default=1)
    height = side + int(1.35 * size * lines) + gap
    rows = -(-len(images) // columns)
    sheet = Image.new("RGB", (columns * (side + gap) + gap, rows * height + gap), "white")
    draw = ImageDraw.Draw(sheet)
    for n, (pixels, caption) in enumerate(zip(images, captions, strict=True)):
        left, top = gap + n % columns * (side + gap), gap + n // columns * height
        large = Image.fromarray(pixels).convert("RGB").resize((side, side), Image.Resampling.BICUBIC)
        sheet.paste(large, (left, top))
        draw.multiline_text((left, top + side + size // 4), caption, fill="black", font=font, spacing=size // 5)
    return sheet
