"""Style and drawing helpers of all figures.

Colours are those of Okabe and Ito, which can be told apart with every kind of colour vision; shapes differ too.
"""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sgoif.bench.methods.registry import OURS, split_variant
from sgoif.bench.tables.names import title
from sgoif.utils.files import atomic_replace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE = "#0072B2"
ORANGE = "#E69F00"
GREEN = "#009E73"
PURPLE = "#CC79A7"
SKY = "#56B4E9"
RED = "#D55E00"
TEXT_COLOUR = "#333333"
GRID_COLOUR = "#dddddd"
GREY = "#777777"

# a linestyle of matplotlib; colour, linestyle and marker of a line
Dashes = str | tuple[float, tuple[float, ...]]
LineStyle = tuple[str, Dashes, str | None]

MARKS = ((BLUE, "o"), (ORANGE, "s"), (GREEN, "^"), (PURPLE, "D"), (SKY, "v"), (RED, "P"))
DASHES: tuple[Dashes, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)))
GATE_STYLES: dict[str, LineStyle] = {  # the first is drawn widest, so that it can be seen beneath the others
    "stability": (GREEN, "-", "o"),
    "moving_average": (BLUE, (0, (4, 1.5)), "s"),
    "none": (RED, (0, (1.2, 1)), "^"),
}
GATE_WIDTHS = {"stability": 3.2, "moving_average": 1.4, "none": 1.4}
GATE_MARKS = {"stability": 5.5, "moving_average": 3.2, "none": 3.8}
FIGURE_WIDTH = 7.2  # inches, the text width of a two-column page


@contextlib.contextmanager
def paper() -> Iterator[None]:
    """Use the figures' settings of matplotlib, without a window; the caller's are restored afterwards."""
    import matplotlib

    matplotlib.use("Agg")
    settings: dict[Any, Any] = {
        "svg.hashsalt": "sgoif", "font.size": 8.5, "axes.titlesize": 9, "axes.edgecolor": "#888888",
        "axes.labelcolor": TEXT_COLOUR, "xtick.color": TEXT_COLOUR, "ytick.color": TEXT_COLOUR,
        "text.color": TEXT_COLOUR, "legend.frameon": False, "axes.spines.top": False, "axes.spines.right": False,
        "axes.axisbelow": True, "grid.color": GRID_COLOUR, "grid.linewidth": 0.6, "lines.linewidth": 1.4,
        "text.parse_math": False,
    }  # fmt: skip
    with matplotlib.rc_context(settings):
        yield


def canvas(rows: int = 1, columns: int = 1, height: float = 3.0, **options: Any) -> tuple[Figure, Any]:
    """Create a figure of the page's width.

    Args:
        rows: Number of rows of axes.
        columns: Number of columns of axes.
        height: In inches.
        options: Passed to `plt.subplots`.

    Returns:
        The figure and its axes, an array of shape [rows, columns].
    """
    import matplotlib.pyplot as plt

    return plt.subplots(rows, columns, figsize=(FIGURE_WIDTH, height), squeeze=False, layout="constrained", **options)


def save(figure: Figure, path: Path) -> list[Path]:
    """Write <path>.svg and <path>.png, with the same bytes for the same picture, and close the figure."""
    import matplotlib.pyplot as plt

    out = []
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out once, not once for each file
    metadata: dict[str, dict[str, Any]] = {"svg": {"Date": None, "Creator": "sgoif"}, "png": {"Software": None}}
    for kind, facts in metadata.items():
        out.append(path.with_name(f"{path.name}.{kind}"))
        with atomic_replace(out[-1], seal=True) as temporary:
            figure.savefig(temporary, format=kind, dpi=160, metadata=facts)
    plt.close(figure)
    return out


def gap(axes: Axes, why: str) -> None:
    """Fill a panel with a note of what is missing; its title and labels stay."""
    axes.set_facecolor("#f4f4f4")
    axes.set_xticks([])
    axes.set_yticks([])
    text = textwrap.fill(f"no data: {why}", 32)
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color="#666666")


def heading(figure: Figure, text: str) -> None:
    """Write what the data are, small, above the panels."""
    figure.suptitle(text, x=0.99, ha="right", fontsize=8, color="#555555")


def footnote(figure: Figure, text: str) -> None:
    """Write what the picture cannot show, small, beneath the panels."""
    figure.supxlabel(textwrap.fill(text, 125), fontsize=7, color="#666666")


def name_of(method: str, task: str = "noisy") -> str:
    """Return the title of a method, with its variant in brackets."""
    name, variant = split_variant(method)
    return f"{title(task, name)} ({variant.replace('_', ' ')})" if variant else title(task, name)


def line_styles(methods: Sequence[str]) -> dict[str, tuple[str, Dashes]]:
    """Return method -> (colour, dashes), all different; SG-OIF is always black and solid."""
    others = [m for m in methods if m != OURS]
    styles: dict[str, tuple[str, Dashes]] = {OURS: ("black", "-")}
    for i, method in enumerate(others):
        colour, _ = MARKS[i % len(MARKS)]
        styles[method] = (colour, DASHES[i // len(MARKS) % len(DASHES)])
    return styles


def colour_and_marker(gate: str | None) -> tuple[str, str | None]:
    """Return colour and marker of SG-OIF with a gate; grey diamonds for other methods."""
    if gate is None:
        return GREY, "D"
    colour, _, marker = GATE_STYLES[gate]
    return colour, marker


def logarithmic(axes: Axes) -> None:
    """Make the vertical axis logarithmic with plain numbers; titles may hold dollar signs, so mathematics is off."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(lambda value, _: "")


def band(axes: Axes, x: np.ndarray, values: np.ndarray, style: LineStyle, label: str, **options: Any) -> None:
    """Draw the mean over seeds as a line, and a band that holds all seeds.

    Args:
        axes: Where to draw.
        x: Shape [points].
        values: Shape [seeds, points]; infinite values are gaps.
        style: Colour, dashes and marker.
        label: Name in the legend.
        options: Passed to `axes.plot`.
    """
    colour, dashes, marker = style
    values = np.where(np.isfinite(values), values, np.nan)
    whole = np.isfinite(values).all(0)  # a mean without the seed that diverged would look too good
    mean = np.where(whole, values.sum(0) / len(values), np.nan)
    every = max(1, len(x) // 8)
    options = {"color": colour, "linestyle": dashes, "marker": marker, "markersize": 3.2, "markevery": every, **options}
    axes.plot(x, mean, label=label, **options)
    if len(values) > 1 and whole.any():
        axes.fill_between(x, values.min(0), values.max(0), where=whole, color=colour, alpha=0.15, linewidth=0)


def diverged(values: np.ndarray) -> str:
    """Return a note for the legend on how many seeds diverged; empty if none did."""
    n = int((~np.isfinite(values)).any(1).sum())
    return f", {n} of {len(values)} seeds diverged" if n else ""
