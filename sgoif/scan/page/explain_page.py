"""What `sgoif explain` shows: a table on the terminal and a page with the images."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from sgoif.scan.decode import Unreadable, make_thumbnail
from sgoif.scan.explain import Explanation
from sgoif.scan.page.pictures import TYPICAL_PIXELS, data_uri, is_tiny
from sgoif.utils.files import atomic_write_text

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.45 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem;
  overflow-wrap: anywhere; }}
ul {{ list-style: none; padding: 0; display: grid; gap: .7rem;
  grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); }}
img {{ width: 100%; max-width: 9rem; aspect-ratio: 1; object-fit: contain; background: #8882; border-radius: .3rem; }}
img[data-tiny] {{ image-rendering: pixelated; }}
small {{ opacity: .75; }}
</style></head><body>
<h1>{title}</h1>
<p>{image} {sentence}</p>
<h2>Most helpful</h2><p><small>learning these lowered the loss of this prediction</small></p><ul>{helpful}</ul>
<h2>Most harmful</h2><p><small>learning these raised it; wrong labels are often among them</small></p><ul>{harmful}</ul>
</body></html>
"""


def explanation_text(found: Explanation, n: int) -> str:
    """Return the explanation as lines of text with the `n` most helpful and most harmful examples."""
    out = [_prediction_sentence(found)]
    for title, rows in (("Most helpful", found.helpful(n)), ("Most harmful", found.harmful(n))):
        out.append(f"{title}:")
        for i in rows:
            out.append(f"  {found.influence[i]:+.4g}  {found.classes[found.labels[i]]}  {found.names[i]}")
    return "\n".join(out)


def _prediction_sentence(found: Explanation) -> str:
    share = found.probabilities[found.label]
    best = int(found.probabilities.argmax())
    instead = "" if best == found.label else f" (it prefers {found.classes[best]}, {found.probabilities[best]:.0%})"
    return f"The network gives {found.classes[found.label]} {share:.0%}{instead}."


def write_page(
    path: Path,
    title: str,
    found: Explanation,
    open_target: Callable[[], Image],
    open_example: Callable[[int], Image],
    n: int,
) -> None:
    """Write the explanation as one HTML page with the images inside.

    Args:
        path: File to write.
        title: Title of the page.
        found: The explanation.
        open_target: Opens the image whose prediction is explained.
        open_example: Opens the training image at a position.
        n: Number of helpful and of harmful examples.
    """

    def list_items(rows: np.ndarray) -> str:
        return "".join(_list_item(found, int(i), open_example) for i in rows)

    page = PAGE.format(
        title=escape(title),
        image=_image_tag(lambda _: open_target()),
        sentence=escape(_prediction_sentence(found)),
        helpful=list_items(found.helpful(n)),
        harmful=list_items(found.harmful(n)),
    )
    atomic_write_text(path, page)


def _list_item(found: Explanation, i: int, open_example: Callable[[int], Image]) -> str:
    label = escape(found.classes[found.labels[i]])
    about = f"<b>{label}</b> {found.influence[i]:+.3g}<br><small>{escape(found.names[i])}</small>"
    return f"<li>{_image_tag(lambda _: open_example(i))}<br>{about}</li>"


def _image_tag(open: Callable[[int], Image]) -> str:
    """Return the HTML of one image, or of the reason why it cannot be shown."""
    try:
        small = make_thumbnail(open, 0, TYPICAL_PIXELS)
    except Unreadable as e:
        return f"<small>{escape(str(e))}</small>"
    return f'<img alt="" src="{data_uri(small)}"{" data-tiny" if is_tiny(small) else ""}>'
