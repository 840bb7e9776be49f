"""Precision against recall, and recall against the share of examples looked at, of the detectors of a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sgoif.bench.evaluation.table_layout import Panel
from sgoif.bench.figures import _style
from sgoif.bench.figures._data import RANDOM, FigureData, tables_of
from sgoif.bench.methods.registry import OURS
from sgoif.bench.tables.captions import describe_noise
from sgoif.bench.tables.names import title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLACE = 20
TITLE = "Precision-recall and cumulative-recall curves"
CAPTION = (
    "Left: precision where the recall of wrong labels first reaches a value (the area under it is AUC-PR); the axis "
    "begins at 50% unless a named method falls below. Right: the share of wrong labels found after looking at the most "
    "suspicious examples first. Mean over seeds and, in a grid, over sparsities. SG-OIF and the best others are named, "
    "all further methods pale. Dotted, right: random order and the best possible one."
)
N_NAMED = 4


def subjects(config: Mapping[str, Any]) -> list[str]:
    """Return the tables that the figure is drawn for."""
    return tables_of(config, "noise_grid", "noise_sets")


@dataclass
class _Row:
    """One row of the figure: panels that share data and noise rate, and the mean curves of their methods."""

    panels: list[Panel]
    x: np.ndarray  # in percent, shape [points]
    curves: dict[str, dict[str, np.ndarray]]  # method -> {precision [points], recall [points]}
    base_rate: float | None  # share of wrong labels


def draw(table: str, data: FigureData) -> Figure | None:
    """Draw the figure of one table."""
    rows = [row for row in _read(table, data) if row.curves]
    if not rows:
        return None
    order = _by_area(rows)
    styles = _style.method_styles(order, n_named=N_NAMED)
    figure, grid = _style.canvas(len(rows), 2, height=2.3 * len(rows) + 0.6)
    for (left, right), row in zip(grid, rows, strict=True):
        _lines(left, row.x, {m: c["precision"] for m, c in row.curves.items()}, styles)
        _lines(right, row.x, {m: c["recall"] for m, c in row.curves.items()}, styles)
        left.set_ylim(_floor(row, styles), 101)
        right.set_ylim(0, 102)
        if row.base_rate is not None:
            _references(right, row.base_rate)
        left.set_title(_title(row.panels))
        left.set_xlabel("recall (%)")
        left.set_ylabel("precision (%)")
        right.set_xlabel("examples looked at (%)")
        right.set_ylabel("recall (%)")
    named = [m for m in order if styles[m] is not _style.PALE_STYLE]
    _legend(figure, named, styles)
    pale = [title("noisy", m) for m in order if m not in named]
    notes = [f"pale: {', '.join(pale)}"] if pale else []
    notes += _missing(table, data, rows)
    if notes:
        _style.footnote(figure, "; ".join(notes))
    _style.subtitle(figure, "; ".join(dict.fromkeys(data.title(p.dataset) for row in rows for p in row.panels)))
    return figure


def _read(table: str, data: FigureData) -> list[_Row]:
    groups: dict[tuple[Any, ...], list[Panel]] = {}
    for p in data.layout(table).panels:
        groups.setdefault((p.dataset, p.kind, p.noise or p.setting), []).append(p)
    base_rates = data.numbers(table, "base_rate")
    rows = []
    for panels in groups.values():
        found = [base_rates.get((p.dataset, p.setting, "")) for p in panels]
        rates = [r["mean"] for r in found if r]
        x = 100 * np.array(data.curves(panels[0].dataset)["grid"])
        rows.append(_Row(panels, x, _mean_curves(data, panels), float(np.mean(rates)) if rates else None))
    return rows


def _mean_curves(data: FigureData, panels: Sequence[Panel]) -> dict[str, dict[str, np.ndarray]]:
    """Method -> its two curves, averaged over the panels; a method that lacks a panel or seeds is left out."""
    by_method: dict[str, dict[str, dict[str, Any]]] = {}
    for p in panels:
        for curve in data.curves(p.dataset)["detectors"]:
            wanted = curve["method"] in p.methods and curve["method"] != RANDOM
            if curve["setting"] == p.setting and wanted and curve["seeds"] == len(p.seeds):
                by_method.setdefault(curve["method"], {})[p.setting] = curve
    return {
        method: {k: 100 * np.mean([c[k] for c in by_setting.values()], 0) for k in ("precision", "recall")}
        for method, by_setting in by_method.items()
        if len(by_setting) == len(panels)
    }


def _by_area(rows: Sequence[_Row]) -> list[str]:
    """Methods, largest area under their precision curves first."""
    areas: dict[str, list[float]] = {}
    for row in rows:
        for method, curve in row.curves.items():
            areas.setdefault(method, []).append(float(curve["precision"].mean()))
    return sorted(areas, key=lambda m: -float(np.mean(areas[m])))


def _missing(table: str, data: FigureData, rows: Sequence[_Row]) -> list[str]:
    """Notes on methods with scores that lack seeds or settings somewhere."""
    scored = dict.fromkeys(method for _, _, method in data.numbers(table, "auc_pr") if method != RANDOM)
    lacking = [m for m in scored if any(m not in row.curves for row in rows)]
    names = ", ".join(title("noisy", m) for m in lacking)
    return [f"not everywhere, since seeds or settings are missing: {names}"] if lacking else []


def _lines(axes: Axes, x: np.ndarray, lines: Mapping[str, np.ndarray], styles: Mapping[str, _style.LineStyle]) -> None:
    """Draw one line per method."""
    for method, y in lines.items():
        colour, dashes, _ = styles[method]
        ours, pale = method == OURS, styles[method] is _style.PALE_STYLE
        order = 4 if ours else 2 if pale else 3
        axes.plot(x, y, color=colour, linestyle=dashes, linewidth=2.2 if ours else 0.9 if pale else 1.4, zorder=order)
    axes.set_xlim(0, 100)
    axes.grid()


def _floor(row: _Row, styles: Mapping[str, _style.LineStyle]) -> float:
    """Where the axis of precision begins: at 50%, or lower where a named method falls below it up to 90% recall."""
    before = row.x <= 90
    lowest = min(
        (float(c["precision"][before].min()) for m, c in row.curves.items() if styles[m] is not _style.PALE_STYLE),
        default=50.0,
    )
    return min(50.0, 10.0 * math.floor(lowest / 10))


def _legend(figure: Figure, named: Sequence[str], styles: Mapping[str, _style.LineStyle]) -> None:
    """Draw one legend for all rows, best method first."""
    from matplotlib.lines import Line2D

    handles = []
    for method in named:
        look: dict[str, Any] = {"color": styles[method][0], "linestyle": styles[method][1], "linewidth": 2}
        handles.append(Line2D([], [], label=title("noisy", method), **look))
    _style.legend(figure, handles)


def _references(axes: Axes, rate: float) -> None:
    """Draw what a random order finds, and the best possible order."""
    style: dict[str, Any] = {"color": _style.GREY, "linestyle": ":", "linewidth": 1}
    axes.plot([0, 100 * rate, 100], [0, 100, 100], **style)
    axes.plot([0, 100], [0, 100], **style)


def _title(panels: Sequence[Panel]) -> str:
    first = panels[0]
    if len(panels) > 1:
        return f"{first.title}: {100 * (first.noise or 0):.0f}% noise, mean of {len(panels)} sparsities"
    return f"{first.title}: {describe_noise(first)}"
