"""What `sgoif explain` shows: a table on the terminal and a page with the pictures."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path

from sgoif.scan.decode import Unreadable, thumbnail
from sgoif.scan.explain import Explanation
from sgoif.scan.gallery import SIDE, data_uri
from sgoif.utils.files import atomic_write_text

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
<p>{image} {said}</p>
<h2>Most helpful</h2><p><small>learning these lowered the loss of this prediction</small></p><ul>{helpful}</ul>
<h2>Most harmful</h2><p><small>learning these raised it; wrong labels are often among them</small></p><ul>{harmful}</ul>
</body></html>
"""


def lines(found: Explanation, n: int) -> str:
    """The explanation in words."""
    out = [said(found)]
    for title, rows in (("Most helpful", found.helpful(n)), ("Most harmful", found.harmful(n))):
        out.append(f"{title}:")
        for i in rows:
            out.append(f"  {found.influence[i]:+.4g}  {found.classes[found.labels[i]]}  {found.names[i]}")
    return "\n".join(out)


def said(found: Explanation) -> str:
    share = found.probabilities[found.label]
    best = int(found.probabilities.argmax())
    instead = "" if best == found.label else f" (it prefers {found.classes[best]}, {found.probabilities[best]:.0%})"
    return f"The network gives {found.classes[found.label]} {share:.0%}{instead}."


def write_page(path: Path, title: str, found: Explanation, image: Callable, train: Callable, n: int) -> None:
    """`image()` and `train(i)` open pictures (PIL)."""

    def figure(i: int) -> str:
        label = escape(found.classes[found.labels[i]])
        about = f"<b>{label}</b> {found.influence[i]:+.3g}<br><small>{escape(found.names[i])}</small>"
        return f"<li>{tag(lambda _: train(int(i)))}<br>{about}</li>"

    parts = {"helpful": found.helpful(n), "harmful": found.harmful(n)}
    lists = {name: "".join(figure(i) for i in rows) for name, rows in parts.items()}
    page = PAGE.format(title=escape(title), image=tag(lambda _: image()), said=escape(said(found)), **lists)
    atomic_write_text(path, page)


def tag(open: Callable) -> str:
    try:
        small = thumbnail(open, 0, SIDE)
    except Unreadable as e:
        return f"<small>{escape(str(e))}</small>"
    return f'<img alt="" src="{data_uri(small)}"{" data-tiny" if max(small.size) <= 64 else ""}>'
