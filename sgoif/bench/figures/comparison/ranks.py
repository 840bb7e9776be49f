"""Average ranks over the settings; with enough independent draws, which of them do not differ significantly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sgoif.bench.evaluation import significance
from sgoif.bench.evaluation.draws import MIN_DRAWS, Draw, panels_by_draw, values_by_draw
from sgoif.bench.figures import _style
from sgoif.bench.figures._data import RANDOM, SEEDS, FigureData, tables_of
from sgoif.bench.methods.registry import OURS, PLAIN
from sgoif.bench.tables.names import is_ranked, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLACE = 40
MAX_TICKS = 15  # ranks that are all written at the axis
NAME_WIDTH = 0.072  # inches of a letter
SAME = "|"  # between methods with the same ranking
TITLE = "Average ranks"
CAPTION = (
    "Average rank by AUC-PR (1 = best). The settings of the grid share their images and, under one seed, most of their "
    "wrong labels, so a test counts each seed that draws its own noise once, by the mean over the settings. From five "
    "such draws on, ranks are over draws, and bars join methods whose ranks are closer than Nemenyi's critical "
    "difference (Demšar 2006): the data do not tell them apart. With fewer, ranks are over settings and there is no "
    f"test. Methods with the same values everywhere are one entry. {SEEDS}"
)


def subjects(config: Mapping[str, Any]) -> list[str]:
    """Return the tables that the figure is drawn for."""
    return tables_of(config, "noise_grid")


def draw(table: str, data: FigureData) -> Figure | None:
    """Draw the figure of one table."""
    panels = data.layout(table).panels
    full, left_out, n_draws = _values(table, data)
    if len(full) < 3 or len(panels) < 2:
        return None
    tested = n_draws >= MIN_DRAWS
    figure, grid = _style.canvas(height=1.0 + 0.2 * (len(full) + 1) if tested else 0.5 + 0.17 * len(full))
    sets = "; ".join(dict.fromkeys(data.title(p.dataset) for p in panels))
    _style.subtitle(figure, f"{sets}; {len(panels)} settings, independent draws of noise: {n_draws}")
    ranks = significance.mean_ranks(full)
    difference = significance.critical_difference(len(full), n_draws) if tested else None
    named = {_name_of(m): rank for m, rank in ranks.items()}
    if difference is None:
        _rows(grid[0, 0], named)
    else:
        _diagram(grid[0, 0], named, difference)
    notes = [f"no test: fewer than {MIN_DRAWS} independent draws"] if difference is None else _test(full, difference)
    if left_out:
        notes.append(f"without a score everywhere: {', '.join(title('noisy', m) for m in left_out)}")
    _style.footnote(figure, "; ".join(notes))
    return figure


def _test(values: Mapping[str, list[float]], difference: float) -> list[str]:
    """What the independent draws tell, in words."""
    p_value = significance.friedman_p(values)
    p_text = "< 0.001" if p_value < 0.001 else f"= {p_value:.3f}"
    notes = [f"Friedman p {p_text}; Nemenyi, α = {significance.ALPHA}"]
    if p_value > significance.ALPHA:
        notes.append("the ranks as a whole do not differ significantly")
    if near := _not_separated(significance.mean_ranks(values), difference):
        notes.append(f"not separated from SG-OIF: {', '.join(_name_of(m) for m in near)}")
    return notes


def _name_of(methods: str) -> str:
    """Titles of one method, or of several with the same ranking."""
    return " = ".join(title("noisy", m) for m in methods.split(SAME))


def _not_separated(ranks: Mapping[str, float], difference: float) -> list[str]:
    """The methods whose rank is closer to SG-OIF's than the critical difference, nearest first."""
    ours = next((m for m in ranks if OURS in m.split(SAME)), None)
    if ours is None:
        return []
    near = [m for m in ranks if m != ours and abs(ranks[m] - ranks[ours]) < difference]
    return sorted(near, key=lambda m: abs(ranks[m] - ranks[ours]))


def _values(table: str, data: FigureData) -> tuple[dict[str, list[float]], list[str], int]:
    """Method -> AUC-PR by draw, or by setting where there are few draws; methods that lack some; number of draws.

    Methods that are equal everywhere are joined by `SAME`.
    """
    panels = data.layout(table).panels
    facts = data.numbers(table, "base_rate")
    draws = panels_by_draw(panels, lambda p: facts.get((p.dataset, p.setting, "")))
    tested = len(draws) >= MIN_DRAWS
    found = data.numbers(table, "auc_pr") if tested else data.compared(table, "auc_pr")
    full: dict[str, list[float]] = {}
    left_out = []
    tried = data.tried(table)
    for method in dict.fromkeys(m for p in panels for m in p.methods):
        if method in (PLAIN, RANDOM) or not is_ranked("noisy", method):
            continue
        places = [(p.dataset, p.setting, method) for p in panels]
        if tested:
            values = list(_by_draw(draws, found, method).values())
        else:
            values = [found[place]["mean"] for place in places if place in found]
        if len(values) == (len(draws) if tested else len(places)):
            full[method] = values
        elif method in tried:
            left_out.append(method)
    n_draws = len(draws) if tested else min(len(draws), max((r["n_seeds"] for r in found.values()), default=0))
    return merge_equal(full), left_out, n_draws


