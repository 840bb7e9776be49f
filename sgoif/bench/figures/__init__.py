"""Draws the figures of a run as SVG and PNG: one module for each, found by listing the folders of this package.

`comparison` holds the figures that compare methods, `method` those about SG-OIF itself.

Way in: `write_figures(run_dir, config)`, which draws all of them in one process. Reads `results/<run>/summary.json`,
`metrics` and `curves`; writes `results/<run>/figures`. A new figure is one file in one of the folders with

    TITLE, CAPTION    words for the picture and for the report
    PLACE             its place among the figures, by number
    subjects(config)  what it is drawn for, once each: names of tables, of datasets or of fidelity measurements
    draw(subject, data) -> matplotlib figure, or None where the run has nothing to draw

It becomes `figures/<subject>_<module>.{svg,png}`, a target of the workflow and a part of the report. Where there is
nothing to draw the files are empty, and neither the report nor `publish` shows them. Modules whose name begins with an
underscore are helpers. A figure draws what `_data.FigureData` reads.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

FILE_TYPES = ("svg", "png")
FOLDERS = ("comparison", "method")


@dataclass(frozen=True)
class PlannedFigure:
    """One figure of a run.

    Attributes:
        subject: Name of the table, dataset or fidelity measurement that it is drawn for.
        module: The module that draws it.
    """

    subject: str
    module: ModuleType

    @property
    def name(self) -> str:
        """Name of its files, without the suffix."""
        return f"{self.subject}_{self.kind}"

    @property
    def kind(self) -> str:
        """Name of its module."""
        return self.module.__name__.rsplit(".", 1)[1]

    def about(self, config: Mapping[str, Any]) -> str:
        """Return what it is drawn for, in words: a dataset's title, or a table."""
        if self.subject in config["noisy"]:
            return str(config["noisy"][self.subject].get("title", self.subject))
        if self.subject in config["tables"]:
            number = self.subject.removeprefix("table")
            return f"Table {number}" if number.isdigit() else self.subject.replace("_", " ")
        return str(config["fidelity"][self.subject]["title"])

    @property
    def files(self) -> list[str]:
        """Names of its files."""
        return [f"{self.name}.{file_type}" for file_type in FILE_TYPES]


@functools.cache
def modules() -> tuple[ModuleType, ...]:
    """Import the modules that draw a figure, in the order of their places."""
    names = [
        f"{__name__}.{folder}.{found.name}"
        for folder in FOLDERS
        for found in pkgutil.iter_modules([str(Path(__file__).parent / folder)])
    ]
    return tuple(sorted((importlib.import_module(name) for name in names), key=lambda m: m.PLACE))


def planned(config: Mapping[str, Any]) -> list[PlannedFigure]:
    """List every figure of a configuration; needs neither results nor matplotlib."""
    return [PlannedFigure(subject, module) for module in modules() for subject in module.subjects(config)]


def drawn(run_dir: Path, config: Mapping[str, Any]) -> list[PlannedFigure]:
    """List the figures of a run that show something."""
    folder = Path(run_dir) / "figures"
    return [one for one in planned(config) if (path := folder / f"{one.name}.svg").is_file() and path.stat().st_size]


def write_figures(run_dir: Path, config: Mapping[str, Any], kind: str | None = None) -> list[Path]:
    """Draw the figures of a run into <run>/figures.

    Args:
        run_dir: Folder of the run.
        config: Its resolved configuration.
        kind: Name of a module, to draw only its figures.

    Returns:
        The files; those of a figure that has nothing to show are empty.
    """
    from sgoif.bench.figures._data import FigureData
    from sgoif.bench.figures._style import paper, save

    data = FigureData(Path(run_dir), config)
    paths = []
    with paper():
        for one in (p for p in planned(config) if kind in (None, p.kind)):
            figure = one.module.draw(one.subject, data)
            paths += save(figure, data.run_dir / "figures" / one.name, one.module.TITLE)
    return paths
