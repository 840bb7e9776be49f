"""AUC-PR against the noise rate: one panel for each sparsity or kind of noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sgoif.bench.evaluation.table_layout import Panel
from sgoif.bench.figures import _lines, _style
from sgoif.bench.figures._data import SEEDS, FigureData, planned_panels, tables_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLACE = 12
TITLE = "Wrong labels found, by noise rate"
CAPTION = (
    "AUC-PR (average precision of finding the wrong labels) against the share of wrong labels, one panel for each "
    "sparsity of the noise matrix or kind of noise. Mean over seeds; with several, bars hold all of them. The best "
    "methods are named, the others pale; the axis begins at the lowest point of a named method. A random ranking gets "
    f"the noise rate. {SEEDS}"
)


def subjects(config: Mapping[str, Any]) -> list[str]:
    """Return the tables with at least two noise rates of one kind."""
    tables = tables_of(config, "noise_grid", "noise_sets")
    return [table for table in tables if _groups(planned_panels(config, table))]


def draw(table: str, data: FigureData) -> Figure | None:
    """Draw the figure of one table."""
    groups = _groups(data.layout(table).panels)
    panels = [_lines.LinePanel(words, _lines.quality_lines(data, table, points)) for words, points in groups.items()]
    figure = _lines.draw_panels(panels, "noise rate (%)", "AUC-PR (%)")
    if figure is not None:
        sets = dict.fromkeys(data.title(p.dataset) for points in groups.values() for _, p in points)
        _style.subtitle(figure, "; ".join(sets))
    return figure


def _groups(panels: Sequence[Panel]) -> dict[str, list[tuple[float, Panel]]]:
    """Title -> (noise rate in percent, panel) of panels that differ in nothing but the rate; at least two rates."""
    groups: dict[tuple[str, str, str, float | None], list[tuple[float, Panel]]] = {}
    for p in panels:
        if p.noise is not None:
            groups.setdefault((p.dataset, p.title, p.kind, p.sparsity), []).append((100 * p.noise, p))
    several = len({dataset for dataset, *_ in groups}) > 1
    titled = {}
    for (_, name, kind, sparsity), points in groups.items():
        words = kind.replace("_", "-") if sparsity is None else f"sparsity {sparsity:.1f}"
        if len({rate for rate, _ in points}) > 1:
            titled[f"{name}, {words}" if several else words] = points
    return titled
