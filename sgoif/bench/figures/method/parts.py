"""AUC-PR of the parts of SG-OIF's ranking by setting: the influence alone, the class model alone, and the whole."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sgoif.bench.figures import _style
from sgoif.bench.figures._data import FigureData, sgoif_datasets
from sgoif.bench.methods.registry import OURS
from sgoif.bench.tables.names import title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLACE = 45
TITLE = "Parts of SG-OIF's ranking"
CAPTION = (
    "AUC-PR of three rankings of one training run in every setting: the influence score alone (the paper's part), the "
    "log-odds of the class model alone (not in the paper), and SG-OIF, which ranks by both and by margins. Orange: of "
    "the methods that are not given all clean labels the one that is most ahead of SG-OIF, or least behind, by name; "
    "(all): scored over all of training. A row is the mean over the seeds that SG-OIF and that method both have; with "
    'several, bars hold all of them. "1 seed" stands where the method lacks seeds that SG-OIF has.'
)
SHORT_NAMES = {"mean margin (AUM)": "AUM", "Dataset Cartography": "Cartography", ", all of training": " (all)"}
PARTS = {  # variant of the score -> words, colour and marker
    "influence": ("influence alone", _style.GREEN, "^"),
    "latent": ("class model alone", _style.SKY, "s"),
    "": ("SG-OIF", "black", "*"),
}


def subjects(config: Mapping[str, Any]) -> list[str]:
    """Return the noisy datasets with two settings or more that SG-OIF runs on."""
    return sgoif_datasets(config, n_settings=2)


def draw(dataset: str, data: FigureData) -> Figure | None:
    """Draw the figure of one dataset."""
    settings = [
        s for s in data.settings(dataset) if all(data.by_seed(dataset, s, OURS, variant=part) for part in PARTS)
    ]
    if not settings:
        return None
    figure, grid = _style.canvas(height=0.26 * len(settings) + 0.7)
    axes = grid[0, 0]
    rows = settings[::-1]
    best = {s: _best_other(data, dataset, s) for s in rows}
    found = {s: {part: _values(data, dataset, s, part, best[s]) for part in PARTS} for s in rows}
    lowest = min(float(values.min()) for parts in found.values() for values in parts.values())
    low = min(95.0, 5.0 * math.floor(lowest / 5))
    for row, setting in enumerate(rows):
        _draw_parts(axes, row, found[setting])
        if other := best[setting]:
            _draw_best_other(axes, row, low, float(found[setting][""].mean()), other)
    _style.method_rows(axes, [data.setting_title(dataset, s) for s in rows], [False] * len(rows))
    axes.set_xlim(low, 100 + 0.01 * (100 - low))
    axes.set_xlabel("AUC-PR (%)")
    _style.legend(figure, axes.get_legend_handles_labels()[0])
    _style.subtitle(figure, data.title(dataset))
    return figure


@dataclass(frozen=True)
class _Other:
    """A method and its AUC-PR in percent.

    Attributes:
        method: Name of the method.
        value: Mean over the seeds that it shares with SG-OIF.
        seeds: These seeds.
        lacks_seeds: Whether SG-OIF has others.
    """

    method: str
    value: float
    seeds: frozenset[int]
    lacks_seeds: bool


def _values(data: FigureData, dataset: str, setting: str, part: str, best: _Other | None) -> np.ndarray:
    """AUC-PR in percent of a part of the ranking, one value a seed that the best other method has, too."""
    found = data.by_seed(dataset, setting, OURS, variant=part)
    return 100 * np.array([value for seed, value in found.items() if best is None or seed in best.seeds])


def _best_other(data: FigureData, dataset: str, setting: str) -> _Other | None:
    """The other method that is most ahead of SG-OIF, or least behind, in the mean of the seeds that both have."""
    own = data.by_seed(dataset, setting, OURS)
    leads = {}
    for method in data.rivals(dataset, "auc_pr"):
        found = data.by_seed(dataset, setting, method)
        if both := sorted(own.keys() & found.keys()):
            value = float(np.mean([found[seed] for seed in both]))
            other = _Other(method, 100 * value, frozenset(both), lacks_seeds=len(both) < len(own))
            leads[other] = value - float(np.mean([own[seed] for seed in both]))
    return max(leads, key=leads.__getitem__, default=None)


def _draw_parts(axes: Axes, row: int, parts: Mapping[str, np.ndarray]) -> None:
    for i, (part, (words, colour, marker)) in enumerate(PARTS.items()):
        values = parts[part]
        y = row + 0.16 * (1 - i)
        axes.plot([values.min(), values.max()], [y, y], color=colour, linewidth=1.2, zorder=2)
        size = 8 if part == "" else 4.5
        axes.plot(values.mean(), y, color=colour, marker=marker, markersize=size, linestyle="", label=words, zorder=3)


def _draw_best_other(axes: Axes, row: int, low: float, own: float, best: _Other) -> None:
    """Draw the best other method by name; one that lies below the axis stands at its edge, with its number.

    The name is to the left, but where it would lie outside of the axes or on the star of SG-OIF, at `own`.
    """
    value = best.value
    outside = value < low
    words = _words(best, outside)
    look: dict[str, Any] = {"marker": "<" if outside else "D", "markersize": 4, "linestyle": ""}
    at = (max(low, value), row - 0.3)
    axes.plot(*at, color=_style.ORANGE, zorder=2, label=None if outside else "best other method", clip_on=False, **look)
    is_near_the_edge, is_near_the_star = at[0] < low + 0.2 * (100 - low), 0 <= at[0] - own < 0.08 * (100 - low)
    to_the_right = {"xytext": (5, 0), "ha": "left"}
    side: dict[str, Any] = to_the_right if is_near_the_edge or is_near_the_star else {"xytext": (-5, 0), "ha": "right"}
    axes.annotate(words, at, textcoords="offset points", fontsize=5.5, va="center", color="#8a5f00", **side)


def _words(best: _Other, outside: bool) -> str:
    """Name a method, with its number where its marker does not tell it, and with its seeds where it lacks some."""
    name = title("noisy", best.method)
    for long, short in SHORT_NAMES.items():
        name = name.replace(long, short)
    number = f" {best.value:.1f}" if outside else ""
    seeds = f", {len(best.seeds)} seed{'s' * (len(best.seeds) > 1)}" if best.lacks_seeds else ""
    return name + number + seeds
