"""Resolves what the configuration says about a table into its layout: which panels, methods, rows and titles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sgoif.bench.config.types import VARIANT_KINDS
from sgoif.bench.data import catalogue
from sgoif.bench.evaluation.regime_words import describe_regime
from sgoif.bench.evaluation.table_layout import (
    TABLE_KINDS,
    AbsentDataset,
    Panel,
    TableLayout,
    VariantRow,
)
from sgoif.bench.methods.registry import OURS, PLAIN, has_row, split_variant
from sgoif.errors import UserError

SELECTION = (
    "Epochs and hyper-parameters: the configuration's, else the methods' defaults. No epoch is selected: what is shown "
    "is the score at the end of training (SG-OIF's: its influence over the visits in its window, class model and "
    "margins over all of training). No job sees the truth; what the authors had seen when they chose the defaults, and "
    "how many they tried, is in docs/lab-notebook/defaults.md."
)
NOT_IN_RUN = "the dataset is not part of this run's configuration"


def resolve_layout(table: str, spec: Mapping[str, Any], config: Mapping[str, Any]) -> TableLayout:
    """Make the layout of a table.

    Args:
        table: Name of the table.
        spec: Its part of the configuration.
        config: The resolved configuration.

    Raises:
        UserError: If the table names a dataset, setting or method that does not exist.
    """
    task = "ood" if spec["kind"] == "ood" else spec.get("task", "noisy")
    absent = {n["dataset"]: n for n in config.get("not_run") or [] if n["task"] == task}
    datasets = config.get(task) or {}
    tuned = [entry.get("title", d) for d, entry in datasets.items() if entry.get("tuning") is True]  # ID sets of OOD
    panels: list[Panel] = []
    not_run: list[AbsentDataset] = []
    for choice in _choices(spec, datasets, absent):
        if choice.gap is None and choice.dataset in datasets:
            panel = _panel(table, spec, task, choice, datasets[choice.dataset])
            panels.append(replace(panel, tuning=panel.tuning or tuned))
        else:
            not_run.append(_absent(table, task, choice, datasets, absent))
    rows, full = _variants(table, spec, config, panels) if spec["kind"] in VARIANT_KINDS else ([], {})
    return TableLayout(
        kind=spec["kind"],
        task=task,
        title=spec.get("title") or _default_title(table, spec["kind"]),
        selection=spec.get("selection", SELECTION),
        extended=spec.get("extended", False),
        panels=panels,
        ood_panels=_ood_panels(table, spec["ood"], rows[0].method, config) if "ood" in spec else [],
        not_run=not_run,
        rows=rows,
        full=full,
    )


def _default_title(table: str, kind: str) -> str:
    number = table.removeprefix("table")
    return f"Table {number}: {TABLE_KINDS[kind]}" if number.isdigit() else TABLE_KINDS[kind]


# ------------------------------------------------------------------------------------------------ datasets


@dataclass(frozen=True)
class _Choice:
    """A dataset and setting that a table asks for; `gap`: the configuration's reason not to show it."""

    dataset: str
    setting: str
    gap: str | None = None
    words: Mapping[str, str] = field(default_factory=dict)  # overrides of the panel's own, such as `stands_for`


def _choices(spec: Mapping[str, Any], datasets: Mapping[str, Any], absent: Mapping[str, Any]) -> list[_Choice]:
    """Return what a table asks for: its `sets`, or its `dataset(s)` with their `settings`, or everything there is."""
    if "sets" in spec:
        return [_choice_of_set(chosen) for chosen in spec["sets"]]
    choices = []
    for dataset in _chosen_datasets(spec, datasets, absent):
        settings = _default_settings(spec["kind"], dataset, datasets)
        choices += [_Choice(dataset, setting) for setting in spec.get("settings") or settings]
    return choices


def _choice_of_set(chosen: Mapping[str, Any]) -> _Choice:
    words = {key: chosen[key] for key in ("stands_for", "title") if key in chosen}
    return _Choice(chosen["dataset"], chosen.get("setting", ""), chosen.get("gap"), words)


def _chosen_datasets(spec: Mapping[str, Any], datasets: Mapping[str, Any], absent: Mapping[str, Any]) -> list[str]:
    if "dataset" in spec:
        return [spec["dataset"]]
    if spec.get("datasets"):
        return list(spec["datasets"])
    measured = [d for d, entry in datasets.items() if entry.get("tuning") is not True]
    missing = [d for d in absent if d not in datasets and spec["kind"] != "cost"]
    return [*measured, *missing]


def _default_settings(kind: str, dataset: str, datasets: Mapping[str, Any]) -> list[str]:
    """Return all settings of a dataset; for a noise grid those of class-conditional noise."""
    settings = datasets.get(dataset, {}).get("settings") or {"clean": {}}
    if kind != "noise_grid" or dataset not in datasets:
        return list(settings)
    grid = [name for name, noise in settings.items() if noise.get("kind") == "class_conditional"]
    if not grid:
        raise UserError(f"a noise_grid table needs class_conditional settings; noisy.{dataset} has none")
    return grid


