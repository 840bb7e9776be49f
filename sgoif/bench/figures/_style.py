"""How every figure looks: Okabe and Ito's colours, which differ for every kind of colour vision, and shapes besides."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from sgoif.bench.methods.registry import OURS, split_variant
from sgoif.bench.tables.names import title
from sgoif.utils.files import atomic_replace

BLUE, ORANGE, GREEN, PURPLE, SKY, RED = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"
INK, FAINT = "#333333", "#dddddd"
MARKS = ((BLUE, "o"), (ORANGE, "s"), (GREEN, "^"), (PURPLE, "D"), (SKY, "v"), (RED, "P"))
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)))
GATE_STYLES = {  # colour, dashes, marker; the first is drawn widest, so that it shows beneath others on top of it
    "stability": (GREEN, "-", "o"),
    "moving_average": (BLUE, (0, (4, 1.5)), "s"),
    "none": (RED, (0, (1.2, 1)), "^"),
}
GATE_WIDTHS = {"stability": 3.2, "moving_average": 1.4, "none": 1.4}
GATE_MARKS = {"stability": 5.5, "moving_average": 3.2, "none": 3.8}
WIDTH = 7.2  # inches: the text width of a two-column page


@contextlib.contextmanager
def paper() -> Iterator[None]:
    """The settings of matplotlib for the figures, and no window; the caller's come back afterwards."""
    import matplotlib

    matplotlib.use("Agg")
    look = {
        "svg.hashsalt": "sgoif", "font.size": 8.5, "axes.titlesize": 9, "axes.edgecolor": "#888888",
        "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK, "text.color": INK, "legend.frameon": False,
        "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True, "grid.color": FAINT,
        "grid.linewidth": 0.6, "lines.linewidth": 1.4, "text.parse_math": False,
    }  # fmt: skip
    with matplotlib.rc_context(look):
        yield


def canvas(rows: int = 1, columns: int = 1, height: float = 3.0, **options):
    """A figure of the page's width and its axes [rows, columns]."""
    import matplotlib.pyplot as plt

    return plt.subplots(rows, columns, figsize=(WIDTH, height), squeeze=False, layout="constrained", **options)


def save(figure, path: Path) -> list[Path]:
    """<path>.svg and <path>.png, with the same bytes for the same picture."""
    import matplotlib.pyplot as plt

    out = []
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out once, not once for each file
    for kind, facts in (("svg", {"Date": None, "Creator": "sgoif"}), ("png", {"Software": None})):
        out.append(path.with_name(f"{path.name}.{kind}"))
        with atomic_replace(out[-1], seal=True) as temporary:
            figure.savefig(temporary, format=kind, dpi=160, metadata=facts)
    plt.close(figure)
    return out


def gap(axes, why: str) -> None:
    """An empty panel that says what is missing; its title and labels stay."""
    axes.set_facecolor("#f4f4f4")
    axes.set_xticks([])
    axes.set_yticks([])
    text = textwrap.fill(f"no data: {why}", 32)
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color="#666666")


def heading(figure, text: str) -> None:
    """What the data are, small, above the panels."""
    figure.suptitle(text, x=0.99, ha="right", fontsize=8, color="#555555")


def footnote(figure, text: str) -> None:
    """What the picture cannot show, small, beneath the panels."""
    figure.supxlabel(textwrap.fill(text, 125), fontsize=7, color="#666666")


def name_of(method: str, task: str = "noisy") -> str:
    """Return the title of a method, with its variant in brackets."""
    name, variant = split_variant(method)
    return f"{title(task, name)} ({variant.replace('_', ' ')})" if variant else title(task, name)


def style_of(methods: Sequence[str]) -> dict[str, tuple[str, object]]:
    """Method -> (colour, dashes), all different; SG-OIF is always black and solid."""
    others = [m for m in methods if m != OURS]
    styles = {m: (MARKS[i % len(MARKS)][0], DASHES[i // len(MARKS) % len(DASHES)]) for i, m in enumerate(others)}
    return {OURS: ("black", "-"), **styles}


def spread(positions: Iterable[float], gap: float, low: float, high: float) -> list[float]:
    """Positions moved as little as need be to stand `gap` apart within [low, high], in their order."""
    positions = np.asarray(list(positions), dtype=np.float64)
    order = np.argsort(positions, kind="stable")
    gap = min(gap, (high - low) / max(1, len(positions) - 1))
    placed = positions[order].clip(low, high)
    for i in range(1, len(placed)):
        placed[i] = max(placed[i], placed[i - 1] + gap)
    if len(placed) and placed[-1] > high:
        placed[-1] = high
        for i in range(len(placed) - 2, -1, -1):
            placed[i] = min(placed[i], placed[i + 1] - gap)
    out = np.empty_like(placed)
    out[order] = placed
    return out.tolist()


def logarithmic(axes) -> None:
    """A logarithmic height with plain numbers (no mathematics is set: a dollar sign in a title is a dollar sign)."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(lambda value, _: "")


def band(axes, x: np.ndarray, values: np.ndarray, style, label: str, **options) -> None:
    """Mean of `values` [seeds, points] as a line, all seeds inside the band around it; infinite values are gaps."""
    colour, dashes, marker = style
    values = np.where(np.isfinite(values), values, np.nan)
    whole = np.isfinite(values).all(0)  # a mean without the seed that diverged would flatter
    mean = np.where(whole, values.sum(0) / len(values), np.nan)
    every = max(1, len(x) // 8)
    options = {"color": colour, "linestyle": dashes, "marker": marker, "markersize": 3.2, "markevery": every, **options}
    axes.plot(x, mean, label=label, **options)
    if len(values) > 1 and whole.any():
        axes.fill_between(x, values.min(0), values.max(0), where=whole, color=colour, alpha=0.15, linewidth=0)


def diverged(values: np.ndarray) -> str:
    """Words for the key: how many seeds left the finite numbers."""
    n = int((~np.isfinite(values)).any(1).sum())
    return f", {n} of {len(values)} seeds diverged" if n else ""
