"""Effect of the gate: the residual of every seed against its tolerance, and the final AUC-PR."""

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

PLACE = 60
FROM_CURVES = True
TITLE = "Effectiveness of gating"
CAPTION = (
    "SG-OIF with each kind of gate. Left: relative residual at each check, one line per seed; grey: the tolerance of "
    "the stability gate (mean over seeds). Right: AUC-PR of the final scores with each kind of gate beside the other "
    "detectors of the same setting; a mark per seed, a bar at their mean."
)
N_OTHERS = 5  # the best other detectors that are shown beside the gates


def subjects(config: Mapping[str, Any]) -> list[str]:
    """Return the noisy datasets that SG-OIF runs on."""
    return sgoif_datasets(config)


def draw(dataset: str, data: FigureData) -> Figure:
    """Draw the figure of one dataset."""
    setting = data.comparison_setting(dataset)
    gates = data.gate_methods(dataset)
    figure, ((left, right),) = _style.canvas(1, 2, height=3.4)
    _style.heading(figure, f"{data.title(dataset)}; {setting}")
    _residuals(left, {g: data.traces(dataset, setting, m, "residual") for g, m in gates.items()})
    epochs, tolerance = data.traces(dataset, setting, gates.get("stability", ""), "tolerance")
    if tolerance.size:
        left.plot(epochs, tolerance.mean(0), color="#999999", linewidth=2.5, alpha=0.7, label="tolerance", zorder=1)
    handles, labels = left.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower left", ncols=2, fontsize=7.5)
    _final_scores(right, _scores(dataset, setting, data), {m: g for g, m in gates.items()})
    return figure


def _scores(dataset: str, setting: str, data: FigureData) -> dict[str, np.ndarray]:
    """Method -> final AUC-PR of its seeds: SG-OIF with each gate, then the best other detectors."""
    gated = list(data.gate_methods(dataset).values())
    others = [m for m in data.config["noisy"][dataset]["methods"] if not is_variant(m) and m not in gated]
    values = {m: np.array(list(data.by_seed(dataset, setting, m).values())) for m in [*gated, *others]}
    values = {m: v for m, v in values.items() if len(v)}
    best = sorted((m for m in values if m not in gated), key=lambda m: -np.mean(values[m]))[:N_OTHERS]
    return {m: values[m] for m in [*(m for m in gated if m in values), *best]}


def _residuals(axes: Axes, found: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """Draw the residual of every seed; `found`: gate -> epochs [checks] and values [seeds, checks]."""
    axes.set_xlabel("epoch")
    axes.set_ylabel("relative residual")
    axes.set_title("residual, a line per seed", loc="left")
    if not any(values.size for _, values in found.values()):
        _style.gap(axes, "no SG-OIF cell of this setting has a trace")
        return
    for gate, (x, values) in found.items():
        colour, dashes, _ = _style.GATE_STYLES[gate]
        for i, line in enumerate(np.where(np.isfinite(values), values, np.nan)):
            label = f"{GATES[gate]}{_style.diverged(values)}" if i == 0 else None
            axes.plot(x, line, color=colour, linestyle=dashes, linewidth=_style.GATE_WIDTHS[gate] / 1.6, label=label)
    _style.logarithmic(axes)
    axes.grid()


def _final_scores(axes: Axes, scores: Mapping[str, np.ndarray], gate_of: Mapping[str, str]) -> None:
    """Draw a row per method, from the top: a mark per seed and a bar at their mean."""
    from_below = list(scores)[::-1]
    for row, method in enumerate(from_below):
        colour, marker = _style.colour_and_marker(gate_of.get(method))
        points = 100 * scores[method]
        axes.plot(points, [row] * len(points), linestyle="", marker=marker, color=colour, markersize=5, alpha=0.8)
        axes.plot([points.mean()] * 2, [row - 0.3, row + 0.3], color=colour, linewidth=2)
    axes.set_xlabel("final AUC-PR (%)")
    if not scores:
        _style.gap(axes, "no detector has scores in this setting")
        return
    axes.set_yticks(range(len(scores)), [GATES[gate_of[m]] if m in gate_of else _style.name_of(m) for m in from_below])
    axes.grid(axis="x")
    axes.set_title("a mark per seed", loc="left")
