"""Dependence on the seed: standard deviation of the final AUC-PR of every method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sgoif.bench.figures import _style
from sgoif.bench.figures._data import RANDOM, FigureData, sgoif_datasets
from sgoif.bench.methods.registry import OURS, is_variant
from sgoif.bench.tables.names import title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLACE = 70
TITLE = "How much the result depends on the seed"
CAPTION = (
    "Standard deviation over seeds of the final AUC-PR (log scale), a small mark for each setting in which SG-OIF and "
    "the method have two seeds or more, and a large one at their median, least at the top. The seed changes the "
    "initial network, the order of the examples and, where noise is sampled, the wrong labels. In brackets: the number "
    "of settings."
)
LEAST = 0.01  # points; smaller deviations are drawn here


def subjects(config: Mapping[str, Any]) -> list[str]:
    """Return the noisy datasets that SG-OIF runs on with two seeds or more."""
    return [name for name in sgoif_datasets(config) if len(config["noisy"][name]["seeds"]) > 1]


def draw(dataset: str, data: FigureData) -> Figure | None:
    """Draw the figure of one dataset."""
    spec = data.config["noisy"][dataset]
    gates = data.gate_methods(dataset).values()
    methods = [m for m in spec["methods"] if m != RANDOM and (m in gates or not is_variant(m))]
    found = deviations(data, dataset, methods)
    if OURS not in found or len(found) < 2:
        return None
    order = sorted(found, key=lambda m: -np.median(found[m]))
    figure, grid = _style.canvas(height=0.21 * len(order) + 0.8)
    axes = grid[0, 0]
    for row, method in enumerate(order):
        colour = "black" if method == OURS else _style.BLUE
        points = np.maximum(found[method], LEAST)
        axes.plot(points, [row] * len(points), linestyle="", marker="o", color=colour, alpha=0.35, markersize=3)
        axes.plot(np.median(points), row, marker="D", markersize=5.5, color=colour)
    names = [f"{title('noisy', m)} ({len(found[m])})" for m in order]
    _style.method_rows(axes, names, [m == OURS for m in order])
    _style.logarithmic(axes, "x")
    axes.set_xlabel("standard deviation of AUC-PR over seeds (points)")
    _style.subtitle(figure, data.title(dataset))
    return figure


def deviations(data: FigureData, dataset: str, methods: Sequence[str]) -> dict[str, list[float]]:
    """Return standard deviations over seeds (n - 1), in points, by method.

    Only settings count in which SG-OIF and the method have two seeds or more; methods without any are left out.
    """
    settings = [s for s in data.config["noisy"][dataset]["settings"] if len(data.by_seed(dataset, s, OURS)) > 1]
    found = {}
    for method in methods:
        by_setting = [list(data.by_seed(dataset, setting, method).values()) for setting in settings]
        found[method] = [100 * float(np.std(values, ddof=1)) for values in by_setting if len(values) > 1]
    return {method: values for method, values in found.items() if values}
