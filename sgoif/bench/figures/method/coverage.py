"""Reliability of the interval of a score: nominal against measured coverage, where the exact influence is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sgoif.bench.figures import _style
from sgoif.bench.figures._data import FigureData
from sgoif.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLACE = 86
TITLE = "Do the intervals of scores hold what they say?"
CAPTION = (
    "Share of the intervals that hold the exact influence, against their nominal level, on models whose exact "
    "answer is known; mean over seeds. On the diagonal an interval holds what it says, above it is too wide, below "
    "too narrow. With several problems: one thin line for each, thick over all of them; and coverage of the 95% "
    "interval by problem, with the standard deviation over seeds, where the band is the goal of 93 to 97%."
)
GOAL = (93, 97)


def subjects(config: Mapping[str, Any]) -> list[str]:
    """Return the fidelity measurements of perceptrons."""
    return [name for name, spec in config.get("fidelity", {}).items() if not spec["model"]]


def draw(name: str, data: FigureData) -> Figure | None:
    """Draw the figure of one measurement, from the fidelity table."""
    from sgoif.bench.fidelity.certificate_table import ALL_PROBLEMS, LEVEL_METRICS  # they need torch, a plan does not
    from sgoif.bench.fidelity.table import build_fidelity_tables

    spec = data.config["fidelity"][name]
    try:
        [table] = build_fidelity_tables(data.run_dir, {"fidelity": {name: spec}})
    except UserError:  # not measured
        return None
    block = next(b for b in table.blocks if b.columns[0].metric == LEVEL_METRICS[0])
    nominal = np.array([float(metric.rsplit("_", 1)[1]) for metric in LEVEL_METRICS])
    levels = slice(len(LEVEL_METRICS))
    measured = {row.title: _percent(row.entries[levels], "mean") for row in block.rows}
    spread = {row.title: _percent(row.entries[levels], "std") for row in block.rows}
    total = measured.pop(ALL_PROBLEMS, None)
    several = len(measured) > 1
    figure, grid = _style.canvas(1, 1 + several, height=2.9, width_ratios=(1, 1.2) if several else None)
    if total is None:
        total = next(iter(measured.values()))
    _draw_levels(grid[0, 0], nominal, measured, total)
    if several:
        _draw_problems(grid[0, 1], list(nominal).index(95), measured, spread, total)
    n_seeds, each = len(spec["seeds"]), " of each problem" if several else ""
    _style.subtitle(figure, f"{spec['title']}; {n_seeds} {'seed' if n_seeds == 1 else 'seeds'}{each}")
    return figure


def _draw_levels(axes: Axes, nominal: np.ndarray, measured: Mapping[str, np.ndarray], total: np.ndarray) -> None:
    """Draw measured against nominal coverage, a thin line for each problem and a thick one over all."""
    for values in measured.values():
        axes.plot(nominal, values, color=_style.PALE, linewidth=0.9)
    axes.plot(nominal, total, color="black", linewidth=2, marker="o", markersize=4)
    axes.plot([0, 100], [0, 100], color=_style.GREY, linewidth=1, linestyle=":")
    axes.set_xlim(45, 101)
    axes.set_ylim(min(45, *(v.min() for v in measured.values())) - 2, 101)
    axes.set_xlabel("nominal level (%)")
    axes.set_ylabel("hold the exact influence (%)")
    axes.grid()


def _draw_problems(
    axes: Axes, level: int, measured: Mapping[str, np.ndarray], spread: Mapping[str, np.ndarray], total: np.ndarray
) -> None:
    """Draw the coverage of one level by problem."""
    order = list(measured)[::-1]
    axes.axvspan(*GOAL, color=_style.GRID_COLOUR)
    for row, title in enumerate(order):
        error = np.nan_to_num(spread[title][level])
        axes.errorbar(measured[title][level], row, xerr=error, color=_style.BLUE, marker="o", capsize=2)
    axes.axvline(total[level], color="black", linewidth=1.2)
    axes.set_yticks(range(len(order)), order)
    axes.set_xlabel("coverage of the 95% interval (%)")
    axes.set_xlim(right=101)
    axes.grid(axis="x")


def _percent(entries: Any, field: str) -> np.ndarray:
    """Return mean or standard deviation of the coverage at each level, in per cent."""
    values = [getattr(entry, field) for entry in entries]
    return np.array([np.nan if value is None else 100 * value for value in values])
