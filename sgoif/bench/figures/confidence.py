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
FROM_CURVES = True
TITLE = "Confidence and the gain in AUC-PR"
CAPTION = (
    "Left: mean confidence of the anchors at each check. Right: AUC-PR of each epoch's scores with the stability gate "
    "minus that of the other gates, seed by seed; above zero the stability gate finds more. Mean over seeds; the band "
    "holds all."
)


def subjects(config: Mapping[str, Any]) -> list[str]:
    """Return the noisy datasets that SG-OIF runs on."""
    return sgoif_datasets(config)


def draw(dataset: str, data: FigureData) -> Figure:
    """Draw the figure of one dataset."""
    setting = data.comparison_setting(dataset)
    gates = data.gate_methods(dataset)
    figure, ((left, right),) = _style.canvas(1, 2, height=3.0)
    _style.heading(figure, f"{data.title(dataset)}; {setting}")
    drawn = 0
    for gate, method in gates.items():
        x, confidence = data.traces(dataset, setting, method, "confidence")
        if len(x):
            _style.band(left, x, confidence, _style.GATE_STYLES[gate], GATES[gate], linewidth=_style.GATE_WIDTHS[gate])
            drawn += 1
    left.set_xlabel("epoch")
    left.set_ylabel("mean confidence of the anchors")
    if drawn:
        left.set_ylim(0, 1.03)
        left.grid()
        left.legend(fontsize=7)
    else:
        _style.gap(left, "no SG-OIF cell of this setting has a trace")
    right.set_xlabel("epoch")
    right.set_ylabel("AUC-PR gained (points)")
    _gains(right, {g: data.by_epoch(dataset, setting, m) for g, m in gates.items()})
    return figure


def _gains(axes: Axes, precision: dict[str, np.ndarray]) -> None:
    """Needs the same seeds and epochs with both gates, since differences are taken seed by seed."""
    ours = precision.pop("stability", np.empty((0, 0)))
    others = {g: p for g, p in precision.items() if p.shape == ours.shape and p.size}
    if not others:
        _style.gap(axes, "no other gate was run with the same seeds")
        return
    for gate, theirs in others.items():
        x = np.arange(1, ours.shape[1] + 1)
        _style.band(axes, x, 100 * (ours - theirs), _style.GATE_STYLES[gate], f"over {GATES[gate]}")
    axes.axhline(0, color="#555555", linewidth=0.8)
    axes.grid()
    axes.legend(fontsize=7)
