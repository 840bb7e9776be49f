"""Line charts of methods: quality against something that grows, one panel a condition, names at the lines' ends."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sgoif.bench.evaluation.table_layout import Panel
from sgoif.bench.figures import _labels, _style
from sgoif.bench.figures._data import RANDOM, FigureData
from sgoif.bench.methods.registry import OURS, PLAIN
from sgoif.bench.tables.names import is_ranked, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_COLUMNS = 4
NAME_WIDTH = 0.062  # inches of a letter
MAX_NAME_ROOM = 1.7  # inches for names beside several panels; longer names go into a legend


@dataclass
class Line:
    """One method in one panel of a chart.

    Attributes:
        x: Shape [points], increasing.
        mean: Mean over seeds, shape [points].
        low: Smallest of all seeds.
        high: Largest.
        seeds: How many seeds there are.
    """

    x: list[float] = field(default_factory=list)
    mean: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)


@dataclass
class LinePanel:
    """One panel: its title, and method -> line."""

    title: str
    lines: dict[str, Line]


def quality_lines(
    data: FigureData, table: str, points: Sequence[tuple[float, Panel]], metric: str = "auc_pr"
) -> dict[str, Line]:
    """Return method -> line in percent over the points; a method that lacks one of them is left out.

    Args:
        data: The run.
        table: The table whose records are read.
        points: (x, panel), in any order.
        metric: What is drawn.
    """
    found = data.compared(table, metric)
    lines: dict[str, Line] = {}
    for method in dict.fromkeys(m for _, p in points for m in p.methods if m not in (PLAIN, RANDOM)):
        line = Line()
        for x, panel in sorted(points, key=lambda point: point[0]):
            record = found.get((panel.dataset, panel.setting, method))
            if record is None:
                break
            values = record.get("values") or [record["mean"]]
            line.x.append(x)
            line.mean.append(100 * record["mean"])
            line.low.append(100 * min(values))
            line.high.append(100 * max(values))
            line.seeds.append(len(values))
        else:
            lines[method] = line
    return lines


def draw_panels(
    panels: Sequence[LinePanel], x_label: str, y_label: str, own_axes: bool = False, **options: Any
) -> Figure | None:
    """Draw the panels side by side; the vertical axis begins where the named methods do.

    Args:
        panels: Those without lines are left out.
        x_label: Words below every panel.
        y_label: Words at the left.
        own_axes: Whether every panel has a vertical axis of its own. Then, in several rows, and where names are long,
            names are in a legend.
        options: `log` makes the horizontal axis logarithmic, `ticks` writes x as a function of it.

    Returns:
        The figure, None if no panel has two points of a method.
    """
    panels = [p for p in panels if any(len(line.x) > 1 for line in p.lines.values())]
    if not panels:
        return None
    order = _by_quality(panels)
    styles = _style.method_styles(order)
    rows = -(-len(panels) // MAX_COLUMNS)
    columns = -(-len(panels) // rows)
    figure, grid = _style.canvas(rows, columns, height=(1.9 if own_axes else 2.6) * rows + 0.5, sharey=not own_axes)
    for axes in grid.flat[len(panels) :]:
        axes.axis("off")
    lows = [_floor([p] if own_axes else panels, styles) for p in panels]
    for axes, panel, low in zip(grid.flat, panels, lows, strict=False):
        _draw(axes, panel, styles)
        words = [textwrap.fill(line, {1: 90, 2: 50, 3: 30}.get(columns, 24)) for line in panel.title.splitlines()]
        axes.set_title("\n".join(words), fontsize=7.5)
        axes.set_xlabel(x_label)
        axes.set_ylim(low, 100 + 0.03 * (100 - low))
        _ticks(axes, panel, **options)
    for axes in grid[:, 0]:
        axes.set_ylabel(y_label)
    named = [m for m in order if styles[m] is not _style.PALE_STYLE]
    pale = [title("noisy", m) for m in order if m not in named]
    notes = [f"pale lines: {', '.join(pale)}"] if pale else []
    cut = [m for m in order if any(_below(p, m, low) for p, low in zip(panels, lows, strict=True))]
    below = [title("noisy", m) for m in cut if m in named] + ["pale ones"] * any(m not in named for m in cut)
    notes += [f"below the axis in part: {', '.join(below)}"] if below else []
    if any(not is_ranked("noisy", m) for m in named):
        notes.append("dashed grey: shown beside the others, does not compete")
    if any("†" in title("noisy", m) for m in order):
        notes.append("†: is given clean labels that were set aside, all of them or a sample")
    _style.footnote(figure, "; ".join([_seeds(panels), *notes]))
    if own_axes or rows > 1 or (columns > 1 and _name_room(named) > MAX_NAME_ROOM):
        _legend(figure, named, styles)
    else:
        _name_ends(figure, grid, panels, named, styles)
    return figure


def _seeds(panels: Sequence[LinePanel]) -> str:
    """What the bars show, in words; a point of one seed has none."""
    counts = {n for panel in panels for line in panel.lines.values() for n in line.seeds}
    if max(counts, default=1) == 1:
        return "one seed"
    return "bars hold all seeds" + (", points without a bar are of one seed" if 1 in counts else "")


def _legend(figure: Figure, named: Sequence[str], styles: Mapping[str, Any]) -> None:
    from matplotlib.lines import Line2D

    handles = []
    for method in named:
        colour, dashes, marker = styles[method]
        look = {"color": colour, "linestyle": dashes, "marker": marker, "markersize": 7 if method == OURS else 4}
        handles.append(Line2D([], [], label=title("noisy", method), **look))
    widest = max(len(title("noisy", m)) for m in named)
    _style.legend(figure, handles, columns=3 if 3 * (NAME_WIDTH * widest + 0.45) < _style.FIGURE_WIDTH else 2)


def _name_ends(
    figure: Figure, grid: Any, panels: Sequence[LinePanel], named: Sequence[str], styles: Mapping[str, Any]
) -> None:
    """Write the names at the right of the last panel, where their lines end."""
    axes, lines = grid.flat[len(panels) - 1], panels[-1].lines
    _reserve(axes, _name_room(named))
    _style.lay_out(figure)
    bottom = axes.get_ylim()[0]
    ends = {title("noisy", m): (lines[m].x[-1], max(bottom, lines[m].mean[-1])) for m in named if m in lines}
    colours = {title("noisy", m): styles[m][0] for m in named}
    _labels.beside(axes, ends, colours, bold=title("noisy", OURS), distance=0.12 if len(panels) > 1 else 0.03)


def _name_room(named: Sequence[str]) -> float:
    """Inches that the longest name takes beside a panel."""
    return NAME_WIDTH * max(len(title("noisy", m)) for m in named) + 0.25


def _reserve(axes: Axes, inches: float) -> None:
    """Keep room at the right of a panel, which the layout would give to the panel itself."""
    room = axes.annotate(
        "\u2003", (1, 0.5), xytext=(72 * inches, 0), xycoords="axes fraction", textcoords="offset points", ha="right"
    )
    room.set_in_layout(True)


def _by_quality(panels: Sequence[LinePanel]) -> list[str]:
    """Methods, highest mean over all panels that they are in first."""
    values: dict[str, list[float]] = {}
    for panel in panels:
        for method, line in panel.lines.items():
            values.setdefault(method, []).extend(line.mean)
    return sorted(values, key=lambda m: -float(np.mean(values[m])))


def _floor(panels: Sequence[LinePanel], styles: Mapping[str, Any]) -> float:
    """The lowest point of a named method, rounded down to a multiple of five."""
    lowest = min(
        low
        for panel in panels
        for method, line in panel.lines.items()
        if styles[method] is not _style.PALE_STYLE or len(panel.lines) == 1
        for low in line.low
    )
    return min(95.0, 5.0 * math.floor(lowest / 5))


def _below(panel: LinePanel, method: str, low: float) -> bool:
    return method in panel.lines and min(panel.lines[method].mean) < low


def _draw(axes: Axes, panel: LinePanel, styles: Mapping[str, Any]) -> None:
    for method in sorted(panel.lines, key=lambda m: styles[m] is not _style.PALE_STYLE):
        line = panel.lines[method]
        colour, dashes, marker = styles[method]
        ours = method == OURS
        spread = [np.subtract(line.mean, line.low), np.subtract(line.high, line.mean)]
        named = styles[method] is not _style.PALE_STYLE
        axes.errorbar(
            line.x, line.mean, yerr=np.abs(spread) if named else None, color=colour, linestyle=dashes, marker=marker,
            markersize=7 if ours else 4, linewidth=2 if ours else 1.1, elinewidth=0.9, capsize=2 if named else 0,
            zorder=4 if ours else 3 if named else 2,
        )  # fmt: skip
    axes.grid()


def _ticks(axes: Axes, panel: LinePanel, log: bool = False, ticks: Any = None) -> None:
    """Put a tick at every x that occurs."""
    at = sorted({x for line in panel.lines.values() for x in line.x})
    if log:
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(_no_ticks())
    axes.set_xticks(at, [ticks(x) if ticks else f"{x:g}" for x in at])


def _no_ticks() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()
