"""Residual and AUC-PR over training under each kind of gate: two axes, as in the paper's figure."""

import numpy as np

from sgoif.bench.figures import _style as draws
from sgoif.bench.figures._data import GATES, Evidence, watched

PLACE = 50
FROM_CURVES = True
TITLE = "Residual convergence and AUC-PR under gating"
CAPTION = (
    "SG-OIF with its stability gate, with a moving-average gate and without a gate. Left axis, lines: relative "
    "residual of the anchors' inverse-curvature directions at each check (log scale). Right axis, large marks: AUC-PR "
    "of the scores of each epoch. Mean over seeds; the band holds all seeds."
)


def subjects(config) -> list[str]:
    return watched(config)


def draw(dataset: str, evidence: Evidence):
    setting = evidence.compared(dataset)
    figure, grid = draws.canvas(height=3.4)
    left = grid[0, 0]
    right = left.twinx()
    right.spines["right"].set_visible(True)
    draws.heading(figure, f"{evidence.title(dataset)}; {setting}")
    drawn = 0
    for gate, method in evidence.gated(dataset).items():
        colour, dashes, marker = draws.GATE_STYLES[gate]
        x, residual = evidence.traces(dataset, setting, method, "residual")
        if len(x):
            style = (colour, dashes, None)
            label = f"{GATES[gate]}: residual{draws.diverged(residual)}"
            draws.band(left, x, residual, style, label, linewidth=draws.GATE_WIDTHS[gate])
        precision = evidence.by_epoch(dataset, setting, method)
        if precision.size:
            epochs = np.arange(1, precision.shape[1] + 1)
            look = {
                "linewidth": 0.8,
                "markersize": draws.GATE_MARKS[gate] + 2.5,
                "markevery": 1,
                "markeredgecolor": "white",
            }
            draws.band(right, epochs, 100 * precision, (colour, dashes, marker), f"{GATES[gate]}: AUC-PR", **look)
        drawn += bool(len(x) or precision.size)
    left.set_xlabel("epoch")
    left.set_ylabel("relative residual (lines)")
    right.set_ylabel("AUC-PR by epoch, % (marks)")
    if not drawn:
        right.set_yticks([])
        draws.gap(left, "no SG-OIF cell of this run has traces or scores by epoch")
        return figure
    draws.logarithmic(left)
    handles = [h for axes in (left, right) for h in axes.get_legend_handles_labels()[0]]
    missing = [words for gate, words in GATES.items() if gate not in evidence.gated(dataset)]
    title = f"not run: {', '.join(missing)}" if missing else None
    figure.legend(handles=handles, loc="outside lower center", ncols=min(3, len(handles)), fontsize=7.5, title=title)
    return figure
