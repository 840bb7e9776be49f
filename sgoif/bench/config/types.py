"""The types of a resolved configuration. `config.schema.json` describes every key."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

Task = Literal["noisy", "ood"]
VARIANT_KINDS = ("ablation", "stability", "backends", "sensitivity")  # of tables whose rows are compared with the first
TABLE_ROW_REASON = "run only in the settings of the tables that show it"  # of rows that tables add


class ShareSpec(TypedDict, total=False):
    """The settings and seeds to which something is restricted; a key that is left out means all."""

    settings: list[str]
    seeds: list[int]
    besides: list[ShareSpec]
    reason: str


class DatasetSpec(TypedDict, total=False):
    """The keys that datasets of both tasks have."""

    optional: bool
    title: str
    stands_for: str
    recipe: dict[str, Any]
    seeds: list[int]
    val: int
    methods: list[str]
    extra_methods: list[str]
    restrict: dict[str, ShareSpec]
    cells_per_job: int
    processes: int


class NoisySpec(DatasetSpec, total=False):
    """A dataset of the noisy-label task."""

    settings: dict[str, dict[str, Any]]
    tuning: dict[str, dict[str, Any]]
    tuning_seeds: list[int]
    tuning_methods: list[str]
    retrain: bool | list[str] | dict[str, ShareSpec]
    retrain_same: bool | list[str] | dict[str, ShareSpec]


class ValidationSpec(TypedDict):
    """OOD validation images: so many of a dataset."""

    set: str
    images: int


class OodSpec(DatasetSpec, total=False):
    """An in-distribution dataset of the OOD task."""

    near: list[str]
    far: list[str]
    auxiliary: str | None
    validation: ValidationSpec
    openood_lists: bool
    tuning: bool


class TableSet(TypedDict, total=False):
    """One dataset and setting of a table; `gap` says why the table leaves it out."""

    dataset: str
    setting: str
    title: str
    stands_for: str
    gap: str


class TableSpec(TypedDict, total=False):
    """A table to assemble."""

    kind: str
    title: str
    task: Task
    dataset: str
    datasets: list[str]
    settings: list[str]
    sets: list[TableSet]
    stands_for: str
    methods: list[str]
    extended: bool
    ood: str
    selection: str


class Gap(TypedDict):
    """A dataset that a run does not measure, and why."""

    task: Task
    dataset: str
    title: str
    reason: str


class DataSpec(TypedDict):
    """Where datasets come from and go to."""

    root: str
    mirror: str | None
    download: bool


class SelectSpec(TypedDict, total=False):
    """What a run is reduced to; a key that is left out means all."""

    methods: list[str]
    settings: list[str]
    seeds: list[int]
    datasets: list[str]
    val: dict[str, int]


class ResolvedConfig(TypedDict, total=False):
    """A configuration after `resolve_config`: merged, checked, with defaults."""

    run: str
    data: DataSpec
    execution: dict[str, Any]
    tracking: dict[str, Any]
    recipes: dict[str, dict[str, Any]]
    methods: dict[str, list[str]]
    params: dict[str, dict[str, Any]]
    variants: dict[str, dict[str, dict[str, Any]]]
    noisy: dict[str, NoisySpec]
    ood: dict[str, OodSpec]
    fidelity: dict[str, dict[str, Any]]
    tables: dict[str, TableSpec]
    not_run: list[Gap]
    tables_not_run: list[dict[str, str]]
    seeds_not_run: list[dict[str, Any]]
    select: SelectSpec
