"""Figures of a run as SVG and PNG: one module of this folder for each, found by listing the folder.

A new figure is one file here with
    TITLE, CAPTION    words for the report
    PLACE             its place among the figures, by number
    FROM_CURVES       True where it draws curves, traces or pictures, which a run adopted in pieces does not have
    subjects(config)  what it is drawn for, once each: names of tables or of datasets
    draw(subject, evidence) -> matplotlib figure
It becomes `figures/<subject>_<module>.{svg,png}`, a target of the workflow and a part of the report. Modules whose name
begins with an underscore are helpers. A figure draws what `Evidence` hands it; what is missing is a labelled gap.
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

KINDS = ("svg", "png")


@dataclass(frozen=True)
class Planned:
    """One figure of a run."""

    subject: str
    module: ModuleType

    @property
    def name(self) -> str:
        return f"{self.subject}_{self.kind}"

    @property
    def kind(self) -> str:
        return self.module.__name__.rsplit(".", 1)[1]

    def about(self, config: Mapping[str, Any]) -> str:
        """What it is drawn for, in words: a dataset's title, or a table."""
        if self.subject in config["tables"]:
            number = self.subject.removeprefix("table")
            return f"Table {number}" if number.isdigit() else self.subject.replace("_", " ")
        return config["noisy"][self.subject].get("title", self.subject)

    @property
    def from_curves(self) -> bool:
        return getattr(self.module, "FROM_CURVES", False)

    @property
    def files(self) -> list[str]:
        return [f"{self.name}.{kind}" for kind in KINDS]


@functools.cache
def modules() -> tuple[ModuleType, ...]:
    """The modules that draw a figure, in the order of their places."""
    names = [m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")]
    return tuple(sorted((importlib.import_module(f"{__name__}.{n}") for n in names), key=lambda m: m.PLACE))


def planned(config: Mapping[str, Any]) -> list[Planned]:
    """Every figure that a configuration asks for. Needs neither results nor matplotlib."""
    return [Planned(subject, module) for module in modules() for subject in module.subjects(config)]


def write_figures(run_dir: Path, config: Mapping[str, Any], kind: str | None = None) -> list[Path]:
    """Draws the figures of the configuration below <run>/figures, all or those of one module; returns the files."""
    from sgoif.bench.figures._data import Evidence
    from sgoif.bench.figures._style import paper, save

    evidence = Evidence(Path(run_dir), config)
    paths = []
    with paper():
        for one in (p for p in planned(config) if kind in (None, p.kind)):
            paths += save(one.module.draw(one.subject, evidence), evidence.run_dir / "figures" / one.name)
    return paths
