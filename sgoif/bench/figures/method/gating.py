"""Effect of the gate: the residual against its tolerance, and the final AUC-PR."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sgoif.bench.figures import _style
from sgoif.bench.figures._data import GATES, FigureData, sgoif_datasets
from sgoif.bench.tables.names import title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLACE = 60
TITLE = "What the gate changes"
CAPTION = (
    "SG-OIF with each kind of gate. Residual at each check: mean over seeds, with several a band that holds all. "
    "Grey: the tolerance of the stability gate, which follows learning rate, gradient and curvature; the confidence "
    "of an anchor falls from 1 to 0 as its residual grows to the tolerance. That of the moving-average gate is twice "
    "a moving average of the residual. AUC-PR of the final scores beside the best other detectors; a mark for each "
    "seed, a bar at the mean."
)
MIN_SPAN = 1.0  # points of AUC-PR that the axis shows at least: smaller differences shall look small
N_OTHERS = 5  # the best other detectors that are shown beside the gates


def subjects(config: Mapping[str, Any]) -> list[str]:
    """Return the noisy datasets that SG-OIF runs on."""
    return sgoif_datasets(config)


def draw(dataset: str, data: FigureData) -> Figure | None:
    """Draw the figure of one dataset."""
    setting = data.comparison_setting(dataset)
    gates = data.gate_methods(dataset)
    residuals = data.gate_traces(dataset, setting, "residual")
    scores = _scores(dataset, setting, data)
    if sum(method in scores for method in gates.values()) < 2:
        return None
    figure, grid = _style.canvas(1, 2 if residuals else 1, height=2.9)
    if residuals:
        _residuals(grid[0, 0], residuals)
        epochs, tolerance = data.traces(dataset, setting, gates.get("stability", ""), "tolerance")
        if tolerance.size:
            look: dict[str, Any] = {"color": "#999999", "linewidth": 2.5, "alpha": 0.7, "zorder": 1}
            grid[0, 0].plot(epochs, tolerance.mean(0), label="tolerance of the stability gate", **look)
        _style.legend(figure, grid[0, 0].get_legend_handles_labels()[0], columns=2)
    _final_scores(grid[0, -1], scores, {m: g for g, m in gates.items()})
    _style.subtitle(figure, f"{data.title(dataset)}; {data.setting_title(dataset, setting)}")
    return figure


def _scores(dataset: str, setting: str, data: FigureData) -> dict[str, np.ndarray]:
    """Method -> final AUC-PR of its seeds: SG-OIF with each gate, then the best other detectors."""
    gated = list(data.gate_methods(dataset).values())
    others = [m for m in data.rivals(dataset, "auc_pr") if m not in gated]
    values = {m: np.array(list(data.by_seed(dataset, setting, m).values())) for m in [*gated, *others]}
    values = {m: v for m, v in values.items() if len(v)}
    best = sorted((m for m in values if m not in gated), key=lambda m: -np.mean(values[m]))[:N_OTHERS]
    return {m: values[m] for m in [*(m for m in gated if m in values), *best]}


def _residuals(axes: Axes, found: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """Draw the residuals; `found`: gate -> epochs [checks] and values [seeds, checks]."""
    for gate, (x, values) in found.items():
        colour, dashes, _ = _style.GATE_STYLES[gate]
        label = f"{GATES[gate]}{_style.diverged(values)}"
        _style.band(axes, x, values, (colour, dashes, None), label, linewidth=_style.GATE_WIDTHS[gate])
    _style.logarithmic(axes)
    _style.epoch_axis(axes)
    axes.set_ylabel("relative residual")
    axes.grid()


def _final_scores(axes: Axes, scores: Mapping[str, np.ndarray], gate_of: Mapping[str, str]) -> None:
    """Draw a row per method, from the top: a mark per seed and a bar at their mean."""
    from_below = list(scores)[::-1]
    for row, method in enumerate(from_below):
        gate = gate_of.get(method)
        colour, _, marker = _style.GATE_STYLES[gate] if gate else (_style.GREY, "-", "D")
        points = 100 * scores[method]
        axes.plot(points, [row] * len(points), linestyle="", marker=marker, color=colour, markersize=5, alpha=0.8)
        axes.plot([points.mean()] * 2, [row - 0.3, row + 0.3], color=colour, linewidth=2)
    names = [f"SG-OIF, {GATES[gate_of[m]]}" if m in gate_of else title("noisy", m) for m in from_below]
    _style.method_rows(axes, names, [m in gate_of for m in from_below])
    low, high = axes.get_xlim()
    missing = max(0.0, MIN_SPAN - (high - low))
    end = min(100 + MIN_SPAN / 20, high + missing / 2)
    axes.set_xlim(min(low, end - max(MIN_SPAN, high - low)), end)
    axes.set_xlabel("final AUC-PR (%), a mark for each seed")