def _by_draw(draws: Mapping[Draw, Any], found: Mapping[Any, Any], method: str) -> dict[Draw, float]:
    return values_by_draw(draws, lambda p: found.get((p.dataset, p.setting, method)))


def merge_equal(values: Mapping[str, list[float]]) -> dict[str, list[float]]:
    """Join methods with the same values everywhere, which would use up critical distance twice."""
    groups: dict[tuple[float, ...], list[str]] = {}
    for method, numbers in values.items():
        groups.setdefault(tuple(round(n, 9) for n in numbers), []).append(method)
    return {SAME.join(methods): list(values[methods[0]]) for methods in groups.values()}


def cliques(ranks: dict[str, float], difference: float) -> list[tuple[float, float]]:
    """Find the groups of methods that do not differ significantly.

    Args:
        ranks: Name -> average rank.
        difference: The critical difference.

    Returns:
        (lowest, highest) rank of every largest group of at least two that spans less than the difference.
    """
    order = sorted(ranks.values())
    spans = [(a, max(b for b in order if b - a < difference)) for a in order]
    return [s for i, s in enumerate(spans) if s[1] > s[0] and (i == 0 or s[1] > spans[i - 1][1])]


def _rows(axes: Axes, ranks: dict[str, float]) -> None:
    """Draw a row for each method, best at the top, with a mark at its rank."""
    from_below = sorted(ranks, key=lambda name: -ranks[name])
    for row, name in enumerate(from_below):
        ours = name == title("noisy", OURS)
        colour = "black" if ours else _style.BLUE
        axes.plot([1, ranks[name]], [row, row], color=colour, linewidth=1, alpha=0.4)
        axes.plot(ranks[name], row, marker="*" if ours else "o", markersize=9 if ours else 5, color=colour)
        axes.annotate(f"{ranks[name]:.1f}", (ranks[name], row), (7, 0), textcoords="offset points", va="center", size=7)
    _style.method_rows(axes, from_below, [name == title("noisy", OURS) for name in from_below])
    axes.set_xlim(0.8, len(ranks) + 0.5)
    axes.set_xlabel("average rank (1 = best)")


def _diagram(axes: Axes, ranks: dict[str, float], difference: float) -> None:
    """Draw the axis of ranks with the names, the critical difference, and what it does not separate."""
    n = len(ranks)
    bars = cliques(ranks, difference)
    depth = 0.55 * len(bars) + 0.6  # beneath the axis, before the names begin
    for i, name in enumerate(sorted(ranks, key=ranks.__getitem__)):
        left = i < (n + 1) // 2
        row = i if left else n - 1 - i
        _name(axes, name, ranks[name], -depth - row - 0.5, 0.6 if left else n + 0.4, left)
    for i, (low, high) in enumerate(bars):
        y = -0.55 * (i + 1)
        axes.plot([low - 0.06, high + 0.06], [y, y], color=_style.BLUE, linewidth=3.5, solid_capstyle="round", zorder=3)
    axes.plot([1, 1 + difference], [1.55, 1.55], color=_style.BLUE, linewidth=2, marker="|", markersize=7)
    words = f"critical difference {difference:.1f}"
    axes.text(1 + difference / 2, 1.75, words, ha="center", va="bottom", fontsize=7.5)
    axes.plot([1, n], [0, 0], color=_style.TEXT_COLOUR, linewidth=1)
    every = 1 if n <= MAX_TICKS else 5
    for rank in range(1, n + 1):
        axes.plot([rank, rank], [0, 0.18], color=_style.TEXT_COLOUR, linewidth=1)
        if rank == 1 or rank % every == 0:
            axes.text(rank, 0.32, str(rank), ha="center", va="bottom", fontsize=7.5)
    order = sorted(ranks, key=ranks.__getitem__)
    axes.set_xlim(*_room(n, order[: (n + 1) // 2], order[(n + 1) // 2 :]))
    axes.set_ylim(-depth - (n + 1) // 2 - 0.2, 2.9)
    axes.axis("off")


def _room(n: int, left: Sequence[str], right: Sequence[str]) -> tuple[float, float]:
    """Limits of the horizontal axis, so that the names at both sides fit beside the axis of ranks."""
    inches = [NAME_WIDTH * max((len(name) for name in names), default=0) + 0.45 for names in (left, right)]
    unit = n / max(1.0, _style.FIGURE_WIDTH - 0.1 - sum(inches))  # ranks an inch
    return 0.6 - unit * inches[0], n + 0.4 + unit * inches[1]


def _name(axes: Axes, name: str, rank: float, y: float, edge: float, left: bool) -> None:
    """Write a method's name at the left or right edge, with a line to its rank on the axis."""
    ours = name == title("noisy", OURS)
    axes.plot([rank, rank, edge], [0, y, y], color="black" if ours else "#666666", linewidth=1.5 if ours else 0.8)
    weight = "bold" if ours else "normal"
    if left:
        axes.text(edge - 0.08, y, f"{name}  {rank:.1f}", ha="right", va="center", weight=weight)
    else:
        axes.text(edge + 0.08, y, f"{rank:.1f}  {name}", ha="left", va="center", weight=weight)
