"""Check that the tables of a configuration name datasets, settings and methods that exist, before anything is run."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from sgoif.bench.config.checks import check_method
from sgoif.bench.config.schema import check_known
from sgoif.bench.config.types import VARIANT_KINDS, ResolvedConfig, TableSpec, Task
from sgoif.bench.data import catalogue
from sgoif.bench.methods import registry
from sgoif.errors import UserError


def table_task(table: TableSpec) -> Task:
    """Return the task whose datasets a table shows."""
    return "ood" if table["kind"] == "ood" else table.get("task", "noisy")


def check_tables(config: ResolvedConfig) -> None:
    """Check every table: its datasets, their settings, its methods, and the ID set of its OOD figures.

    A dataset that is known but no part of the run is no mistake where a table shows it as a gap. A grid of one dataset
    would be empty then.

    Raises:
        UserError: For the first name that does not exist; the message names the key and the nearest valid names.
    """
    for name, table in config["tables"].items():
        where, task = f"tables.{name}", table_task(table)
        absent = {gap["dataset"] for gap in config["not_run"] if gap["task"] == task}
        for dataset, setting, key in _named(table):
            check_known(dataset, {*config[task], *absent, *catalogue.DATASETS}, f"{where}.{key}", f"{task} dataset")
            if task == "noisy" and dataset in config["noisy"] and setting is not None:
                known = config["noisy"][dataset]["settings"]
                check_known(setting, known, f"{where} (noisy.{dataset}.settings)", "setting")
        if table["kind"] == "noise_grid" and "settings" not in table and "sets" not in table:
            _check_grid(table, config, absent, where)
        if table["kind"] in VARIANT_KINDS and "methods" not in table and not _has_own_rows(config):
            raise UserError(f"{where}: name its rows in `methods`; no noisy dataset of this run has {registry.OURS}")
        for method in table.get("methods", []):
            check_method(task, method, config, f"{where}.methods")
        if "ood" in table:
            check_known(table["ood"], {*config["ood"], *catalogue.DATASETS}, f"{where}.ood", "ood dataset")


def _has_own_rows(config: ResolvedConfig) -> bool:
    """Return whether a table of variants that names no rows has some: those of SG-OIF."""
    methods = (method for spec in config["noisy"].values() for method in spec["methods"])
    return any(registry.split_variant(method)[0] == registry.OURS for method in methods)


def _named(table: TableSpec) -> Iterator[tuple[str, str | None, str]]:
    """Yield (dataset, setting or None for all, key) of what a table names."""
    for number, chosen in enumerate(table.get("sets", [])):
        yield chosen["dataset"], None if "gap" in chosen else chosen.get("setting", ""), f"sets.{number}"
    if "sets" in table:
        return
    datasets = [table["dataset"]] if "dataset" in table else table.get("datasets", [])
    settings: list[Any] = [*table.get("settings", [])] or [None]
    for dataset in datasets:
        for setting in settings:
            yield dataset, setting, "dataset" if setting is None else "settings"


def _check_grid(table: TableSpec, config: ResolvedConfig, absent: Collection[str], where: str) -> None:
    """Check that the datasets of a grid, all if it names none, are run and have settings that lie on one."""
    named = table.get("dataset")
    if named is not None and named not in config["noisy"] and named not in absent:
        raise UserError(f"{where}.dataset: noisy has no {named}; add it, or take the table out with `null`")
    datasets: Collection[str] = [table["dataset"]] if "dataset" in table else table.get("datasets") or config["noisy"]
    for dataset in datasets:
        settings = config["noisy"].get(dataset, {}).get("settings", {}).values()
        if dataset in config["noisy"] and not any(noise["kind"] == "class_conditional" for noise in settings):
            raise UserError(f"{where}: a noise_grid needs class_conditional settings; noisy.{dataset} has none")
