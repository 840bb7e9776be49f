"""The layout of a table: what it shows, in which order, under which titles. summary.json has one for each table.

`resolve_layout` makes it from the configuration; tables, figures and the report read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sgoif.bench.config.types import VARIANT_KINDS

TABLE_KINDS = {  # in the order in which tables are shown, with the title of a table that the configuration gives none
    "noise_grid": "Wrong labels found, by noise rate and sparsity",
    "noise_sets": "Wrong labels found, by dataset",
    "regimes": "Wrong labels found, by regime",
    "ood": "Out-of-distribution detection",
    "ablation": "Ablation of SG-OIF",
    "stability": "Ablation of SG-OIF: stability and cost",
    "backends": "Curvature backends of SG-OIF",
    "sensitivity": "Sensitivity of SG-OIF to its settings",
    "scores": "Declared scores of every method",
    "cleaning": "What is removed before retraining",
    "cost": "Measured cost",
}


@dataclass(frozen=True)
class Panel:
    """One dataset with one noise setting, as a table shows it.

    Attributes:
        task: "noisy" or "ood".
        dataset: Name of the dataset.
        setting: Name of the noise setting, "clean" for OOD detection.
        title: Name of the dataset as printed.
        stands_for: The dataset of the paper that this one replaces; empty if it is the paper's own.
        kind: Kind of noise; empty for clean labels.
        noise: Noise rate, None if the labels are as people made them.
        sparsity: Sparsity of class-conditional noise, None for other kinds.
        column: The paper's column that the setting belongs to, if the configuration names it.
        methods: Methods with a row.
        seeds: Seeds that the methods are run with.
        tuning: Titles of what was set aside for tuning.
        near: OOD sets near to the dataset.
        far: OOD sets far from it.
    """

    task: str
    dataset: str
    setting: str
    title: str
    stands_for: str = ""
    kind: str = ""
    noise: float | None = None
    sparsity: float | None = None
    column: str = ""
    methods: list[str] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    tuning: list[str] = field(default_factory=list)
    near: list[str] = field(default_factory=list)
    far: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class AbsentDataset:
    """A dataset that a table names but cannot show, with the reason."""

    dataset: str
    title: str
    reason: str


@dataclass(frozen=True)
class VariantRow:
    """A row of a table of variants.

    Attributes:
        method: The method with its variant.
        change: The fields of the method that the variant changes, with their values.
        name: The paper's name of the change; empty if it has none.
    """

    method: str
    change: dict[str, Any]
    name: str


@dataclass(frozen=True)
class TableLayout:
    """What a table shows.

    Attributes:
        kind: One of `TABLE_KINDS`.
        task: "noisy" or "ood".
        title: Title of the table.
        selection: Sentence on how epochs and hyper-parameters were chosen.
        extended: Whether an ablation has its extended columns, an OOD table what OpenOOD publishes.
        panels: Datasets and settings, in order.
        ood_panels: The ID set whose OOD metrics an ablation shows for its first row; empty or one.
        not_run: Datasets without results.
        rows: Rows of a table of variants; the first is the full method.
        full: Settings of the full method; empty in other tables.
    """

    kind: str
    task: str
    title: str
    selection: str = ""
    extended: bool = False
    panels: list[Panel] = field(default_factory=list)
    ood_panels: list[Panel] = field(default_factory=list)
    not_run: list[AbsentDataset] = field(default_factory=list)
    rows: list[VariantRow] = field(default_factory=list)
    full: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TableLayout:
        """Read a layout as summary.json holds it."""
        return cls(
            kind=value["kind"],
            task=value.get("task", "noisy"),
            title=value["title"],
            selection=value.get("selection", ""),
            extended=value.get("extended", False),
            panels=[Panel(**panel) for panel in value["panels"]],
            ood_panels=[Panel(**panel) for panel in value.get("ood", [])],
            not_run=[AbsentDataset(**absent) for absent in value["not_run"]],
            rows=[VariantRow(**row) for row in value.get("rows", [])],
            full=value.get("full", {}),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the layout as summary.json holds it; `rows` and `full` only for tables of variants."""
        value = asdict(self)
        value["ood"] = value.pop("ood_panels")
        if self.kind not in VARIANT_KINDS:
            del value["rows"], value["full"]
        return value


def stand_ins(panels: Iterable[Panel]) -> list[str]:
    """Return one phrase for each dataset that stands in for one of the paper."""
    return list(dict.fromkeys(f"{p.title} in place of {p.stands_for}" for p in panels if p.stands_for))
