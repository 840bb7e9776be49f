"""Reliability of the interval of a score: nominal against measured coverage, where the exact influence is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sgoif.bench.fidelity.certificate_table import ALL_PROBLEMS, LEVEL_METRICS
from sgoif.bench.fidelity.table import build_fidelity_tables
from sgoif.bench.figures import _style
from sgoif.bench.figures._data import FigureData
from sgoif.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLACE = 86
TITLE = "Do the intervals of scores hold what they say?"
CAPTION = (
    "Left: share of the intervals that hold the exact influence, against their nominal level, on models whose exact "
    "answer is known; one thin line for each problem (mean over seeds), thick over all of them. On the diagonal an "
    "interval holds what it says, above it is too wide. Right: coverage of the 95% interval by problem, with the "
    "standard deviation over seeds; the band is the goal of 93 to 97%."
)
GOAL = (93, 97)


def subjects(config: Mapping[str, Any]) -> list[str]:
    """Return the fidelity measurements of perceptrons."""
    return [name for name, spec in config.get("fidelity", {}).items() if not spec["model"]]


def draw(name: str, data: FigureData) -> Figure | None:
    """Draw the figure of one measurement, from the fidelity table."""
    spec = data.config["fidelity"][name]
    try:
        [table] = build_fidelity_tables(data.run_dir, {"fidelity": {name: spec}})
    except UserError:  # not measured
        return None
    block = next(b for b in table.blocks if b.columns[0].metric == LEVEL_METRICS[0])
    nominal = np.array([float(metric.rsplit("_", 1)[1]) for metric in LEVEL_METRICS])
    measured = {row.title: _percent(row.entries, "mean") for row in block.rows}
    spread = {row.title: _percent(row.entries, "std") for row in block.rows}
    total = measured.pop(ALL_PROBLEMS, None)
    figure, grid = _style.canvas(1, 2, height=2.9, width_ratios=(1, 1.2))
    left, right = grid[0]
    for values in measured.values():
        left.plot(nominal, values, color=_style.PALE, linewidth=0.9)
    if total is None:
        total = next(iter(measured.values()))
    left.plot(nominal, total, color="black", linewidth=2, marker="o", markersize=4)
    left.plot([0, 100], [0, 100], color=_style.GREY, linewidth=1, linestyle=":")
    left.set_xlim(45, 101)
    left.set_ylim(min(45, *(v.min() for v in measured.values())) - 2, 101)
    left.set_xlabel("nominal level (%)")
    left.set_ylabel("hold the exact influence (%)")
    left.grid()
    at = list(nominal).index(95)
    order = list(measured)[::-1]
    right.axvspan(*GOAL, color=_style.GRID_COLOUR)
    for row, title in enumerate(order):
        right.errorbar(
            measured[title][at], row, xerr=np.nan_to_num(spread[title][at]), color=_style.BLUE, marker="o", capsize=2
        )
    right.axvline(total[at], color="black", linewidth=1.2)
    right.set_yticks(range(len(order)), order)
    right.set_xlabel("coverage of the 95% interval (%)")
    right.set_xlim(right=101)
    right.grid(axis="x")
    _style.subtitle(figure, f"{spec['title']}; {len(spec['seeds'])} seed(s) of each problem")
    return figure


def _percent(entries: Any, field: str) -> np.ndarray:
    """Return mean or standard deviation of the coverage at each level, in per cent."""
    values = [getattr(entry, field) for entry in entries[: len(LEVEL_METRICS)]]
    return np.array([np.nan if value is None else 100 * value for value in values])
