"""AUC-PR of every method in every setting of a grid: a panel for each noise rate, a row for each method."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sgoif.bench.evaluation.table_layout import Panel
from sgoif.bench.figures import _style
from sgoif.bench.figures._data import SEEDS, FigureData, Numbers, tables_of
from sgoif.bench.methods.registry import OURS
from sgoif.bench.tables.names import title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLACE = 10
TITLE = "Wrong labels found"
CAPTION = (
    "AUC-PR (average precision of finding the wrong labels) of every method in every setting of the grid: one panel "
    "for each noise rate, one mark for each sparsity of the noise matrix. Mean over seeds; with several, bars hold "
    "all of them. Best mean at the top. Every panel has its own axis, from the lowest mark on; a random ranking gets "
    f"the noise rate. {SEEDS}"
)


def subjects(config: Mapping[str, Any]) -> list[str]:
    """Return the tables that the figure is drawn for."""
    return tables_of(config, "noise_grid")


@dataclass
class _Grid:
    """What the figure shows."""

    levels: dict[float, list[Panel]]  # noise rate -> panels by sparsity
    found: Numbers
    order: list[str]  # methods from the lowest mean to the highest


def draw(table: str, data: FigureData) -> Figure | None:
    """Draw the figure of one table."""
    grid = _read(table, data)
    if not grid.order:
        return None
    figure, panels = _style.canvas(1, len(grid.levels), height=0.25 * max(4, len(grid.order)) + 0.75, sharey=True)
    for axes, (level, settings) in zip(panels[0], grid.levels.items(), strict=True):
        _draw_level(axes, grid, settings)
        axes.set_title(f"noise {100 * level:.0f}%")
        axes.set_xlabel("AUC-PR (%)")
    _style.method_rows(panels[0, 0], [title("noisy", m) for m in grid.order], [m == OURS for m in grid.order])
    for axes in panels[0]:
        axes.grid(True)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
    _style.legend(figure, panels[0, 0].get_legend_handles_labels()[0])
    told = _style.seeds_in_words([r["n_seeds"] for r in grid.found.values()])
    _style.subtitle(figure, f"{data.title(data.config['tables'][table]['dataset'])}; {told}")
    return figure


def _read(table: str, data: FigureData) -> _Grid:
    found = data.compared(table, "auc_pr")
    values: dict[str, list[float]] = {}
    for (_, _, method), record in found.items():
        values.setdefault(method, []).append(record["mean"])
    levels: dict[float, list[Panel]] = {}
    for panel in sorted(data.layout(table).panels, key=lambda p: (p.noise or 0, p.sparsity or 0)):
        if any(key[:2] == (panel.dataset, panel.setting) for key in found):
            levels.setdefault(panel.noise or 0, []).append(panel)
    return _Grid(levels, found, sorted(values, key=lambda m: sum(values[m]) / len(values[m])))


def _draw_level(axes: Axes, grid: _Grid, settings: list[Panel]) -> None:
    """Draw the marks of one noise rate: sparsities above one another within a row."""
    lowest = 100.0
    for i, (panel, (colour, marker)) in enumerate(zip(settings, itertools.cycle(_style.MARKS), strict=False)):
        offset = 0.17 * ((len(settings) - 1) / 2 - i)
        rows = [(row, r) for row, m in enumerate(grid.order) if (r := _record(grid, panel, m)) is not None]
        means = [100 * r["mean"] for _, r in rows]
        values = [[100 * v for v in r.get("values") or [r["mean"]]] for _, r in rows]
        spread = [[m - min(v) for m, v in zip(means, values, strict=True)]]
        spread.append([max(v) - m for m, v in zip(means, values, strict=True)])
        axes.errorbar(
            means, [row + offset for row, _ in rows], xerr=[[max(0.0, x) for x in side] for side in spread], fmt=marker,
            color=colour, markersize=3.6, elinewidth=0.8, label=f"sparsity {panel.sparsity or 0:.1f}", zorder=3,
        )  # fmt: skip
        lowest = min([lowest, *(min(v) for v in values)])
    low = min(95.0, 5.0 * math.floor(lowest / 5))
    axes.set_xlim(low, 100 + 0.02 * (100 - low))


def _record(grid: _Grid, panel: Panel, method: str) -> Mapping[str, Any] | None:
    return grid.found.get((panel.dataset, panel.setting, method))
