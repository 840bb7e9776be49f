"""Dependence on the seed: of the residual along training, and of the final AUC-PR."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sgoif.bench.figures import _style
from sgoif.bench.figures._data import GATES, FigureData, sgoif_datasets
from sgoif.bench.methods.registry import is_variant

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLACE = 70
FROM_CURVES = True
TITLE = "Reproducibility over seeds"
CAPTION = (
    "SG-OIF with each kind of gate, and the other detectors. Left: standard deviation over seeds of the relative "
    "residual at each check, in one setting. Right: standard deviation over seeds of the final AUC-PR, a mark per "
    "setting and a bar at their mean, least at the top. The seed changes the initial network and the order of the "
    "examples, not the wrong labels."
)


def subjects(config: Mapping[str, Any]) -> list[str]:
    """Return the noisy datasets that SG-OIF runs on."""
    return sgoif_datasets(config)


def draw(dataset: str, data: FigureData) -> Figure:
    """Draw the figure of one dataset."""
    setting = data.comparison_setting(dataset)
    gates = data.gate_methods(dataset)
    spec = data.config["noisy"][dataset]
    methods = [*gates.values(), *(m for m in spec["methods"] if not is_variant(m) and m not in gates.values())]
    found = {m: _deviations(data, dataset, m) for m in methods}
    found = {m: v for m, v in found.items() if v}
    figure, ((left, right),) = _style.canvas(1, 2, height=0.19 * max(8, len(found)) + 1.4)
    _style.heading(figure, f"{data.title(dataset)}; {len(spec['seeds'])} seeds")
    left.set_xlabel("epoch")
    left.set_ylabel("deviation of the residual")
    left.set_title(f"{setting}", loc="left")
    drawn = [_residual(left, gate, *data.traces(dataset, setting, m, "residual")) for gate, m in gates.items()]
    if any(drawn):
        _style.logarithmic(left)
        left.grid()
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower left", ncols=3, fontsize=7.5)
    else:
        _style.gap(left, "no SG-OIF cell of this setting has a trace of two seeds")
    right.set_xlabel("deviation of AUC-PR (points)")
    if found:
        _final_deviations(right, found, {m: g for g, m in gates.items()})
    else:
        _style.gap(right, "no detector has two seeds in any setting")
    return figure


def _final_deviations(axes: Axes, found: Mapping[str, list[float]], gate_of: Mapping[str, str]) -> None:
    """Draw a row per method, least deviation at the top: a mark per setting and a bar at their mean."""
    order = sorted(found, key=lambda m: -np.mean(found[m]))
    for row, method in enumerate(order):
        colour, marker = _style.colour_and_marker(gate_of.get(method))
        points = found[method]
        axes.plot(points, [row] * len(points), linestyle="", marker=marker, color=colour, alpha=0.6, markersize=4)
        axes.plot([np.mean(points)] * 2, [row - 0.35, row + 0.35], color=colour, linewidth=2)
    titles = [GATES[gate_of[m]] if m in gate_of else _style.name_of(m) for m in order]
    axes.set_yticks(range(len(order)), titles, fontsize=7.5)
    axes.set_xlim(left=0)
    axes.grid(axis="x")
    axes.set_title("a mark per setting", loc="left")


def _deviations(data: FigureData, dataset: str, method: str) -> list[float]:
    """Standard deviation over seeds (n - 1), in points, for each setting with two seeds or more."""
    settings = data.config["noisy"][dataset]["settings"]
    values = [list(data.by_seed(dataset, s, method).values()) for s in settings]
    return [100 * float(np.std(v, ddof=1)) for v in values if len(v) > 1]


def _residual(axes: Axes, gate: str, x: np.ndarray, values: np.ndarray) -> bool:
    """Draw the deviation over seeds of one gate; False if it has fewer than two seeds."""
    if len(values) < 2:
        return False
    colour, dashes, marker = _style.GATE_STYLES[gate]
    finite = np.isfinite(values).all(0)
    deviation = np.full(len(x), np.nan)
    deviation[finite] = values[:, finite].std(0, ddof=1)
    axes.plot(
        x,
        deviation,
        color=colour,
        linestyle=dashes,
        marker=marker,
        markersize=_style.GATE_MARKS[gate],
        linewidth=_style.GATE_WIDTHS[gate],
        markevery=max(1, len(x) // 8),
        label=GATES[gate] + _style.diverged(values),
    )
    return True
