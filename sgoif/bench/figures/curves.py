"""Precision against recall, and recall against the share of examples looked at, of all detectors of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sgoif.bench.evaluation.table_layout import Panel
from sgoif.bench.figures import _style
from sgoif.bench.figures._data import FigureData, tables_of
from sgoif.bench.methods.registry import OURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Styles = Mapping[str, tuple[str, _style.Dashes]]  # method -> colour and dashes

PLACE = 20
FROM_CURVES = True
TITLE = "Precision-recall and cumulative-recall curves"
CAPTION = (
    "Left: precision where the recall of wrong labels first reaches a value (the area under it is AUC-PR). Right: the "
    "share of wrong labels found after looking at the most suspicious examples first. Mean over seeds and, in a grid, "
    "over sparsities. Dotted: random order; right, also the best possible order."
)


def subjects(config: Mapping[str, Any]) -> list[str]:
    """Return the tables that the figure is drawn for."""
    return tables_of(config, "noise_grid", "noise_sets")


@dataclass
class _Row:
    """One row of the figure: panels that share data and noise rate, and the mean curves of their methods."""

    panels: list[Panel]
    x: np.ndarray  # in percent, shape [points]
    curves: dict[str, dict[str, Any]]  # method -> {precision [points], recall [points], name}
    base_rate: float | None  # share of wrong labels


def draw(table: str, data: FigureData) -> Figure:
    """Draw the figure of one table."""
    rows = _read(table, data)
    styles = _style.line_styles(list(dict.fromkeys(m for row in rows for p in row.panels for m in p.methods)))
    n_rows = max(1, len(rows))
    figure, grid = _style.canvas(n_rows, 3, height=2.75 * n_rows + 0.3, width_ratios=(1, 1, 0.62))
    for axes in grid[:, 2]:
        axes.axis("off")
    if not rows:
        for axes in grid[0, :2]:
            _style.gap(axes, "no dataset of this table was measured")
    for (left, right, legend), row in zip(grid, rows, strict=False):
        _lines(left, row.x, {m: c["precision"] for m, c in row.curves.items()}, styles)
        _lines(right, row.x, {m: c["recall"] for m, c in row.curves.items()}, styles)
        _legend(legend, row.curves, styles)
        if row.curves and row.base_rate is not None:
            _references(left, right, row.base_rate)
        left.set_title(" ")  # room for the title, which may reach over the neighbour
        title = left.text(0, 1.03, _title(row.panels), transform=left.transAxes, fontsize=9)
        title.set_in_layout(False)
        left.set_xlabel("recall (%)")
        left.set_ylabel("precision (%)")
        right.set_xlabel("examples looked at (%)")
        right.set_ylabel("recall (%)")
    return figure


def _read(table: str, data: FigureData) -> list[_Row]:
    groups: dict[tuple[Any, ...], list[Panel]] = {}
    for p in data.layout(table).panels:
        groups.setdefault((p.dataset, p.kind, p.noise or p.setting), []).append(p)
    base_rates = data.numbers(table, "base_rate")
    rows = []
    for panels in groups.values():
        curves, x = _mean_curves(data, panels)
        found = [base_rates.get((p.dataset, p.setting, "")) for p in panels]
        rates = [r["mean"] for r in found if r]
        rows.append(_Row(panels, x, curves, float(np.mean(rates)) if rates else None))
    return rows


def _mean_curves(data: FigureData, panels: Sequence[Panel]) -> tuple[dict[str, dict[str, Any]], np.ndarray]:
    """Method -> its two curves and its name, averaged over the panels; a method that lacks a panel is left out."""
    by_method: dict[str, dict[str, dict[str, Any]]] = {}
    for p in panels:
        for curve in data.curves(p.dataset)["detectors"]:
            if curve["setting"] == p.setting and curve["method"] in p.methods:
                by_method.setdefault(curve["method"], {})[p.setting] = curve
    wanted_seeds = len(panels[0].seeds)
    mean: dict[str, dict[str, Any]] = {}
    for method, by_setting in by_method.items():
        if len(by_setting) < len(panels):
            continue
        curves = list(by_setting.values())
        mean[method] = {k: 100 * np.mean([c[k] for c in curves], 0) for k in ("precision", "recall")}
        seeds = min(c["seeds"] for c in curves)
        missing = f", {seeds} of {wanted_seeds} seeds" if seeds < wanted_seeds else ""
        mean[method]["name"] = _style.name_of(method) + missing
    return mean, 100 * np.array(data.curves(panels[0].dataset)["grid"])


def _lines(axes: Axes, x: np.ndarray, lines: Mapping[str, np.ndarray], styles: Styles) -> None:
    """Draw one line per method."""
    if not lines:
        _style.gap(axes, "no detector has all of these cells")
        return
    for method, y in lines.items():
        colour, dashes = styles[method]
        ours = method == OURS
        axes.plot(x, y, color=colour, linestyle=dashes, linewidth=2.2 if ours else 1.2, zorder=3 if ours else 2)
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 102)
    axes.grid()


def _legend(axes: Axes, found: Mapping[str, Mapping[str, Any]], styles: Styles) -> None:
    """Draw the legend of a row: largest area under the left curve first."""
    order = sorted(found, key=lambda m: -found[m]["precision"].mean())
    for i, method in enumerate(order):
        colour, dashes = styles[method]
        weight = "bold" if method == OURS else "normal"
        axes.plot([0, 0.14], [-i, -i], color=colour, linestyle=dashes)
        axes.text(0.18, -i, found[method]["name"], va="center", fontsize=7, weight=weight)
    axes.set_xlim(0, 1)
    axes.set_ylim(-max(12, len(order)), 0.5)


def _references(left: Axes, right: Axes, rate: float) -> None:
    """Draw what a random order gets, and on the right also the best possible order."""
    style: dict[str, Any] = {"color": _style.GREY, "linestyle": ":", "linewidth": 1}
    left.axhline(100 * rate, **style)
    right.plot([0, 100 * rate, 100], [0, 100, 100], **style)
    right.plot([0, 100], [0, 100], **style)


def _title(panels: Sequence[Panel]) -> str:
    first = panels[0]
    noise = f"{100 * first.noise:.0f}% noise" if first.noise else first.setting
    kind = first.kind.replace("_", "-")
    over = f", mean of {len(panels)} sparsities" if len(panels) > 1 else ""
    place = f" (in the place of {first.stands_for})" if first.stands_for else ""
    return f"{first.title}{place}: {kind} {noise}{over}"
