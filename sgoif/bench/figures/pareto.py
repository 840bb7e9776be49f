"""Quality against cost of all methods of a table, and the methods that no other beats in both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sgoif.bench.evaluation.table_layout import Panel
from sgoif.bench.figures import _style
from sgoif.bench.figures._data import FigureData, tables_of
from sgoif.bench.methods.registry import OURS, PLAIN
from sgoif.bench.tables.names import is_ranked

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = dict[str, tuple[float, float]]  # method -> (cost, quality)
Box = tuple[float, float, float, float]  # left, right, bottom, top, in axes coordinates

PLACE = 30
TITLE = "Quality against cost"
CAPTION = (
    "Mean quality over the settings of the table against measured wall-clock, as a multiple of plain training with "
    "what the method reads counted in (stand-alone). Up and left is better; the line joins the methods that no other "
    "beats in both (Pareto), but for those that are given all clean labels that were set aside."
)
QUALITY = {
    "noise_grid": ("auc_pr", "AUC-PR (%)"),
    "noise_sets": ("auc_pr", "AUC-PR (%)"),
    "ood": ("auroc:overall", "AUROC over all OOD sets (%)"),
}
COST_METRIC = "overhead_standalone"
MIN_DRAWN_COST = 0.1  # trainings; cheaper methods go into the footnote, as they would squeeze all others together


def subjects(config: Mapping[str, Any]) -> list[str]:
    """Return the tables that the figure is drawn for."""
    return tables_of(config, *QUALITY)


def draw(table: str, data: FigureData) -> Figure:
    """Draw the figure of one table."""
    metric, label = QUALITY[data.config["tables"][table]["kind"]]
    points, incomplete = _points(table, metric, data)
    free = {m: points.pop(m) for m in list(points) if points[m][0] < MIN_DRAWN_COST}
    figure, grid = _style.canvas(height=4.0)
    axes = grid[0, 0]
    axes.set_xlabel("time of the method / time of plain training (stand-alone, log scale)")
    axes.set_ylabel(label)
    layout = data.layout(table)
    task = layout.task
    _style.heading(figure, _heading(layout.panels))
    if len(points) < 2:
        _style.gap(axes, "fewer than two methods have both quality and comparable seconds in every setting")
        return figure
    front = pareto(points, task)
    costs, qualities = zip(*[points[m] for m in front], strict=True)
    axes.plot(costs, qualities, color="#aaaaaa", linewidth=1, zorder=1, drawstyle="steps-post")
    for method, (cost, quality) in points.items():
        colour, marker, size = _mark(method, method in front)
        axes.scatter(cost, quality, color=colour, marker=marker, s=size, zorder=3, linewidths=0)
    axes.set_xscale("log")
    axes.grid()
    _ticks(axes, [cost for cost, _ in points.values()])
    _names(axes, points, task)
    notes = [f"{_style.name_of(m, task)}, which costs nothing: {quality:.1f}" for m, (_, quality) in free.items()]
    if incomplete:
        notes.append(f"not in every setting: {', '.join(_style.name_of(m, task) for m in incomplete)}")
    if notes:
        _style.footnote(figure, "; ".join(notes))
    return figure


def _heading(panels: Sequence[Panel]) -> str:
    titles = dict.fromkeys(p.title + (f", in the place of {p.stands_for}" if p.stands_for else "") for p in panels)
    return "; ".join(titles) + (f"; mean of {len(panels)} settings" if len(panels) > 1 else "")


def _mark(method: str, on_front: bool) -> tuple[str, str, float]:
    """Colour, marker and size of a method."""
    if method == OURS:
        return "black", "*", 110
    return (_style.BLUE, "o", 30) if on_front else (_style.ORANGE, "s", 30)


def _points(table: str, metric: str, data: FigureData) -> tuple[Points, list[str]]:
    """Method -> (cost, quality) as means over the panels; and the methods that lack a panel."""
    quality = data.numbers(table, metric)
    cost = data.numbers(table, COST_METRIC)
    panels = data.layout(table).panels
    points: Points = {}
    incomplete: list[str] = []
    for method in dict.fromkeys(m for p in panels for m in p.methods):
        keys = [(p.dataset, p.setting, method) for p in panels]
        if all(k in quality and k in cost for k in keys):
            value = 100 * float(np.mean([quality[k]["mean"] for k in keys]))
            points[method] = (float(np.mean([cost[k]["mean"] for k in keys])), value)
        elif method != PLAIN:
            incomplete.append(method)
    return points, incomplete


def pareto(points: Points, task: str = "noisy") -> list[str]:
    """Find the methods that no other one equals or beats in cost and quality.

    Args:
        points: Method -> (cost, quality).
        task: "noisy" or "ood"; methods that are declared unranked for it do not compete.

    Returns:
        The methods, cheapest first.
    """
    front: list[str] = []
    best = -math.inf
    for method, (_, quality) in sorted(points.items(), key=lambda item: (item[1][0], -item[1][1])):
        if quality > best and is_ranked(task, method):
            front.append(method)
            best = quality
    return front


def _ticks(axes: Axes, costs: Sequence[float]) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    low, high = min(costs) / 1.15, max(costs) * 1.6  # room for names to the right
    digits = (1, 1.5, 2, 3, 5, 7) if high / low < 40 else (1, 3)
    ticks = [t for e in range(-3, 6) for m in digits if low <= (t := m * 10.0**e) <= high]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(ticks, [f"{t:g}×" for t in ticks])
    axes.set_xlim(low, high)


def _names(axes: Axes, points: Points, task: str) -> None:
    """Write a name beside each mark where it covers neither a name nor a mark, with a line to a mark further away."""
    from matplotlib.patheffects import withStroke

    low, high = axes.get_ylim()
    axes.set_ylim(low - 0.08 * (high - low), high + 0.04 * (high - low))
    to_axes = axes.transData + axes.transAxes.inverted()
    marks = {m: to_axes.transform(point) for m, point in points.items()}
    taken = [(x - 0.009, x + 0.009, y - 0.018, y + 0.018) for x, y in marks.values()]
    for method in sorted(points, key=lambda m: (m != OURS, -points[m][1])):
        ours = method == OURS
        x, y = marks[method]
        text = _style.name_of(method, task)
        side, rise, box = _place(x, y, 0.0112 * len(text) + (0.02 if ours else 0), taken)
        taken.append(box)
        if abs(rise) > 0.02:
            near = box[0] if side > 0 else box[1]
            axes.plot([x, near], [y, y + rise], color="#999999", linewidth=0.6, zorder=1, transform=axes.transAxes)
        weight = "bold" if ours else "normal"
        drawn = axes.text(box[0], y + rise, text, va="center", fontsize=7.5, weight=weight, transform=axes.transAxes)
        drawn.set_path_effects([withStroke(linewidth=2.5, foreground="white")])


def _place(x: float, y: float, width: float, taken: Sequence[Box]) -> tuple[int, float, Box]:
    """Side, rise and box of the nearest free place for a text beside a mark; of the farthest if none is free."""
    for side, rise in _offsets():
        start = x + side * (0.014 + 0.2 * abs(rise)) - (width if side < 0 else 0)
        box = (start, start + width, y + rise - 0.018, y + rise + 0.018)
        inside = box[0] > 0 and box[1] < 1 and box[2] > 0 and box[3] < 1
        if inside and not any(_overlap(box, other) for other in taken):
            break
    return side, rise, box


def _offsets() -> list[tuple[int, float]]:
    """(side, rise) to try, nearest first; side 1 is right of the mark."""
    upwards = [(side, rise) for rise in np.arange(0, 0.8, 0.02) for side in (1, -1)]
    both = [*upwards, *((side, -rise) for side, rise in upwards)]
    return sorted(both, key=lambda offset: abs(offset[1]) + 0.01 * (offset[0] < 0))


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]
