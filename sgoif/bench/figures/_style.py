"""Style and drawing helpers of all figures.

Colours are those of Okabe and Ito, which can be told apart with every kind of colour vision; shapes differ too.
"""

from __future__ import annotations

import contextlib
import io
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

import numpy as np

from sgoif.bench.methods.registry import OURS
from sgoif.bench.tables.names import is_ranked
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
PALE = "#bbbbbb"  # methods that are shown for comparison and not named

# a linestyle of matplotlib; colour, linestyle and marker of a line
Dashes = str | tuple[float, tuple[float, ...]]
LineStyle = tuple[str, Dashes, str | None]

MARKS = ((BLUE, "o"), (ORANGE, "s"), (GREEN, "^"), (PURPLE, "D"), (SKY, "v"), (RED, "P"))
OURS_STYLE: LineStyle = ("black", "-", "*")
BESIDE_STYLE: LineStyle = (GREY, (0, (4, 1.5)), "X")  # shown beside the others, since it is given more
SECOND_BESIDE_STYLE: LineStyle = (GREY, (0, (1.2, 1)), "d")
PALE_STYLE: LineStyle = (PALE, "-", None)
GATE_STYLES: dict[str, LineStyle] = {  # the first is drawn widest, so that it can be seen beneath the others
    "stability": (GREEN, "-", "o"),
    "moving_average": (BLUE, (0, (4, 1.5)), "s"),
    "none": (RED, (0, (1.2, 1)), "^"),
}
GATE_WIDTHS = {"stability": 3.2, "moving_average": 1.4, "none": 1.4}
FIGURE_WIDTH = 7.2  # inches, the text width of a two-column page
HEADING_HEIGHT = 0.46  # inches of title and subtitle
PNG_COLOURS = 256


@contextlib.contextmanager
def paper() -> Iterator[None]:
    """Use the figures' settings of matplotlib, without a window; the caller's are restored afterwards."""
    import matplotlib

    matplotlib.use("Agg")
    settings: dict[Any, Any] = {
        "svg.hashsalt": "sgoif", "svg.fonttype": "none", "figure.dpi": 160, "font.size": 8.5, "axes.titlesize": 8.5,
        "axes.titlelocation": "left", "axes.edgecolor": "#888888", "axes.labelcolor": TEXT_COLOUR,
        "xtick.color": TEXT_COLOUR, "ytick.color": TEXT_COLOUR, "text.color": TEXT_COLOUR, "legend.frameon": False,
        "legend.fontsize": 7.5, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
        "grid.color": GRID_COLOUR, "grid.linewidth": 0.6, "lines.linewidth": 1.4, "text.parse_math": False,
        "axes.formatter.useoffset": False,
    }  # fmt: skip
    with matplotlib.rc_context(settings):
        yield


@dataclass
class _Surroundings:
    """What stands around the panels of a figure: it is drawn last, when the size of all is known."""

    subtitle: str = ""
    footnote: str = ""
    handles: Sequence[Any] = ()
    columns: int = 4


_AROUND: WeakKeyDictionary[Figure, _Surroundings] = WeakKeyDictionary()


def canvas(rows: int = 1, columns: int = 1, height: float = 3.0, **options: Any) -> tuple[Figure, Any]:
    """Create a figure of the page's width.

    Args:
        rows: Number of rows of axes.
        columns: Number of columns of axes.
        height: Of the panels, in inches; heading, legend and footnote come on top of it.
        options: Passed to `plt.subplots`.

    Returns:
        The figure and its axes, an array of shape [rows, columns].
    """
    import matplotlib.pyplot as plt

    size = (FIGURE_WIDTH, height)
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained", **options)
    _AROUND[figure] = _Surroundings()
    return figure, axes


def subtitle(figure: Figure, text: str) -> None:
    """Write what the data are beneath the title."""
    _AROUND[figure].subtitle = text


def seeds_in_words(counts: Collection[int]) -> str:
    """Return how many seeds the drawn means are over, from the number behind each of them."""
    few, many = min(counts), max(counts)
    if many == 1:
        return "one seed"
    return f"mean of {few} to {many} seeds" if few < many else f"mean of {many} seeds"


def footnote(figure: Figure, text: str) -> None:
    """Write what the picture cannot show, small, beneath the panels."""
    _AROUND[figure].footnote = textwrap.fill(text, 132)


def legend(figure: Figure, handles: Sequence[Any], columns: int = 4) -> None:
    """Draw a legend of lines and marks between the panels and the footnote; of equal labels the first counts."""
    unique = {h.get_label(): h for h in reversed(handles)}
    _AROUND[figure].handles = list(reversed(unique.values()))
    _AROUND[figure].columns = columns


