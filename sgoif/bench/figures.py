"""Figures of a run, drawn from summary.json alone: SVG and PNG, readable in print and without colour vision."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sgoif.bench.files import read_json, replacing
from sgoif.bench.table_names import TITLES

OURS = "sgoif"
# Okabe and Ito's colours, which differ for every kind of colour vision; shapes differ besides.
MARKS = (("#0072B2", "o"), ("#E69F00", "s"), ("#009E73", "^"), ("#CC79A7", "D"), ("#56B4E9", "v"), ("#D55E00", "P"))


def write_figures(run_dir: Path, config: Mapping[str, Any]) -> list[Path]:
    """Draws one figure for each noise grid of the configuration."""
    records = read_json(run_dir / "summary.json")
    paths = []
    for table, spec in config["tables"].items():
        if spec["kind"] == "noise_grid":
            paths += detection(records, table, config["noisy"][spec["dataset"]], run_dir / "figures")
    return paths


def detection(records: Sequence[Mapping], table: str, dataset: Mapping[str, Any], folder: Path) -> list[Path]:
    """Average precision of every method in every setting of a grid: a row a method, best mean at the top."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for r in records:
        if (r["table"], r["metric"], r.get("variant", "")) == (table, "auc_pr", "") and r["mean"] is not None:
            found.setdefault(r["method"], {})[r["setting"]] = (100 * r["mean"], 100 * (r["std"] or 0))
    rates = {r["setting"]: 100 * r["mean"] for r in records if r["table"] == table and r["metric"] == "base_rate"}
    order = sorted(found, key=lambda m: sum(v for v, _ in found[m].values()) / len(found[m]))
    levels = sorted({dataset["settings"][s].get("noise", 0) for v in found.values() for s in v})

    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "sgoif"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.2, 0.34 * len(order) + 1.5))
    for level, (colour, shape) in zip(levels, itertools.cycle(MARKS), strict=False):
        settings = [s for s in dataset["settings"] if dataset["settings"][s].get("noise", 0) == level]
        known = [rates[s] for s in settings if s in rates]
        if known:
            axes.axvline(sum(known) / len(known), color=colour, linestyle=":", linewidth=1)
        points = [(v, row) for row, m in enumerate(order) for s, (v, _) in found[m].items() if s in settings]
        offset = 0.22 * (levels.index(level) - (len(levels) - 1) / 2)
        label = f"noise {100 * level:.0f}%"
        xs, ys = [x for x, _ in points], [y + offset for _, y in points]
        axes.scatter(xs, ys, s=26, color=colour, marker=shape, label=label, alpha=0.85, linewidths=0)
    axes.set_yticks(range(len(order)), [TITLES.get(m, m) for m in order])
    for text, method in zip(axes.get_yticklabels(), order, strict=True):
        text.set_fontweight("bold" if method == OURS else "normal")
    axes.set_xlim(0, 101)
    axes.set_ylim(-0.7, len(order) - 0.3)
    axes.set_xlabel("AUC-PR (%), one mark per sparsity; dotted: share of wrong labels")
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    if levels:
        axes.legend(ncols=len(levels), frameon=False, loc="lower left", bbox_to_anchor=(-0.02, 1), handletextpad=0.2)
    figure.text(0.99, 0.99, _caption(dataset), ha="right", va="top", fontsize=8, color="#555555")
    figure.tight_layout()
    paths = []
    for kind, facts in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": "sgoif"})):
        path = folder / f"{table}_detection.{kind}"
        with replacing(path, seal=True) as temporary:
            figure.savefig(temporary, format=kind, dpi=160, metadata=facts)
        paths.append(path)
    plt.close(figure)
    return paths


def _caption(dataset: Mapping[str, Any]) -> str:
    place = f", in the place of {dataset['stands_for']}" if dataset.get("stands_for") else ""
    return f"{dataset['title']}{place}; mean of {len(dataset['seeds'])} seeds"
