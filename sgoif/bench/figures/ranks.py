"""Critical-difference diagram: average ranks over the settings, and which of them cannot be told apart."""

from sgoif.bench.evaluation import significance
from sgoif.bench.figures import _style as draws
from sgoif.bench.figures._data import Evidence, tables_of
from sgoif.bench.methods.registry import OURS, PLAIN
from sgoif.bench.tables.names import is_ranked

PLACE = 40
TITLE = "Average ranks and critical difference"
CAPTION = (
    "Average rank by AUC-PR over the settings of the grid (1 = best), means over seeds ranked. Bars join methods "
    "whose ranks are closer than Nemenyi's critical difference (Demšar 2006): the data do not tell them apart. The "
    "settings share their images, so they are not independent and the diagram flatters differences."
)


def subjects(config) -> list[str]:
    return tables_of(config, "noise_grid")


def draw(table: str, evidence: Evidence):
    panels = evidence.layout(table)["panels"]
    found = evidence.numbers(table, "auc_pr")
    there = dict.fromkeys(m for p in panels for m in p["methods"])
    methods = [m for m in there if m != PLAIN and is_ranked("noisy", m)]
    values = {m: [found.get((p["dataset"], p["setting"], m), {}).get("mean") for p in panels] for m in methods}
    full = {m: v for m, v in values.items() if v and None not in v}
    left_out = [draws.name_of(m) for m in methods if m not in full]
    figure, grid = draws.canvas(height=1.3 + 0.2 * (len(full) + 1))
    axes = grid[0, 0]
    title = "; ".join(dict.fromkeys(evidence.title(p["dataset"]) for p in panels))
    draws.heading(figure, f"{title}; {len(panels)} settings")
    if len(full) < 3 or len(panels) < 2:
        draws.gap(axes, "ranks need three methods with a score in each of two settings")
        return figure
    ranks = significance.average_ranks(full)
    difference = significance.critical_difference(len(full), len(panels))
    p = significance.friedman_p(full)
    _diagram(axes, ranks, difference)
    told = f"Friedman p {'< 0.001' if p < 0.001 else f'= {p:.3f}'}; Nemenyi, α = {significance.ALPHA}"
    if p > significance.ALPHA:
        told += "; the ranks as a whole do not differ significantly"
    if left_out:
        told += f"; without a score in every setting: {', '.join(left_out)}"
    draws.footnote(figure, told)
    return figure


def cliques(ranks: dict[str, float], difference: float) -> list[tuple[float, float]]:
    """(lowest, highest) rank of every largest group of at least two that spans less than the critical difference."""
    order = sorted(ranks.values())
    spans = [(a, max(b for b in order if b - a < difference)) for a in order]
    return [s for i, s in enumerate(spans) if s[1] > s[0] and (i == 0 or s[1] > spans[i - 1][1])]


def _diagram(axes, ranks: dict[str, float], difference: float) -> None:
    n = len(ranks)
    order = sorted(ranks, key=ranks.get)
    bars = cliques(ranks, difference)
    depth = 0.55 * len(bars) + 0.6  # beneath the axis, before the names begin
    for i, method in enumerate(order):
        left = i < (n + 1) // 2
        row = i if left else n - 1 - i
        y, edge = -depth - row - 0.5, (0.6 if left else n + 0.4)
        colour = "black" if method == OURS else "#666666"
        axes.plot(
            [ranks[method], ranks[method], edge], [0, y, y], color=colour, linewidth=1.5 if method == OURS else 0.8
        )
        text = (
            f"{draws.name_of(method)}  {ranks[method]:.1f}" if left else f"{ranks[method]:.1f}  {draws.name_of(method)}"
        )
        weight = "bold" if method == OURS else "normal"
        axes.text(edge + (-0.08 if left else 0.08), y, text, ha="right" if left else "left", va="center", weight=weight)
    for i, (low, high) in enumerate(bars):
        y = -0.55 * (i + 1)
        axes.plot([low - 0.06, high + 0.06], [y, y], color=draws.BLUE, linewidth=3.5, solid_capstyle="round", zorder=3)
    axes.plot([1, 1 + difference], [1.55, 1.55], color=draws.BLUE, linewidth=2, marker="|", markersize=7)
    axes.text(1 + difference / 2, 1.75, f"critical difference {difference:.1f}", ha="center", va="bottom", fontsize=7.5)
    axes.plot([1, n], [0, 0], color="#333333", linewidth=1)
    for rank in range(1, n + 1):
        axes.plot([rank, rank], [0, 0.18], color="#333333", linewidth=1)
        axes.text(rank, 0.32, str(rank), ha="center", va="bottom", fontsize=7.5)
    axes.set_xlim(1 - 0.32 * n, n + 0.32 * n)
    axes.set_ylim(-depth - (n + 1) // 2 - 0.2, 2.9)
    axes.axis("off")
