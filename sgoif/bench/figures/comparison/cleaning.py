"""Test accuracy before and after cleaning: plain training beside the model that each method yields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sgoif.bench.figures import _style
from sgoif.bench.figures._data import FigureData, sgoif_datasets
from sgoif.bench.methods.registry import OURS, PLAIN
from sgoif.bench.tables.names import title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLACE = 35
TITLE = "Test accuracy before and after cleaning"
CAPTION = (
    "Plain training on the noisy labels, and training again after SG-OIF removed what it flags; small marks are the "
    "models that the other methods yield, the best of them named. Only methods whose model was trained are shown: a "
    "detector that was not retrained has none. Mean over the seeds that plain training and SG-OIF both have, of other "
    "methods those of them that they have; with several, bars hold all of them."
)
TRUSTED = "sgoif_trusted"


def subjects(config: Mapping[str, Any]) -> list[str]:
    """Return the noisy datasets with two settings or more that SG-OIF runs on."""
    return sgoif_datasets(config, n_settings=2)


def draw(dataset: str, data: FigureData) -> Figure | None:
    """Draw the figure of one dataset."""
    settings = [s for s in data.settings(dataset) if _accuracies(data, dataset, s, ())[OURS].size]
    if not settings:
        return None
    figure, grid = _style.canvas(height=0.26 * len(settings) + 0.7)
    axes = grid[0, 0]
    for row, setting in enumerate(reversed(settings)):
        _draw_row(axes, row, dataset, setting, data)
    _style.method_rows(axes, [data.setting_title(dataset, s) for s in reversed(settings)], [False] * len(settings))
    axes.set_xlabel("test accuracy (%)")
    _style.legend(figure, axes.get_legend_handles_labels()[0], columns=5)
    _style.subtitle(figure, data.title(dataset))
    return figure


def _accuracies(data: FigureData, dataset: str, setting: str, methods: Iterable[str]) -> dict[str, np.ndarray]:
    """Return method -> test accuracy in percent, one value a seed that plain training and SG-OIF both have."""
    found = {m: data.by_seed(dataset, setting, m, "test_accuracy") for m in (PLAIN, OURS, *methods)}
    seeds = sorted(found[PLAIN].keys() & found[OURS].keys())
    return {m: 100 * np.array([by_seed[seed] for seed in seeds if seed in by_seed]) for m, by_seed in found.items()}


def _draw_row(axes: Axes, row: int, dataset: str, setting: str, data: FigureData) -> None:
    """Draw one setting: an arrow from plain training to SG-OIF, the others as small marks."""
    rivals = data.rivals(dataset, "test_accuracy")
    found = _accuracies(data, dataset, setting, (*rivals, TRUSTED))
    plain, ours, trusted = (found[m] for m in (PLAIN, OURS, TRUSTED))
    way = {"arrowstyle": "-", "color": "#999999", "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (ours.mean(), row), (plain.mean(), row), arrowprops=way, zorder=1)
    others = {m: float(found[m].mean()) for m in rivals if found[m].size}
    look: dict[str, Any] = {"linestyle": "", "zorder": 2}
    axes.plot(list(others.values()), [row] * len(others), marker="|", color=_style.GREY, label="other methods", **look)
    if others:
        best = max(others, key=others.__getitem__)
        axes.plot(others[best], row, marker="D", markersize=4, color=_style.ORANGE, label="best other", **look)
        axes.annotate(
            title("noisy", best), (others[best], row), (0, -7.5), textcoords="offset points", fontsize=5.5, ha="center",
            color="#8a5f00",
        )  # fmt: skip
    if trusted.size:
        look_trusted: dict[str, Any] = {"markerfacecolor": "white", "label": title("noisy", TRUSTED)}
        axes.plot(trusted.mean(), row, marker="*", markersize=8, color="black", **look_trusted, **look)
    axes.plot(plain.mean(), row, marker="o", markersize=5, color=_style.RED, label="plain training", **look)
    _bar(axes, plain, row, _style.RED)
    _bar(axes, ours, row, "black")
    axes.plot(
        ours.mean(), row, marker="*", markersize=9, color="black", label="cleaned by SG-OIF", linestyle="", zorder=4
    )


def _bar(axes: Axes, values: np.ndarray, row: int, colour: str) -> None:
    axes.plot([values.min(), values.max()], [row, row], color=colour, linewidth=2.5, alpha=0.45, zorder=1)
