"""Takes the picture of a page of `sgoif scan` that README and docs/scan.md show, in a headless Chromium.

python docs/scripts/page_picture.py SCAN/gallery.html [--section copies] [--out docs/images/gallery.png]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from tests.helpers.browser import Browser

OUT = Path(__file__).resolve().parents[1] / "images" / "gallery.png"
WIDTH, HEIGHT = 1280, 760


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("--section", default="labels", help="labels, copies or outliers")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        Browser(Path(folder) / "profile") as browser,
    ):
        browser.resize(WIDTH, HEIGHT)
        browser.open(args.page)
        browser.ask("document.documentElement.style.scrollbarWidth = 'none'")
        browser.ask(f"openSection(sections.find((s) => s.name === {json.dumps(args.section)}))")
        browser.until("[...document.images].slice(0, 12).every((i) => i.complete)")
        browser.screenshot(args.out)


if __name__ == "__main__":
    main()
