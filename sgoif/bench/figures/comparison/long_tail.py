"""AUC-PR against the balance of the classes: how many times the largest class is as large as the smallest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sgoif.bench.figures import _regimes
from sgoif.bench.figures._data import FigureData

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLACE = 14
TITLE = "Wrong labels found in a long tail"
CAPTION = (
    "AUC-PR against the size of the largest class over that of the smallest (log scale; 1 = balanced), one panel for "
    "each kind of noise. Mean over seeds; with several, bars hold all of them. The best methods are named, the others "
    "pale."
)


def subjects(config: Mapping[str, Any]) -> list[str]:
    """Return the tables that vary the balance of the classes."""
    return _regimes.tables_with(config, "balance")


def draw(table: str, data: FigureData) -> Figure | None:
    """Draw the figure of one table."""
    return _regimes.draw(table, data, "balance", "largest class over smallest", ticks=lambda ratio: f"{ratio:g}")
