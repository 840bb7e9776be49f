"""Heat map of OOD detection: AUROC of every method on every OOD set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sgoif.bench.evaluation.table_layout import Panel
from sgoif.bench.figures import _style
from sgoif.bench.figures._data import FigureData, tables_of
from sgoif.bench.methods.registry import OURS, PLAIN
from sgoif.bench.tables.names import STAND_IN_MARK, set_title, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLACE = 25
TITLE = "Out-of-distribution detection, set by set"
CAPTION = (
    "AUROC (%) of every method on every OOD set, mean over seeds, best mean over all sets at the top; the best of a "
    "column is framed. Sets are near or far by the configuration. An asterisk marks a set that stands in for an "
    "official one (a part of it, or other crops), so these are not OpenOOD's numbers. Blank: not measured."
)


MAX_LEVEL = 5  # columns whose names are not turned


def subjects(config: Mapping[str, Any]) -> list[str]:
    """Return the tables that the figure is drawn for."""
    return tables_of(config, "ood")


def draw(table: str, data: FigureData) -> Figure | None:
    """Draw the figure of one table."""
    panels = data.layout(table).panels
    columns = [(panel, name) for panel in panels for name in (*panel.near, *panel.far)]
    methods = [m for m in dict.fromkeys(m for p in panels for m in p.methods) if m != PLAIN]
    values = np.full((len(methods), len(columns)), np.nan)
    counts = []
    for j, (panel, name) in enumerate(columns):
        found = data.numbers(table, f"auroc:{name}")
        for i, method in enumerate(methods):
            if (record := found.get((panel.dataset, panel.setting, method))) is not None:
                values[i, j] = 100 * record["mean"]
                counts.append(record["n_seeds"])
    there = np.isfinite(values).any(1) if values.size else np.zeros(0, dtype=bool)
    if not there.any():
        return None
    order = sorted(np.flatnonzero(there), key=lambda i: -float(np.nanmean(values[i])))
    figure, grid = _style.canvas(height=0.17 * len(order) + 1.5)
    _heat_map(grid[0, 0], values[order], [methods[i] for i in order], columns)
    _style.subtitle(figure, f"AUROC (%), {_style.seeds_in_words(counts)}")
    if any(set_title(name).endswith(STAND_IN_MARK) for _, name in columns):
        _style.footnote(figure, f"{STAND_IN_MARK} stands in for the official set: a part of it, or other crops")
    return figure


def _heat_map(axes: Axes, values: np.ndarray, methods: Sequence[str], columns: Sequence[tuple[Panel, str]]) -> None:
    """Draw the cells; columns of one ID set stand together beneath its title."""
    axes.imshow(values, aspect="auto", cmap="viridis", vmin=50, vmax=100)
    for i, j in np.ndindex(*values.shape):
        if np.isfinite(values[i, j]):
            colour = "white" if values[i, j] < 82 else "black"
            axes.text(j, i, f"{values[i, j]:.0f}", ha="center", va="center", fontsize=6, color=colour)
    for j in range(values.shape[1]):
        if np.isfinite(values[:, j]).any():
            best = int(np.nanargmax(values[:, j]))
            axes.add_patch(_frame(j, best))
    turned: dict[str, Any] = {"rotation": 60, "ha": "right"} if len(columns) > MAX_LEVEL else {}
    axes.set_xticks(range(len(columns)), [_column(*c) for c in columns], fontsize=6.5, **turned)
    axes.set_yticks(range(len(methods)), [title("ood", m) for m in methods], fontsize=7)
    for text, method in zip(axes.get_yticklabels(), methods, strict=True):
        text.set_fontweight("bold" if method == OURS else "normal")
    starts = [j for j, (panel, _) in enumerate(columns) if j == 0 or panel is not columns[j - 1][0]]
    for start, end in zip(starts, [*starts[1:], len(columns)], strict=True):
        axes.text(
            (start + end - 1) / 2, -0.75, f"ID: {columns[start][0].title}", ha="center", va="bottom", fontsize=7.5
        )
        if start:
            axes.axvline(start - 0.5, color="white", linewidth=4)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.tick_params(length=0)


def _column(panel: Panel, name: str) -> str:
    return f"{'near' if name in panel.near else 'far'}: {set_title(name)}"


def _frame(column: int, row: int) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle(
        (column - 0.47, row - 0.45), 0.94, 0.9, fill=False, edgecolor=_style.RED, linewidth=1.3, clip_on=False, zorder=5
    )
