"""Residual and AUC-PR over training under each kind of gate, a panel for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sgoif.bench.figures import _style
from sgoif.bench.figures._data import GATES, FigureData, sgoif_datasets

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLACE = 50
TITLE = "SG-OIF over training"
CAPTION = (
    "SG-OIF with its stability gate, with a moving-average gate (its tolerance is twice a moving average of the "
    "residual) and without a gate. Residual: relative residual of the anchors' inverse-curvature directions at each "
    "check (log scale), where the run kept it. AUC-PR: of the scores of each epoch alone. Mean over seeds; with "
    "several, a band holds all of them. A run without the other gates shows the stability gate alone."
)


def subjects(config: Mapping[str, Any]) -> list[str]:
    """Return the noisy datasets that SG-OIF runs on."""
    return sgoif_datasets(config)


def draw(dataset: str, data: FigureData) -> Figure | None:
    """Draw the figure of one dataset."""
    setting = data.comparison_setting(dataset)
    gates = data.gate_methods(dataset)
    residuals = data.gate_traces(dataset, setting, "residual")
    precision = {g: p for g, m in gates.items() if (p := data.by_epoch(dataset, setting, m)).size}
    panels = [kind for kind, found in (("residual", residuals), ("precision", precision)) if found]
    if not panels:
        return None
    figure, grid = _style.canvas(1, len(panels), height=2.6)
    for axes, kind in zip(grid[0], panels, strict=True):
        if kind == "residual":
            _draw_residuals(axes, residuals)
        else:
            _draw_precision(axes, precision)
        _style.epoch_axis(axes)
        axes.grid()
    if len(gates) > 1:
        _style.legend(figure, grid[0, 0].get_legend_handles_labels()[0], columns=3)
    _style.subtitle(figure, f"{data.title(dataset)}; {data.setting_title(dataset, setting)}")
    return figure


def _draw_residuals(axes: Axes, found: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
    for gate, (x, residual) in found.items():
        colour, dashes, _ = _style.GATE_STYLES[gate]
        label = f"{GATES[gate]}{_style.diverged(residual)}"
        _style.band(axes, x, residual, (colour, dashes, None), label, linewidth=_style.GATE_WIDTHS[gate])
    _style.logarithmic(axes)
    axes.set_ylabel("relative residual")


def _draw_precision(axes: Axes, found: Mapping[str, np.ndarray]) -> None:
    for gate, precision in found.items():
        epochs = np.arange(1, precision.shape[1] + 1)
        width = {"linewidth": _style.GATE_WIDTHS[gate]}
        _style.band(axes, epochs, 100 * precision, _style.GATE_STYLES[gate], GATES[gate], **width)
    axes.set_ylabel("AUC-PR of an epoch's scores (%)")
