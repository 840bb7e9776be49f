"""AUC-PR against the number of training epochs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sgoif.bench.figures import _regimes
from sgoif.bench.figures._data import FigureData

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLACE = 16
TITLE = "Wrong labels found, by length of training"
CAPTION = (
    "AUC-PR against the number of training epochs (log scale), one panel for each kind of noise; every point is a "
    "training run of its own length. Mean over seeds; with several, bars hold all of them. The best methods are "
    "named, the others pale."
)


def subjects(config: Mapping[str, Any]) -> list[str]:
    """Return the tables that vary the number of epochs."""
    return _regimes.tables_with(config, "epochs")


def draw(table: str, data: FigureData) -> Figure | None:
    """Draw the figure of one table."""
    return _regimes.draw(table, data, "epochs", "epochs")
