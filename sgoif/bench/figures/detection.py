"""Average precision of every method in every setting of a grid: one row per method, best mean at the top."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sgoif.bench.figures import _style
from sgoif.bench.figures._data import FigureData, tables_of
from sgoif.bench.methods.registry import OURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLACE = 10
TITLE = "Wrong labels found"
CAPTION = (
    "AUC-PR of every method in every setting of the grid, mean over seeds; one mark per sparsity, best mean at the "
    "top. Dotted: the share of wrong labels, which is what a random ranking gets."
)


def subjects(config: Mapping[str, Any]) -> list[str]:
    """Return the tables that the figure is drawn for."""
    return tables_of(config, "noise_grid")


@dataclass
class _Grid:
    """AUC-PR in percent of every method in every setting."""

    by_method: dict[str, dict[str, float]]  # method -> setting -> value
    base_rates: dict[str, float]  # setting -> share of wrong labels in percent
    noise: dict[str, float]  # setting -> noise rate
    seeds: set[int]  # numbers of seeds that occur

    @property
    def order(self) -> list[str]:
        """Methods from the lowest mean to the highest."""
        return sorted(self.by_method, key=lambda m: sum(self.by_method[m].values()) / len(self.by_method[m]))

    @property
    def levels(self) -> list[float]:
        """Noise rates with a value."""
        return sorted({self.noise[s] for values in self.by_method.values() for s in values})


def draw(table: str, data: FigureData) -> Figure:
    """Draw the figure of one table."""
    grid = _read(table, data)
    order = grid.order
    levels = grid.levels
    figure, panels = _style.canvas(height=0.27 * max(4, len(order)) + 1.2)
    axes = panels[0, 0]
    for level, (colour, shape) in zip(levels, itertools.cycle(_style.MARKS), strict=False):
        _draw_level(axes, grid, level, colour, shape)
    axes.set_xlabel("AUC-PR (%), one mark per sparsity; dotted: share of wrong labels")
    n_seeds = " to ".join(str(n) for n in dict.fromkeys((min(grid.seeds), max(grid.seeds))))
    dataset = data.config["tables"][table]["dataset"]
    _style.heading(figure, f"{data.title(dataset)}; mean of {n_seeds} seeds")
    if not levels:
        _style.gap(axes, "no method has a score")
        return figure
    axes.set_yticks(range(len(order)), [_style.name_of(m) for m in order])
    for text, method in zip(axes.get_yticklabels(), order, strict=True):
        text.set_fontweight("bold" if method == OURS else "normal")
    axes.set_xlim(0, 101)
    axes.set_ylim(-0.7, len(order) - 0.3)
    axes.grid(axis="y")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.legend(ncols=len(levels), loc="lower left", bbox_to_anchor=(-0.02, 1), handletextpad=0.2)
    return figure


def _read(table: str, data: FigureData) -> _Grid:
    spec = data.config["noisy"][data.config["tables"][table]["dataset"]]
    by_method: dict[str, dict[str, float]] = {}
    seeds = {len(spec["seeds"])}
    for (_, setting, method), record in data.numbers(table, "auc_pr").items():
        by_method.setdefault(method, {})[setting] = 100 * record["mean"]
        seeds.add(record["n_seeds"])
    base_rates = {setting: 100 * r["mean"] for (_, setting, _), r in data.numbers(table, "base_rate").items()}
    noise = {name: setting.get("noise", 0) for name, setting in spec["settings"].items()}
    return _Grid(by_method, base_rates, noise, seeds)


def _draw_level(axes: Axes, grid: _Grid, level: float, colour: str, shape: str) -> None:
    """Draw the marks of one noise rate, and its share of wrong labels as a dotted line."""
    settings = [s for s, noise in grid.noise.items() if noise == level]
    rates = [grid.base_rates[s] for s in settings if s in grid.base_rates]
    if rates:
        axes.axvline(sum(rates) / len(rates), color=colour, linestyle=":", linewidth=1)
    points = [(v, row) for row, m in enumerate(grid.order) for s, v in grid.by_method[m].items() if s in settings]
    offset = 0.22 * (grid.levels.index(level) - (len(grid.levels) - 1) / 2)
    xs = [x for x, _ in points]
    ys = [row + offset for _, row in points]
    label = f"noise {100 * level:.0f}%"
    axes.scatter(xs, ys, s=26, color=colour, marker=shape, label=label, alpha=0.85, linewidths=0)
