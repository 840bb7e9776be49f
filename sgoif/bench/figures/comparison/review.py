"""Precision against the share of examples that a person looks at, most suspicious first."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sgoif.bench.evaluation.table_layout import Panel
from sgoif.bench.figures import _lines, _style
from sgoif.bench.figures._data import RANDOM, SEEDS, FigureData, planned_panels, tables_of
from sgoif.bench.methods.registry import PLAIN
from sgoif.bench.tables.captions import describe_noise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLACE = 18
TITLE = "How many of the reviewed labels are wrong"
CAPTION = (
    "Precision among the 1, 5 and 10% of examples that look most suspicious: of the labels that a person checks, how "
    "many are wrong. One panel for each dataset and noise rate (in a grid the mean over sparsities); with several "
    "seeds, bars hold all of them. The best methods are named, the others pale; the axis of a panel begins at the "
    "lowest point of a named method. Where fewer labels are wrong than are reviewed, 100% cannot be reached. " + SEEDS
)
SHARES = (1, 5, 10)  # percent, for which recall is recorded


def subjects(config: Mapping[str, Any]) -> list[str]:
    """Return the tables that the figure is drawn for."""
    return [t for t in tables_of(config, "noise_grid", "noise_sets") if planned_panels(config, t)]


def draw(table: str, data: FigureData) -> Figure | None:
    """Draw the figure of one table."""
    groups: dict[tuple[Any, ...], list[Panel]] = {}
    for p in data.layout(table).panels:
        groups.setdefault((p.dataset, p.kind, p.noise or p.setting), []).append(p)
    several = len({p.dataset for group in groups.values() for p in group}) > 1  # else the subtitle names it
    panels = [_lines.LinePanel(_title(group, several), _precision(data, table, group)) for group in groups.values()]
    figure = _lines.draw_panels(panels, "reviewed (%)", "of these wrong (%)", own_axes=True)
    if figure is not None:
        sets = dict.fromkeys(data.title(p.dataset) for group in groups.values() for p in group)
        _style.subtitle(figure, "; ".join(sets))
    return figure


def _title(panels: Sequence[Panel], with_dataset: bool) -> str:
    first = panels[0]
    noise = f"{100 * (first.noise or 0):.0f}% noise" if len(panels) > 1 else describe_noise(first)
    words = textwrap.fill(noise, 24)
    return f"{first.title}\n{words}" if with_dataset else words


def _precision(data: FigureData, table: str, panels: Sequence[Panel]) -> dict[str, _lines.Line]:
    """Method -> precision in percent at each share, mean over the panels; a method that lacks one is left out."""
    rates = data.numbers(table, "base_rate")
    recalls = {share: data.compared(table, f"recall_at_{share}") for share in SHARES}
    lines: dict[str, _lines.Line] = {}
    for method in dict.fromkeys(m for p in panels for m in p.methods if m not in (PLAIN, RANDOM)):
        line = _lines.Line()
        for share, found in recalls.items():
            values = [_at(p, method, rates, found, share) for p in panels]
            if any(v is None for v in values):
                break
            known = [v for v in values if v is not None]
            line.x.append(share)
            line.seeds.append(max(map(len, known)))
            for bound, summed in ((line.mean, np.mean), (line.low, np.min), (line.high, np.max)):
                bound.append(float(np.mean([summed(v) for v in known])))
        else:
            lines[method] = line
    return lines


def _at(
    panel: Panel, method: str, rates: Mapping[Any, Any], recalls: Mapping[Any, Any], share: int
) -> list[float] | None:
    """Precision of every seed: recall x wrong labels / reviewed ones, in percent."""
    rate = rates.get((panel.dataset, panel.setting, ""))
    record = recalls.get((panel.dataset, panel.setting, method))
    if rate is None or record is None:
        return None
    values = record.get("values") or [record["mean"]]
    return [min(100.0, 100 * v * rate["mean"] / (share / 100)) for v in values]