def _absent(
    table: str, task: str, choice: _Choice, datasets: Mapping[str, Any], absent: Mapping[str, Any]
) -> AbsentDataset:
    """Return why a table cannot show a dataset.

    Raises:
        UserError: If no such dataset is known.
    """
    dataset = choice.dataset
    title = datasets.get(dataset, {}).get("title") or dataset
    if choice.gap is not None:
        return AbsentDataset(dataset, choice.words.get("title", title), choice.gap)
    if dataset in absent:
        return AbsentDataset(**{key: absent[dataset].get(key, dataset) for key in ("dataset", "title", "reason")})
    if dataset in catalogue.DATASETS:
        return AbsentDataset(dataset, title, NOT_IN_RUN)
    known = ", ".join([*datasets, *absent]) or "none"
    raise UserError(f"tables.{table}: no {task} dataset {dataset!r} in the configuration; there are: {known}")


# ------------------------------------------------------------------------------------------------ panels


def _panel(table: str, spec: Mapping[str, Any], task: str, choice: _Choice, entry: Mapping[str, Any]) -> Panel:
    """Return the panel of a dataset; `entry` is its part of the configuration."""
    settings = entry.get("settings") or {}
    if task == "noisy" and choice.setting not in settings:
        known = ", ".join(settings)
        raise UserError(f"tables.{table}: noisy.{choice.dataset} has no setting {choice.setting!r}; there are: {known}")
    noise = settings.get(choice.setting) or {}
    title = entry.get("title", choice.dataset)
    if spec["kind"] == "regimes":
        title = describe_regime(title, noise)
    tuning = (entry.get("tuning") or {}) if task == "noisy" else {}
    stands_for = {**spec, **choice.words}.get("stands_for")
    return Panel(
        task=task,
        dataset=choice.dataset,
        setting=choice.setting,
        title=title,
        stands_for=stands_for or entry.get("stands_for") or "",
        kind=noise.get("kind", ""),
        noise=noise.get("noise", noise.get("rate")),
        sparsity=noise.get("sparsity", 0.0) if noise.get("kind") == "class_conditional" else None,
        column=noise.get("column", ""),
        methods=_shown_methods(spec, task, entry),
        seeds=list(entry["seeds"]),
        tuning=[f"{title} {name}" for name in tuning],
        near=list(entry.get("near") or []),
        far=list(entry.get("far") or []),
    )


def _shown_methods(spec: Mapping[str, Any], task: str, entry: Mapping[str, Any]) -> list[str]:
    """Return the methods of a panel: those the table names, else all with a row of their own.

    A table of variants that names none has those of our method.
    """
    if "methods" in spec:
        return list(spec["methods"])
    methods = [PLAIN, *(m for m in entry["methods"] if m != PLAIN)]
    if spec["kind"] in VARIANT_KINDS:
        return [m for m in methods if split_variant(m)[0] == OURS]
    return [m for m in methods if has_row(task, m)]


def _ood_panels(table: str, dataset: str, method: str, config: Mapping[str, Any]) -> list[Panel]:
    """Return the ID set whose OOD metrics a table of variants shows for its first row; empty if it is not run."""
    if dataset not in config["ood"]:
        if dataset in catalogue.DATASETS:
            return []
        raise UserError(f"tables.{table}.ood: no ood dataset {dataset!r}; there are: {', '.join(config['ood'])}")
    panel = _panel(table, {"kind": "ood"}, "ood", _Choice(dataset, "clean"), config["ood"][dataset])
    return [replace(panel, methods=[method])]


# ------------------------------------------------------------------------------------------------ rows of variants


def _variants(
    table: str, spec: Mapping[str, Any], config: Mapping[str, Any], panels: Sequence[Panel]
) -> tuple[list[VariantRow], dict[str, Any]]:
    """Return the rows of a table of variants, and the settings of the first, which the others start from."""
    from sgoif import InfluenceConfig

    methods = spec.get("methods") or list(dict.fromkeys(m for panel in panels for m in panel.methods))
    if not methods:
        raise UserError(f"tables.{table}: name its rows in `methods`")
    paper_names = {tuple(change.items()): name for name, change in InfluenceConfig.ablations().items()}
    rows = []
    for method in methods:
        name, variant = split_variant(method)
        change = dict((config.get("variants") or {}).get(name, {}).get(variant, {}))
        paper_name = paper_names.get(tuple(change.items()), "") if change or not variant else ""
        rows.append(VariantRow(method, change, paper_name))
    common = (config.get("params") or {}).get(split_variant(methods[0])[0], {})
    full = InfluenceConfig.from_dict({**common, **rows[0].change})
    return rows, full.to_dict()
