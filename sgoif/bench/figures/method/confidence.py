"""Confidence of the anchors over training, and the AUC-PR that the stability gate gains over the other gates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sgoif.bench.figures import _style
from sgoif.bench.figures._data import GATES, FigureData, sgoif_datasets

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLACE = 80
TITLE = "Confidence of the anchors, and what the gate gains"
CAPTION = (
    "Left: mean confidence of the anchors at each check; mean over seeds, with several a band that holds all. Right: "
    "final AUC-PR with the stability gate minus that with the other gates, a mark for each seed and setting and a bar "
    "at their mean; right of zero the stability gate finds more."
)


def subjects(config: Mapping[str, Any]) -> list[str]:
    """Return the noisy datasets that SG-OIF runs on."""
    return sgoif_datasets(config)


def draw(dataset: str, data: FigureData) -> Figure | None:
    """Draw the figure of one dataset."""
    setting = data.comparison_setting(dataset)
    gates = data.gate_methods(dataset)
    traces = data.gate_traces(dataset, setting, "confidence")
    gains = {g: found for g, m in gates.items() if g != "stability" and len(found := _gains(data, dataset, m))}
    panels = [found for found in (traces, gains) if found]
    if len(traces) < 2:  # the confidence of one gate has nothing to be compared with
        return None
    figure, grid = _style.canvas(1, len(panels), height=2.6)
    _draw_confidence(grid[0, 0], traces)
    if gains:
        _draw_gains(grid[0, 1], gains)
    _style.subtitle(figure, f"{data.title(dataset)}; {data.setting_title(dataset, setting)}")
    return figure


def _gains(data: FigureData, dataset: str, other: str) -> np.ndarray:
    """Final AUC-PR with the stability gate minus that of another, in points, setting by setting and seed by seed."""
    ours = data.gate_methods(dataset).get("stability", "")
    found = []
    for setting in data.config["noisy"][dataset]["settings"]:
        mine, theirs = (data.by_seed(dataset, setting, m) for m in (ours, other))
        found += [100 * (mine[seed] - theirs[seed]) for seed in mine if seed in theirs]
    return np.array(found)


def _draw_confidence(axes: Axes, traces: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
    for gate, (x, values) in traces.items():
        _style.band(axes, x, values, _style.GATE_STYLES[gate], GATES[gate], linewidth=_style.GATE_WIDTHS[gate])
    _style.epoch_axis(axes)
    axes.set_ylabel("mean confidence of the anchors")
    finite = [values[np.isfinite(values)] for _, values in traces.values()]
    low = min((float(v.min()) for v in finite if v.size), default=0.0)
    axes.set_ylim(max(0.0, low - 0.1), 1.01)
    axes.grid()
    axes.legend()


def _draw_gains(axes: Axes, gains: Mapping[str, np.ndarray]) -> None:
    order = list(gains)[::-1]
    for row, gate in enumerate(order):
        colour, _, marker = _style.GATE_STYLES[gate]
        values = gains[gate]
        axes.plot(values, [row] * len(values), linestyle="", marker=marker, color=colour, alpha=0.7)
        axes.plot([values.mean()] * 2, [row - 0.25, row + 0.25], color=colour, linewidth=2)
        axes.text(
            values.mean(), row + 0.3, f"{values.mean():+.2f}", ha="center", va="bottom", fontsize=7.5, color=colour
        )
    axes.axvline(0, color="#555555", linewidth=0.8)
    _style.method_rows(axes, [f"over {GATES[g]}" for g in order], [False] * len(order))
    axes.set_xlabel("final AUC-PR gained (points)")
