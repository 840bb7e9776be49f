"""Average precision of every method in every setting of a grid: a row a method, best mean at the top."""

import itertools

from sgoif.bench.figures import _style as draws
from sgoif.bench.figures._data import Evidence, tables_of
from sgoif.bench.methods.registry import OURS

PLACE = 10
TITLE = "Wrong labels found"
CAPTION = (
    "AUC-PR of every method in every setting of the grid, mean over seeds; one mark per sparsity, best mean at the "
    "top. Dotted: the share of wrong labels, which is what a random ranking gets."
)


def subjects(config) -> list[str]:
    return tables_of(config, "noise_grid")


def draw(table: str, evidence: Evidence):
    name = evidence.config["tables"][table]["dataset"]
    dataset = evidence.config["noisy"][name]
    found: dict[str, dict[str, float]] = {}
    seeds = {len(dataset["seeds"])}
    for (_, setting, method), r in evidence.numbers(table, "auc_pr").items():
        found.setdefault(method, {})[setting] = 100 * r["mean"]
        seeds.add(r["n_seeds"])
    rates = {setting: 100 * r["mean"] for (_, setting, _), r in evidence.numbers(table, "base_rate").items()}
    order = sorted(found, key=lambda m: sum(found[m].values()) / len(found[m]))
    levels = sorted({dataset["settings"][s].get("noise", 0) for v in found.values() for s in v})
    figure, grid = draws.canvas(height=0.27 * max(4, len(order)) + 1.2)
    axes = grid[0, 0]
    for level, (colour, shape) in zip(levels, itertools.cycle(draws.MARKS), strict=False):
        settings = [s for s in dataset["settings"] if dataset["settings"][s].get("noise", 0) == level]
        known = [rates[s] for s in settings if s in rates]
        if known:
            axes.axvline(sum(known) / len(known), color=colour, linestyle=":", linewidth=1)
        points = [(v, row) for row, m in enumerate(order) for s, v in found[m].items() if s in settings]
        offset = 0.22 * (levels.index(level) - (len(levels) - 1) / 2)
        xs, ys = [x for x, _ in points], [y + offset for _, y in points]
        label = f"noise {100 * level:.0f}%"
        axes.scatter(xs, ys, s=26, color=colour, marker=shape, label=label, alpha=0.85, linewidths=0)
    axes.set_xlabel("AUC-PR (%), one mark per sparsity; dotted: share of wrong labels")
    over = " to ".join(str(n) for n in dict.fromkeys((min(seeds), max(seeds))))
    draws.heading(figure, f"{evidence.title(name)}; mean of {over} seeds")
    if not levels:
        draws.gap(axes, "no method has a score")
        return figure
    axes.set_yticks(range(len(order)), [draws.name_of(m) for m in order])
    for text, method in zip(axes.get_yticklabels(), order, strict=True):
        text.set_fontweight("bold" if method == OURS else "normal")
    axes.set_xlim(0, 101)
    axes.set_ylim(-0.7, len(order) - 0.3)
    axes.grid(axis="y")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.legend(ncols=len(levels), loc="lower left", bbox_to_anchor=(-0.02, 1), handletextpad=0.2)
    return figure
