"""Residual and AUC-PR over training under each kind of gate: two axes, as in the paper's figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sgoif.bench.figures import _style
from sgoif.bench.figures._data import GATES, FigureData, sgoif_datasets

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLACE = 50
FROM_CURVES = True
TITLE = "Residual convergence and AUC-PR under gating"
CAPTION = (
    "SG-OIF with its stability gate, with a moving-average gate and without a gate. Left axis, lines: relative "
    "residual of the anchors' inverse-curvature directions at each check (log scale). Right axis, large marks: AUC-PR "
    "of the scores of each epoch. Mean over seeds; the band holds all seeds."
)


def subjects(config: Mapping[str, Any]) -> list[str]:
    """Return the noisy datasets that SG-OIF runs on."""
    return sgoif_datasets(config)


def draw(dataset: str, data: FigureData) -> Figure:
    """Draw the figure of one dataset."""
    setting = data.comparison_setting(dataset)
    figure, grid = _style.canvas(height=3.4)
    left = grid[0, 0]
    right = left.twinx()
    right.spines["right"].set_visible(True)
    _style.heading(figure, f"{data.title(dataset)}; {setting}")
    drawn = 0
    for gate, method in data.gate_methods(dataset).items():
        colour, dashes, marker = _style.GATE_STYLES[gate]
        x, residual = data.traces(dataset, setting, method, "residual")
        if len(x):
            style = (colour, dashes, None)
            label = f"{GATES[gate]}: residual{_style.diverged(residual)}"
            _style.band(left, x, residual, style, label, linewidth=_style.GATE_WIDTHS[gate])
        precision = data.by_epoch(dataset, setting, method)
        if precision.size:
            epochs = np.arange(1, precision.shape[1] + 1)
            look = {
                "linewidth": 0.8,
                "markersize": _style.GATE_MARKS[gate] + 2.5,
                "markevery": 1,
                "markeredgecolor": "white",
            }
            _style.band(right, epochs, 100 * precision, (colour, dashes, marker), f"{GATES[gate]}: AUC-PR", **look)
        drawn += bool(len(x) or precision.size)
    left.set_xlabel("epoch")
    left.set_ylabel("relative residual (lines)")
    right.set_ylabel("AUC-PR by epoch, % (marks)")
    if not drawn:
        right.set_yticks([])
        _style.gap(left, "no SG-OIF cell of this run has traces or scores by epoch")
        return figure
    _style.logarithmic(left)
    handles = [h for axes in (left, right) for h in axes.get_legend_handles_labels()[0]]
    missing = [words for gate, words in GATES.items() if gate not in data.gate_methods(dataset)]
    title = f"not run: {', '.join(missing)}" if missing else None
    figure.legend(handles=handles, loc="outside lower center", ncols=min(3, len(handles)), fontsize=7.5, title=title)
    return figure
