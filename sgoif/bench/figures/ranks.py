"""Critical-difference diagram: average ranks over the settings, and which of them do not differ significantly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sgoif.bench.evaluation import significance
from sgoif.bench.figures import _style
from sgoif.bench.figures._data import FigureData, tables_of
from sgoif.bench.methods.registry import OURS, PLAIN
from sgoif.bench.tables.names import is_ranked

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLACE = 40
TITLE = "Average ranks and critical difference"
CAPTION = (
    "Average rank by AUC-PR over the settings of the grid (1 = best), means over seeds ranked. Bars join methods "
    "whose ranks are closer than Nemenyi's critical difference (Demšar 2006): the data do not tell them apart. The "
    "settings share their images, so they are not independent and the diagram flatters differences."
)


def subjects(config: Mapping[str, Any]) -> list[str]:
    """Return the tables that the figure is drawn for."""
    return tables_of(config, "noise_grid")


def draw(table: str, data: FigureData) -> Figure:
    """Draw the figure of one table."""
    panels = data.layout(table).panels
    full, left_out = _values(table, data)
    figure, grid = _style.canvas(height=1.3 + 0.2 * (len(full) + 1))
    axes = grid[0, 0]
    title = "; ".join(dict.fromkeys(data.title(p.dataset) for p in panels))
    _style.heading(figure, f"{title}; {len(panels)} settings")
    if len(full) < 3 or len(panels) < 2:
        _style.gap(axes, "ranks need three methods with a score in each of two settings")
        return figure
    _diagram(axes, significance.average_ranks(full), significance.critical_difference(len(full), len(panels)))
    p_value = significance.friedman_p(full)
    p_text = "< 0.001" if p_value < 0.001 else f"= {p_value:.3f}"
    note = f"Friedman p {p_text}; Nemenyi, α = {significance.ALPHA}"
    if p_value > significance.ALPHA:
        note += "; the ranks as a whole do not differ significantly"
    if left_out:
        note += f"; without a score in every setting: {', '.join(_style.name_of(m) for m in left_out)}"
    _style.footnote(figure, note)
    return figure


def _values(table: str, data: FigureData) -> tuple[dict[str, list[float]], list[str]]:
    """Method -> AUC-PR by setting; and the methods that lack a setting."""
    panels = data.layout(table).panels
    found = data.numbers(table, "auc_pr")
    full: dict[str, list[float]] = {}
    left_out = []
    for method in dict.fromkeys(m for p in panels for m in p.methods):
        if method == PLAIN or not is_ranked("noisy", method):
            continue
        places = [(p.dataset, p.setting, method) for p in panels]
        if all(place in found for place in places):
            full[method] = [found[place]["mean"] for place in places]
        else:
            left_out.append(method)
    return full, left_out


def cliques(ranks: dict[str, float], difference: float) -> list[tuple[float, float]]:
    """Find the groups of methods that do not differ significantly.

    Args:
        ranks: Method -> average rank.
        difference: The critical difference.

    Returns:
        (lowest, highest) rank of every largest group of at least two that spans less than the difference.
    """
    order = sorted(ranks.values())
    spans = [(a, max(b for b in order if b - a < difference)) for a in order]
    return [s for i, s in enumerate(spans) if s[1] > s[0] and (i == 0 or s[1] > spans[i - 1][1])]


def _diagram(axes: Axes, ranks: dict[str, float], difference: float) -> None:
    n = len(ranks)
    bars = cliques(ranks, difference)
    depth = 0.55 * len(bars) + 0.6  # beneath the axis, before the names begin
    for i, method in enumerate(sorted(ranks, key=ranks.__getitem__)):
        left = i < (n + 1) // 2
        row = i if left else n - 1 - i
        _name(axes, method, ranks[method], -depth - row - 0.5, 0.6 if left else n + 0.4, left)
    for i, (low, high) in enumerate(bars):
        y = -0.55 * (i + 1)
        axes.plot([low - 0.06, high + 0.06], [y, y], color=_style.BLUE, linewidth=3.5, solid_capstyle="round", zorder=3)
    axes.plot([1, 1 + difference], [1.55, 1.55], color=_style.BLUE, linewidth=2, marker="|", markersize=7)
    axes.text(1 + difference / 2, 1.75, f"critical difference {difference:.1f}", ha="center", va="bottom", fontsize=7.5)
    axes.plot([1, n], [0, 0], color=_style.TEXT_COLOUR, linewidth=1)
    for rank in range(1, n + 1):
        axes.plot([rank, rank], [0, 0.18], color=_style.TEXT_COLOUR, linewidth=1)
        axes.text(rank, 0.32, str(rank), ha="center", va="bottom", fontsize=7.5)
    axes.set_xlim(1 - 0.32 * n, n + 0.32 * n)
    axes.set_ylim(-depth - (n + 1) // 2 - 0.2, 2.9)
    axes.axis("off")


def _name(axes: Axes, method: str, rank: float, y: float, edge: float, left: bool) -> None:
    """Write a method's name at the left or right edge, with a line to its rank on the axis."""
    ours = method == OURS
    axes.plot([rank, rank, edge], [0, y, y], color="black" if ours else "#666666", linewidth=1.5 if ours else 0.8)
    weight = "bold" if ours else "normal"
    name = _style.name_of(method)
    if left:
        axes.text(edge - 0.08, y, f"{name}  {rank:.1f}", ha="right", va="center", weight=weight)
    else:
        axes.text(edge + 0.08, y, f"{rank:.1f}  {name}", ha="left", va="center", weight=weight)
