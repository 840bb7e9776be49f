"""Reliability diagram: how often a label is wrong that SG-OIF holds for wrong with a given probability."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sgoif.bench.figures import _style
from sgoif.bench.figures._data import FigureData, sgoif_datasets

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLACE = 85
TITLE = "Can the probabilities be trusted?"
CAPTION = (
    "Left: share of wrong labels among examples of about the same probability of being wrong (SG-OIF's class model),"
    " one thin line for each setting, thick over all settings, points of 20 examples or more; on the diagonal a "
    "probability means what it says, below it the method is too sure. Right: how many examples have which probability. "
    "All seeds together."
)


FEW = 20  # examples below which a share says little


def subjects(config: Mapping[str, Any]) -> list[str]:
    """Return the noisy datasets that SG-OIF runs on."""
    return sgoif_datasets(config)


def draw(dataset: str, data: FigureData) -> Figure | None:
    """Draw the figure of one dataset."""
    found = data.curves(dataset)["reliability"]
    if not found:
        return None
    counts = {one["setting"]: np.array(one["count"], dtype=np.float64) for one in found}
    wrong = {one["setting"]: np.array(one["wrong"], dtype=np.float64) for one in found}
    said = {one["setting"]: np.array(one["probability"], dtype=np.float64) for one in found}
    figure, grid = _style.canvas(1, 2, height=2.9, width_ratios=(1.2, 1))
    left, right = grid[0]
    for setting in counts:
        look = {"color": _style.PALE, "linewidth": 0.9, "marker": ".", "markersize": 3}
        _line(left, said[setting], wrong[setting], counts[setting], **look)
    total = np.sum(list(counts.values()), 0)
    mean_said = _over(np.sum([said[s] * counts[s] for s in counts], 0), total)
    mean_wrong = _over(np.sum([wrong[s] * counts[s] for s in counts], 0), total)
    _line(left, mean_said, mean_wrong, total, color="black", linewidth=2, marker="o", markersize=4)
    left.plot([0, 100], [0, 100], color=_style.GREY, linewidth=1, linestyle=":")
    left.set_xlabel("probability of being wrong (%)")
    left.set_ylabel("of these wrong (%)")
    left.grid()
    error = float((total * np.abs(np.nan_to_num(mean_said) - np.nan_to_num(mean_wrong))).sum() / total.sum())
    left.set_title(f"expected calibration error {100 * error:.1f} points")
    edges = np.linspace(0, 100, len(total) + 1)
    right.bar(
        edges[:-1], 100 * total / total.sum(), width=np.diff(edges), align="edge", color=_style.SKY, edgecolor="white"
    )
    right.set_yscale("log")
    right.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    right.set_xlabel("probability of being wrong (%)")
    right.set_ylabel("examples (%, log scale)")
    _style.subtitle(figure, f"{data.title(dataset)}; {len(counts)} settings")
    return figure


def _over(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Means, not a number where nothing was counted."""
    return np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)


def _line(axes: Axes, said: np.ndarray, wrong: np.ndarray, counts: np.ndarray, **look: Any) -> None:
    """Draw the shares of the bins that hold enough examples."""
    there = counts >= FEW
    axes.plot(100 * said[there], 100 * wrong[there], **look)
