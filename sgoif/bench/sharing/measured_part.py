"""Reduces a configuration to what partial runs hold, so that a run that is not finished is shown as far as it is.

A dataset without a cell goes to `not_run`, a table with nothing to show to `tables_not_run`. A setting without one is a
gap of the tables that name it. A seed that no cell of a dataset has is no seed of it, and goes to `seeds_not_run`. A
cell that is missing beside others stays: it is "not run" in its row. What is there in full stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sgoif.bench.config.types import VARIANT_KINDS
from sgoif.bench.evaluation.resolve_layout import resolve_layout
from sgoif.bench.evaluation.table_layout import Panel, TableLayout
from sgoif.bench.execution.plan import CLEAN
from sgoif.bench.methods.registry import SHARED, split_variant
from sgoif.bench.sharing.partial_run import Owner
from sgoif.bench.tables.captions import describe_noise
from sgoif.bench.tables.names import is_ranked

NOT_YET = "not run yet"
CHANCE = "random"  # the method that ranks by chance, and needs no training
Config = dict[str, Any]


def measured_part(config: Config, cells: Iterable[Owner]) -> Config:
    """Return the configuration of what is measured.

    Args:
        config: A resolved configuration, with all its datasets.
        cells: The cells that there are.

    Returns:
        A configuration with the same cells, and with the reason `NOT_YET` for datasets, settings and tables without.
    """
    held = set(cells)
    config = {**config, "not_run": list(config["not_run"])}
    wanted = {task: config[task] for task in ("noisy", "ood")}
    for task, datasets in wanted.items():
        config[task] = {name: _with_seeds(task, name, spec, held) for name, spec in datasets.items()}
        config[task] = {name: spec for name, spec in config[task].items() if spec["seeds"]}
        known = {(gap["task"], gap["dataset"]) for gap in config["not_run"]}
        for name, spec in datasets.items():
            if name not in config[task] and (task, name) not in known and spec.get("tuning") is not True:
                gap = {"task": task, "dataset": name, "title": spec.get("title", name), "reason": NOT_YET}
                config["not_run"].append(gap)
            there = config[task].get(name, spec)["seeds"]  # of one that is named as a whole all
            lacking = [seed for seed in spec["seeds"] if seed not in there]
            if lacking:
                about = {"task": task, "title": spec.get("title", name), "seeds": lacking, "reason": NOT_YET}
                config["seeds_not_run"] = [*config.get("seeds_not_run", []), about]
    settings = {(task, dataset, setting) for task, dataset, setting, _, _ in held}
    config["tables"] = {name: _with_gaps(table, wanted["noisy"], settings) for name, table in config["tables"].items()}
    empty = {name: table for name, table in config["tables"].items() if not _has_something(name, table, config, held)}
    if empty:
        titles = {name: resolve_layout(name, table, config).title for name, table in empty.items()}
        config["tables_not_run"] = [{"title": title, "reason": NOT_YET} for title in titles.values()]
        config["tables"] = {name: table for name, table in config["tables"].items() if name not in empty}
    return config


def _with_seeds(task: str, dataset: str, spec: Mapping[str, Any], held: set[Owner]) -> Config:
    """The part of a dataset, with the seeds that some cell of it has; a ranking by chance makes no seed."""
    found = {seed for of, name, _, seed, method in held if (of, name) == (task, dataset) and method != CHANCE}
    seeds = [seed for seed in spec["seeds"] if seed in found]
    is_tuned = task == "noisy" and any(owner[:2] == ("tuning", dataset) for owner in held)
    return {**spec, "seeds": seeds or (list(spec["seeds"]) if is_tuned else [])}


def _with_gaps(table: Mapping[str, Any], noisy: Mapping[str, Any], held: set[tuple[str, str, str]]) -> Config:
    """A table of noisy labels without the settings that have no cell; where it names them one by one, as gaps."""
    if table["kind"] in ("ood", "regimes", "cost") or table.get("task", "noisy") != "noisy":
        return dict(table)  # of whole datasets; a table of regimes tells by itself which cells have no number
    if "sets" in table:
        return {**table, "sets": [_or_gap(chosen, noisy, held) for chosen in table["sets"]]}
    if "dataset" not in table or table["dataset"] not in noisy:
        return dict(table)
    every = noisy[table["dataset"]]["settings"]
    shown = table.get("settings") or [
        name for name, noise in every.items() if table["kind"] != "noise_grid" or noise["kind"] == "class_conditional"
    ]
    there = [name for name in shown if ("noisy", table["dataset"], name) in held]
    return dict(table) if not there or len(there) == len(shown) else {**table, "settings": there}


def _or_gap(chosen: Mapping[str, Any], noisy: Mapping[str, Any], held: set[tuple[str, str, str]]) -> Config:
    dataset, setting = chosen["dataset"], chosen.get("setting", "")
    is_known = dataset in noisy and setting in noisy[dataset]["settings"]
    if "gap" in chosen or not is_known or ("noisy", dataset, setting) in held:
        return dict(chosen)
    noise = noisy[dataset]["settings"][setting]
    rate = noise.get("noise", noise.get("rate"))
    words = describe_noise(Panel("noisy", dataset, setting, "", kind=noise["kind"], noise=rate))
    return {**chosen, "gap": NOT_YET, "title": f"{noisy[dataset]['title']} {words}"}


def _has_something(name: str, table: Mapping[str, Any], config: Config, held: set[Owner]) -> bool:
    """Tell whether a table has a row to show; in one of variants the full method alone shows nothing."""
    layout = resolve_layout(name, table, config)
    if not layout.panels:  # what no run of this configuration has stays, with the configuration's reasons
        return bool(layout.not_run) and all(absent.reason != NOT_YET for absent in layout.not_run)
    there = {(task, dataset, setting or CLEAN, method) for task, dataset, setting, _, method in held}
    telling = _telling(layout, table)
    return any(
        (panel.task, panel.dataset, panel.setting or CLEAN, method) in there
        for panel in layout.panels
        for method in telling.intersection(panel.methods)
    )


def _telling(layout: TableLayout, table: Mapping[str, Any]) -> set[str]:
    """The rows that a table is there for: in one of chosen methods those that stand apart from the tables of all."""
    methods = {method for panel in layout.panels for method in panel.methods} - {*SHARED}
    if layout.kind in VARIANT_KINDS:
        return methods - {layout.rows[0].method}
    if "methods" not in table:
        return methods
    return {m for m in methods if split_variant(m)[1] or not is_ranked(layout.task, m)} or methods
