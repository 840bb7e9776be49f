"""Estimated against true share of wrong labels, one mark for each setting and seed."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sgoif.bench.figures import _labels, _style
from sgoif.bench.figures._data import FigureData, sgoif_datasets
from sgoif.bench.methods.registry import OURS
from sgoif.bench.tables.names import title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLACE = 47
TITLE = "How many labels are wrong: estimated against true"
CAPTION = (
    "Share of labels that a method holds for wrong against the share that is wrong, a mark for each setting and seed; "
    "on the line the estimate is right. SG-OIF without and with clean labels; pale crosses: what the other methods' "
    "own rules would remove. Settings in which a mark of SG-OIF is more than five points off are named at the furthest "
    "one, at most ten settings."
)
MAX_NAME = 54  # letters of a name
MAX_NAMED = 10  # settings, those that are furthest off
FAR_OFF = 5.0  # points from which a setting is named
NAME_WIDTH = 0.058  # inches of a letter
TRUSTED = "sgoif_trusted"


def subjects(config: Mapping[str, Any]) -> list[str]:
    """Return the noisy datasets with two settings or more that SG-OIF runs on."""
    return sgoif_datasets(config, n_settings=2)


def draw(dataset: str, data: FigureData) -> Figure | None:
    """Draw the figure of one dataset."""
    rates = {s: 100 * rate for s in data.settings(dataset) if (rate := data.base_rate(dataset, s)) is not None}
    ours = {s: values for s in rates if len(values := estimates(data, dataset, s, OURS))}
    if len(ours) < 2:
        return None
    figure, grid = _style.canvas(height=3.6)
    axes = grid[0, 0]
    top = 0.0
    for method, style in (*((m, None) for m in data.rivals(dataset, "removal_count_error")), (TRUSTED, ""), (OURS, "")):
        points = [(rates[s], v) for s in rates for v in estimates(data, dataset, s, method)]
        if points:
            x, y = zip(*points, strict=True)
            axes.scatter(x, y, **_look(method, style is None))
            top = max(top, *y)
    end = max(max(rates.values()), top) * 1.03
    axes.plot([0, end], [0, end], color=_style.GREY, linewidth=1, linestyle=":")
    axes.set_ylim(0, min(100.0, end))
    axes.set_xlabel("labels that are wrong (%)")
    axes.set_ylabel("labels held for wrong (%)")
    axes.grid()
    _style.legend(figure, axes.get_legend_handles_labels()[0])
    _style.subtitle(figure, data.title(dataset))
    furthest = {s: furthest_from(rates[s], values) for s, values in ours.items()}
    off = {s: abs(value - rates[s]) for s, value in furthest.items()}
    far = sorted((s for s in off if off[s] > FAR_OFF), key=lambda s: -off[s])[:MAX_NAMED]
    named = {
        textwrap.shorten(data.setting_title(dataset, s), MAX_NAME, placeholder=" …", break_on_hyphens=False): (
            rates[s],
            furthest[s],
        )
        for s in far
    }
    room = (NAME_WIDTH * max(map(len, named), default=0) + 0.3) / (_style.FIGURE_WIDTH - 0.6)  # share of the width
    axes.set_xlim(0, max(rates.values()) * 1.04 / (1 - room))
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= max(rates.values()) + FAR_OFF])
    _style.lay_out(figure)
    _labels.beside(axes, named, {}, distance=0.03)
    return figure


def furthest_from(rate: float, values: np.ndarray) -> float:
    """Return the value furthest from the true rate."""
    return float(values[np.abs(values - rate).argmax()])


def estimates(data: FigureData, dataset: str, setting: str, method: str) -> np.ndarray:
    """Return the share of labels in percent that a method holds for wrong, one value a seed; may be empty.

    SG-OIF says it; of other methods it is what their rule removes.
    """
    said = data.by_seed(dataset, setting, method, "extra:estimated_noise")
    rate = data.base_rate(dataset, setting)
    if said or rate is None:
        return 100 * np.array(list(said.values()))
    errors = data.by_seed(dataset, setting, method, "removal_count_error")
    return 100 * rate * (1 + np.array(list(errors.values())))


def _look(method: str, is_other: bool) -> dict[str, Any]:
    if is_other:
        return {"marker": "x", "s": 14, "color": _style.PALE, "linewidths": 0.9, "label": "other methods", "zorder": 2}
    if method == OURS:
        return {"marker": "*", "s": 60, "color": "black", "label": title("noisy", OURS), "linewidths": 0, "zorder": 4}
    hollow = {"facecolors": "white", "edgecolors": _style.BLUE, "linewidths": 1}
    return {"marker": "o", "s": 26, "label": title("noisy", method), "zorder": 3, **hollow}
