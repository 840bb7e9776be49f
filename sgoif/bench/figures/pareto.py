"""Quality against cost: who finds more for less."""

import math

import numpy as np

from sgoif.bench.figures import _style as draws
from sgoif.bench.figures._data import Evidence, tables_of
from sgoif.bench.methods.registry import OURS, PLAIN
from sgoif.bench.tables.names import is_ranked

PLACE = 30
TITLE = "Quality against cost"
CAPTION = (
    "Mean quality over the settings of the table against measured wall-clock, as a multiple of plain training with "
    "what the method reads counted in (stand-alone). Up and left is better; the line joins the methods that no other "
    "beats in both (Pareto), but for those that are given all clean labels that were set aside."
)
QUALITY = {
    "noise_grid": ("auc_pr", "AUC-PR (%)"),
    "noise_sets": ("auc_pr", "AUC-PR (%)"),
    "ood": ("auroc:overall", "AUROC over all OOD sets (%)"),
}
COST = "overhead_standalone"
CHEAPEST = 0.1  # what costs less than a tenth of a training is told in words: it would squeeze all others together


def subjects(config) -> list[str]:
    return tables_of(config, *QUALITY)


def draw(table: str, evidence: Evidence):
    metric, label = QUALITY[evidence.config["tables"][table]["kind"]]
    points, incomplete = _points(table, metric, evidence)
    free = {m: points.pop(m) for m in list(points) if points[m][0] < CHEAPEST}
    figure, grid = draws.canvas(height=4.0)
    axes = grid[0, 0]
    axes.set_xlabel("time of the method / time of plain training (stand-alone, log scale)")
    axes.set_ylabel(label)
    layout = evidence.layout(table)
    task = layout.get("task", "noisy")
    n = len(layout["panels"])
    titles = dict.fromkeys(
        p["title"] + (f", in the place of {p['stands_for']}" if p["stands_for"] else "") for p in layout["panels"]
    )
    draws.heading(figure, "; ".join(titles) + (f"; mean of {n} settings" if n > 1 else ""))
    if len(points) < 2:
        draws.gap(axes, "fewer than two methods have both quality and comparable seconds in every setting")
        return figure
    front = pareto(points, task)
    axes.plot(
        *zip(*[points[m] for m in front], strict=True), color="#aaaaaa", linewidth=1, zorder=1, drawstyle="steps-post"
    )
    for method, (cost, quality) in points.items():
        colour, marker = (
            ("black", "*") if method == OURS else (draws.BLUE, "o") if method in front else (draws.ORANGE, "s")
        )
        axes.scatter(
            cost, quality, color=colour, marker=marker, s=110 if method == OURS else 30, zorder=3, linewidths=0
        )
    axes.set_xscale("log")
    axes.grid()
    _ticks(axes, [c for c, _ in points.values()])
    _names(axes, points, task)
    told = [f"{draws.name_of(m, task)}, which costs nothing: {quality:.1f}" for m, (_, quality) in free.items()]
    told += [f"not in every setting: {', '.join(draws.name_of(m, task) for m in incomplete)}"] if incomplete else []
    if told:
        draws.footnote(figure, "; ".join(told))
    return figure


def _points(table, metric, evidence) -> tuple[dict[str, tuple[float, float]], list[str]]:
    """Method -> (cost, quality) as means over the panels; and the methods that lack a panel."""
    quality, cost = evidence.numbers(table, metric), evidence.numbers(table, COST)
    panels = evidence.layout(table)["panels"]
    points, incomplete = {}, []
    for method in dict.fromkeys(m for p in panels for m in p["methods"]):
        keys = [(p["dataset"], p["setting"], method) for p in panels]
        if all(k in quality and k in cost for k in keys):
            value = 100 * float(np.mean([quality[k]["mean"] for k in keys]))
            points[method] = (float(np.mean([cost[k]["mean"] for k in keys])), value)
        elif method != PLAIN:
            incomplete.append(method)
    return points, incomplete


def pareto(points: dict[str, tuple[float, float]], task: str = "noisy") -> list[str]:
    """The methods that no other one equals or beats in cost and quality, cheapest first; methods that are
    declared unranked do not compete."""
    front, best = [], -math.inf
    for method, (_, quality) in sorted(points.items(), key=lambda item: (item[1][0], -item[1][1])):
        if quality > best and is_ranked(task, method):
            front.append(method)
            best = quality
    return front


def _ticks(axes, costs) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    low, high = min(costs) / 1.15, max(costs) * 1.6  # room for names to the right
    digits = (1, 1.5, 2, 3, 5, 7) if high / low < 40 else (1, 3)
    ticks = [t for e in range(-3, 6) for m in digits if low <= (t := m * 10.0**e) <= high]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(ticks, [f"{t:g}×" for t in ticks])
    axes.set_xlim(low, high)


def _names(axes, points, task: str) -> None:
    """A name beside each mark, at the nearest of many places where it covers neither a name nor a mark; lines end at
    its white edge."""
    from matplotlib.patheffects import withStroke

    low, high = axes.get_ylim()
    axes.set_ylim(low - 0.08 * (high - low), high + 0.04 * (high - low))
    to_axes = axes.transData + axes.transAxes.inverted()
    marks = {m: to_axes.transform(point) for m, point in points.items()}
    taken = [(x - 0.009, x + 0.009, y - 0.018, y + 0.018) for x, y in marks.values()]
    reach = [(side, rise) for rise in np.arange(0, 0.8, 0.02) for side in (1, -1)]
    for method in sorted(points, key=lambda m: (m != OURS, -points[m][1])):
        x, y = marks[method]
        text = draws.name_of(method, task)
        width = 0.0112 * len(text) + (0.02 if method == OURS else 0)
        for side, rise in sorted([*reach, *((s, -r) for s, r in reach)], key=lambda p: abs(p[1]) + 0.01 * (p[0] < 0)):
            start = x + side * (0.014 + 0.2 * abs(rise)) - (width if side < 0 else 0)
            box = (start, start + width, y + rise - 0.018, y + rise + 0.018)
            if box[0] > 0 and box[1] < 1 and box[2] > 0 and box[3] < 1 and not any(_overlap(box, t) for t in taken):
                break
        taken.append(box)
        if abs(rise) > 0.02:
            near = box[0] if side > 0 else box[1]
            axes.plot([x, near], [y, y + rise], color="#999999", linewidth=0.6, zorder=1, transform=axes.transAxes)
        weight = "bold" if method == OURS else "normal"
        drawn = axes.text(start, y + rise, text, va="center", fontsize=7.5, weight=weight, transform=axes.transAxes)
        drawn.set_path_effects([withStroke(linewidth=2.5, foreground="white")])


def _overlap(a, b) -> bool:
    return a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]