def save(figure: Figure | None, path: Path, title: str) -> list[Path]:
    """Write <path>.svg and <path>.png, with the same bytes for the same picture, and close the figure.

    Args:
        figure: The figure; None gives empty files, which the workflow needs and nobody shows.
        path: Where, without the suffix.
        title: Words at the top of the picture.
    """
    contents = {"svg": b"", "png": b""} if figure is None else _render(figure, title)
    out = []
    for kind, content in contents.items():
        out.append(path.with_name(f"{path.name}.{kind}"))
        with atomic_replace(out[-1], seal=True) as temporary:
            Path(temporary).write_bytes(content)
    return out


def _render(figure: Figure, title: str) -> dict[str, bytes]:
    """Return the bytes of the figure as SVG and PNG, and close it."""
    import matplotlib.pyplot as plt

    _draw_surroundings(figure, title)
    lay_out(figure)
    figure.set_layout_engine("none")  # laid out once, not once for each file
    svg = io.BytesIO()
    figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": "sgoif"})
    png = _png(figure)
    plt.close(figure)
    return {"svg": svg.getvalue(), "png": png}


def lay_out(figure: Figure) -> None:
    """Give the panels their places."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)


def _draw_surroundings(figure: Figure, title: str) -> None:
    """Make room above and below the panels, which keep their size, for title, subtitle, legend and footnote."""
    around = _AROUND[figure]
    panels = figure.get_size_inches()[1]
    foot = 0.13 * (around.footnote.count("\n") + 1) + 0.08 if around.footnote else 0.0
    rows = -(-len(around.handles) // around.columns)
    key = 0.17 * rows + 0.06 if rows else 0.0
    height = HEADING_HEIGHT + panels + key + foot
    figure.set_size_inches(FIGURE_WIDTH, height)
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.set(rect=(0.0, (foot + key) / height, 1.0, panels / height))  # type: ignore[call-arg]
    figure.text(0.012, 1 - 0.07 / height, title, fontsize=10, weight="bold", va="top")
    figure.text(0.012, 1 - 0.27 / height, around.subtitle, fontsize=7.5, color="#555555", va="top")
    figure.text(0.012, 0.05 / height, around.footnote, fontsize=7, color="#666666", va="bottom")
    if rows:
        place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, foot / height), "borderaxespad": 0.1}
        drawn = figure.legend(handles=around.handles, ncols=around.columns, labelspacing=0.3, **place)
        drawn.set_in_layout(False)


def _png(figure: Figure) -> bytes:
    """Return the picture as a PNG with a palette, which is a third as large."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    out = io.BytesIO()
    picture = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    picture.quantize(PNG_COLOURS, dither=Image.Dither.NONE).save(out, format="PNG", optimize=True)
    return out.getvalue()


def method_styles(by_quality: Sequence[str], task: str = "noisy", n_named: int = 5) -> dict[str, LineStyle]:
    """Return method -> style: SG-OIF black, the best others coloured, the two best unranked ones grey, the rest pale.

    Args:
        by_quality: Methods, best first.
        task: The task that the methods are declared for.
        n_named: How many others get a colour of their own.
    """
    styles = dict.fromkeys(by_quality, PALE_STYLE)
    rivals = [m for m in by_quality if m != OURS and is_ranked(task, m)]
    for method, (colour, marker) in zip(rivals[:n_named], MARKS, strict=False):
        styles[method] = (colour, "-", marker)
    unranked = [m for m in by_quality if not is_ranked(task, m)]
    styles |= dict(zip(unranked, (BESIDE_STYLE, SECOND_BESIDE_STYLE), strict=False))
    if OURS in styles:
        styles[OURS] = OURS_STYLE
    return styles


def logarithmic(axes: Axes, which: Literal["x", "y"] = "y") -> None:
    """Make an axis logarithmic with plain numbers; titles may hold dollar signs, so mathematics is off.

    Call it when all is drawn. An axis has a power of ten at least, so that small differences look small; one of less
    than two also has ticks at 2 and 5.
    """
    from matplotlib.ticker import LogLocator

    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(lambda value, _: "")
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    if high < 10 * low:
        low, high = (low * high / 10) ** 0.5, (low * high * 10) ** 0.5
        axes.set(**{f"{which}lim": (low, high)})
    if high < 100 * low:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))


def epoch_axis(axes: Axes) -> None:
    """Label the horizontal axis as epochs, which are counted in whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def method_rows(axes: Axes, names: Sequence[str], bold: Sequence[bool]) -> None:
    """Label the rows of a dot plot, from below, with a line for each."""
    axes.set_yticks(range(len(names)), names, fontsize=7.5)
    for text, is_bold in zip(axes.get_yticklabels(), bold, strict=True):
        text.set_fontweight("bold" if is_bold else "normal")
    axes.set_ylim(-0.7, len(names) - 0.3)
    axes.grid(True)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


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
