"""Quality against passes through a network of all methods of a table, and the methods that no other beats in both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sgoif.bench.evaluation.table_layout import Panel
from sgoif.bench.figures import _labels, _style
from sgoif.bench.figures._data import RANDOM, SEEDS, FigureData, tables_of
from sgoif.bench.methods.registry import OURS, PLAIN
from sgoif.bench.tables.names import is_ranked, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = dict[str, tuple[float, float]]  # method -> (cost, quality)

PLACE = 30
TITLE = "Quality against cost"
CAPTION = (
    "Mean quality over the settings of the table against images passed through a network (a training step counts "
    "three), as a multiple of plain training, with what the method reads counted in. Passes do not depend on the "
    "machine or on what else ran on it. Up and left is better. The line joins the methods that no other equals or "
    "beats in both (Pareto); hollow marks are given all clean labels that were set aside and do not compete. " + SEEDS
)
QUALITY = {
    "noise_grid": ("auc_pr", "AUC-PR (%)"),
    "noise_sets": ("auc_pr", "AUC-PR (%)"),
    "ood": ("auroc:overall", "AUROC over all OOD sets (%)"),
}
COST_METRIC = "overhead_passes"
SAME_COST = 1.15  # costs within this factor are named in one column
MAX_NAMES = 20  # in a column: of more methods the best are named
NAME_WIDTH = 0.06  # inches of a letter
RIGHT_ROOM = 1.5


def subjects(config: Mapping[str, Any]) -> list[str]:
    """Return the tables that the figure is drawn for."""
    return tables_of(config, *QUALITY)


def draw(table: str, data: FigureData) -> Figure | None:
    """Draw the figure of one table."""
    metric, label = QUALITY[data.config["tables"][table]["kind"]]
    points, incomplete = _points(table, metric, data)
    if len(columns(points)) < 2:  # all cost the same: there is nothing to weigh
        return None
    layout = data.layout(table)
    task = layout.task
    figure, grid = _style.canvas(height=max(3.4, 0.15 * min(MAX_NAMES, len(points)) + 1.4))
    axes = grid[0, 0]
    axes.set_xlabel("passes through a network / those of plain training (log scale)")
    axes.set_ylabel(label)
    _style.subtitle(figure, _about(layout.panels))
    front = pareto(points, task)
    if front:
        costs, qualities = zip(*[points[m] for m in front], strict=True)
        axes.plot(costs, qualities, color=_style.BLUE, linewidth=1, zorder=2, drawstyle="steps-post")
    for method, point in points.items():
        axes.scatter(*point, zorder=4 if method == OURS else 3, **_mark(method, method in front, task))
    named = [_named(methods, points, front) for methods in columns(points)]
    _limits(axes, points, [title(task, m) for m in named[0]])
    notes = {"not named": [m for m in points if not any(m in column for column in named)]}
    notes["not in every setting"] = incomplete
    told = [f"{words}: {', '.join(title(task, m) for m in methods)}" for words, methods in notes.items() if methods]
    if told:
        _style.footnote(figure, "; ".join(told))
    _legend(figure, points, front, task)
    _style.lay_out(figure)
    for i, methods in enumerate(named):  # the cheapest at the left of their marks, all others at the right
        at = {title(task, m): points[m] for m in methods}
        _labels.beside(axes, at, {}, bold=title(task, OURS), left=i == 0, distance=0.02)
    return figure


def _about(panels: Sequence[Panel]) -> str:
    titles = dict.fromkeys(p.title + (f", in the place of {p.stands_for}" if p.stands_for else "") for p in panels)
    return "; ".join(titles) + (f"; mean of {len(panels)} settings" if len(panels) > 1 else "")


def _mark(method: str, on_front: bool, task: str) -> dict[str, Any]:
    """How a method is drawn."""
    colour = "black" if method == OURS else _style.BLUE if on_front else _style.GREY
    hollow = not is_ranked(task, method)
    shape = {"marker": "*", "s": 110} if method == OURS else {"marker": "o", "s": 26}
    return {**shape, "facecolors": "white" if hollow else colour, "edgecolors": colour, "linewidths": 1}


def _legend(figure: Figure, points: Points, front: Sequence[str], task: str) -> None:
    from matplotlib.lines import Line2D

    kinds: dict[str, dict[str, Any]] = {
        "SG-OIF": {"marker": "*", "markersize": 9, "color": "black", "linestyle": ""},
        "no other is better and cheaper": {"marker": "o", "markersize": 5, "color": _style.BLUE},
        "others": {"marker": "o", "markersize": 5, "color": _style.GREY, "linestyle": ""},
    }
    if set(front) <= {OURS}:  # then there is no line, and the mark of SG-OIF says enough
        del kinds["no other is better and cheaper"]
    if any(not is_ranked(task, m) for m in points):
        hollow = {"marker": "o", "markersize": 5, "color": _style.GREY, "markerfacecolor": "white", "linestyle": ""}
        kinds["given all clean labels"] = hollow
    handles = [Line2D([], [], label=words, **look) for words, look in kinds.items()]
    _style.legend(figure, handles)


def _points(table: str, metric: str, data: FigureData) -> tuple[Points, list[str]]:
    """Method -> (cost, quality) as means over the panels; and the methods that lack a panel."""
    layout = data.layout(table)
    quality = data.compared(table, metric) if layout.task == "noisy" else data.numbers(table, metric)
    cost = data.numbers(table, COST_METRIC)
    panels = layout.panels
    points: Points = {}
    incomplete: list[str] = []
    tried = data.tried(table)
    for method in dict.fromkeys(m for p in panels for m in p.methods if m not in (PLAIN, RANDOM)):
        keys = [(p.dataset, p.setting, method) for p in panels]
        if all(k in quality and k in cost for k in keys):
            value = 100 * float(np.mean([quality[k]["mean"] for k in keys]))
            points[method] = (float(np.mean([cost[k]["mean"] for k in keys])), value)
        elif method in tried:
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


def _limits(axes: Axes, points: Points, at_left: Sequence[str]) -> None:
    """Set the limits, with room for the names of the cheapest methods inside the axes."""
    from matplotlib.ticker import NullLocator

    costs = [cost for cost, _ in points.values()]
    qualities = [quality for _, quality in points.values()]
    axes.set_xscale("log")
    share = (NAME_WIDTH * max(map(len, at_left)) + 0.25) / (_style.FIGURE_WIDTH - 0.7)  # of the axes' width
    span = RIGHT_ROOM * max(costs) / min(costs)
    axes.set_xlim(min(costs) / span ** (share / (1 - share)), max(costs) * RIGHT_ROOM)
    digits = (1, 1.5, 2, 3, 5, 7)
    ticks = [t for e in range(-3, 6) for m in digits if 0.99 * min(costs) <= (t := m * 10.0**e) <= max(costs) * 1.2]
    axes.set_xticks(ticks, [f"{t:g}×" for t in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    room = 0.06 * (max(qualities) - min(qualities)) + 0.1
    axes.set_ylim(min(qualities) - room, min(100 + room / 2, max(qualities) + room))
    axes.grid()


def columns(points: Points) -> list[list[str]]:
    """Group methods of about the same cost, cheapest first: their names stand in one column."""
    found: list[list[str]] = []
    for method in sorted(points, key=lambda m: points[m][0]):
        if found and points[method][0] <= SAME_COST * points[found[-1][0]][0]:
            found[-1].append(method)
        else:
            found.append([method])
    return found


def _named(methods: Sequence[str], points: Points, front: Sequence[str]) -> list[str]:
    """The methods of a column whose names are written: SG-OIF, those on the front, and the best others."""
    order = sorted(methods, key=lambda m: (m != OURS and m not in front, -points[m][1]))
    return order[:MAX_NAMES]
