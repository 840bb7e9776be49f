"""Precision against recall, and recall against the share of examples looked at, of all detectors of a table."""

import numpy as np

from sgoif.bench.figures import _style as draws
from sgoif.bench.figures._data import Evidence, tables_of
from sgoif.bench.methods.registry import OURS

PLACE = 20
FROM_CURVES = True
TITLE = "Precision-recall and cumulative-recall curves"
CAPTION = (
    "Left: precision where the recall of wrong labels first reaches a value (the area under it is AUC-PR). Right: the "
    "share of wrong labels found after looking at the most suspicious examples first. Mean over seeds and, in a grid, "
    "over sparsities. Dotted: random order; right, also the best possible order."
)


def subjects(config) -> list[str]:
    return tables_of(config, "noise_grid", "noise_sets")


def draw(table: str, evidence: Evidence):
    groups: dict[tuple, list] = {}  # panels that share data and noise rate share a row
    for p in evidence.layout(table)["panels"]:
        groups.setdefault((p["dataset"], p["kind"], p["noise"] or p["setting"]), []).append(p)
    methods = list(dict.fromkeys(m for panels in groups.values() for p in panels for m in p["methods"]))
    styles = draws.style_of(methods)
    figure, grid = draws.canvas(
        max(1, len(groups)), 3, height=2.75 * max(1, len(groups)) + 0.3, width_ratios=(1, 1, 0.62)
    )
    for axes in grid[:, 2]:
        axes.axis("off")
    if not groups:
        for axes in grid[0, :2]:
            draws.gap(axes, "no dataset of this table was measured")
    for pair, panels in zip(grid, groups.values(), strict=False):
        found, x = _mean_curves(evidence, panels)
        rates = [evidence.numbers(table, "base_rate").get((p["dataset"], p["setting"], "")) for p in panels]
        rates = [r["mean"] for r in rates if r]
        _panel(pair[0], x, {m: c["precision"] for m, c in found.items()}, styles)
        _panel(pair[1], x, {m: c["recall"] for m, c in found.items()}, styles)
        _names(pair[2], found, styles)
        if found and rates:
            rate = float(np.mean(rates))
            pair[0].axhline(100 * rate, color="#777777", linestyle=":", linewidth=1)
            pair[1].plot([0, 100 * rate, 100], [0, 100, 100], color="#777777", linestyle=":", linewidth=1)
            pair[1].plot([0, 100], [0, 100], color="#777777", linestyle=":", linewidth=1)
        pair[0].set_title(" ")  # room for the words, which may reach over the neighbour
        words = pair[0].text(0, 1.03, _words(panels), transform=pair[0].transAxes, fontsize=9)
        words.set_in_layout(False)
        for axes, (across, up) in zip(
            pair[:2], (("recall", "precision"), ("examples looked at", "recall")), strict=True
        ):
            axes.set_xlabel(f"{across} (%)")
            axes.set_ylabel(f"{up} (%)")
    return figure


def _mean_curves(evidence, panels) -> tuple[dict[str, dict], np.ndarray]:
    """Method -> its two curves and its name, averaged over the panels; who lacks a panel is left out."""
    by_method: dict[str, dict[str, dict]] = {}
    for p in panels:
        curves = evidence.curves(p["dataset"])
        for c in curves["detectors"]:
            if c["setting"] == p["setting"] and c["method"] in p["methods"]:
                by_method.setdefault(c["method"], {})[p["setting"]] = c
    full = {m: list(found.values()) for m, found in by_method.items() if len(found) == len(panels)}
    x = 100 * np.array(evidence.curves(panels[0]["dataset"])["grid"])
    mean = {m: {k: 100 * np.mean([c[k] for c in cs], 0) for k in ("precision", "recall")} for m, cs in full.items()}
    wanted = len(panels[0]["seeds"])
    for method, cs in full.items():
        seeds = min(c["seeds"] for c in cs)
        mean[method]["name"] = draws.name_of(method) + (f", {seeds} of {wanted} seeds" if seeds < wanted else "")
    return mean, x


def _panel(axes, x, lines, styles) -> None:
    if not lines:
        draws.gap(axes, "no detector has all of these cells")
        return
    for method, y in lines.items():
        colour, dashes = styles[method]
        ours = method == OURS
        axes.plot(x, y, color=colour, linestyle=dashes, linewidth=2.2 if ours else 1.2, zorder=3 if ours else 2)
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 102)
    axes.grid()


def _names(axes, found, styles) -> None:
    """The key of a row: best area under the left curve first."""
    order = sorted(found, key=lambda m: -found[m]["precision"].mean())
    for i, method in enumerate(order):
        colour, dashes = styles[method]
        weight = "bold" if method == OURS else "normal"
        axes.plot([0, 0.14], [-i, -i], color=colour, linestyle=dashes)
        axes.text(0.18, -i, found[method]["name"], va="center", fontsize=7, weight=weight)
    axes.set_xlim(0, 1)
    axes.set_ylim(-max(12, len(order)), 0.5)


def _words(panels) -> str:
    first = panels[0]
    noise = f"{100 * first['noise']:.0f}% noise" if first["noise"] else first["setting"]
    kind = first["kind"].replace("_", "-")
    over = f", mean of {len(panels)} sparsities" if len(panels) > 1 else ""
    place = f" (in the place of {first['stands_for']})" if first["stands_for"] else ""
    return f"{first['title']}{place}: {kind} {noise}{over}"
