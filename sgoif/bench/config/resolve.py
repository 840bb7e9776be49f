"""Resolve a configuration: merge its layers, check it, fill in defaults, recipes and the rows that tables need."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from sgoif.bench.config import checks
from sgoif.bench.config.layering import as_json, file_in_words, layer, merge, read_yaml
from sgoif.bench.config.ood_sets import check_ood_sets, other_sets
from sgoif.bench.config.schema import check_known, check_schema, fill_defaults
from sgoif.bench.config.selection import apply_selection
from sgoif.bench.config.table_checks import check_tables, table_task
from sgoif.bench.config.types import (
    TABLE_ROW_REASON,
    DatasetSpec,
    Gap,
    NoisySpec,
    ResolvedConfig,
    TableSpec,
    Task,
)
from sgoif.bench.config.values import datasets_of
from sgoif.bench.data import catalogue
from sgoif.bench.data.availability import check_availability
from sgoif.errors import UserError
from sgoif.utils.paths import ROOT


def load_config(path: Path | str, skip_missing: bool = True, select: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Read and resolve a configuration file.

    Args:
        path: A YAML file; what it extends lies in the same folder.
        skip_missing: See `resolve_config`.
        select: What the run is reduced to, see `selection`; it takes the place of the file's own key `select`.

    Returns:
        The resolved configuration, see `types.ResolvedConfig`.

    Raises:
        UserError: If the file or a value in it is not valid; the message names the file and those that it extends.
    """
    path = Path(path)
    raw = read_yaml(path)
    try:
        return resolve_config({**raw, "select": dict(select)} if select else raw, path.parent, skip_missing)
    except UserError as e:
        raise UserError(f"{file_in_words(path, raw)}: {e}") from None


def resolve_config(
    config: dict[str, Any], folder: Path | str = ROOT / "configs", skip_missing: bool = True
) -> dict[str, Any]:
    """Merge, check and complete a configuration.

    Args:
        config: Keys and values as they were read, not changed.
        folder: Where the files that `extends` names lie.
        skip_missing: Move optional datasets that are not on this machine to `not_run`, with what it takes to get them.

    Returns:
        The resolved configuration, see `types.ResolvedConfig`.

    Raises:
        UserError: If a value is not valid; the message names the key by its path and the nearest valid names.
    """
    if "run" not in config:
        raise UserError("configuration: the key 'run' is missing; every file names a run of its own, for results/<run>")
    plain = as_json(layer(config, Path(folder)))
    check_schema(plain)
    checks.check_run(plain["run"])
    resolved = cast(ResolvedConfig, fill_defaults(plain))
    checks.check_data_root(resolved["data"]["root"])
    for task, name, spec in datasets_of(resolved):
        _complete_dataset(task, name, spec, resolved)
    check_tables(resolved)
    _add_table_rows(resolved)
    variants = [f"{method}@{name}" for method, named in resolved.get("variants", {}).items() for name in named]
    for task, name, spec in datasets_of(resolved):
        checks.check_restrictions(spec, f"{task}.{name}", variants)
    checks.check_params(resolved)
    for name, noisy in resolved["noisy"].items():
        checks.check_noise(name, noisy)
    checks.check_recipes(resolved)
    for name, ood in resolved["ood"].items():
        check_ood_sets(name, ood, resolved)
    for name, measurement in resolved.get("fidelity", {}).items():
        check_known(measurement["dataset"], catalogue.DATASETS, f"fidelity.{name}.dataset", "dataset")
    if os.environ.get("SGOIF_DATA"):
        resolved["data"]["mirror"] = os.environ["SGOIF_DATA"]
    if skip_missing:
        _skip_missing_datasets(resolved)
    apply_selection(resolved)
    return cast(dict[str, Any], resolved)


def check_resolved(config: Any, path: Path) -> None:
    """Check that a resolved configuration, read from `path`, is one that Snakemake wrote.

    Raises:
        UserError: If it violates the schema or lacks defaults.
    """
    try:
        check_schema(config)
        if fill_defaults(config) != config:
            raise UserError("defaults are missing")
    except UserError as e:
        raise UserError(f"{path}: {e}; delete it and run again: Snakemake writes it") from None


def _complete_dataset(task: Task, name: str, spec: DatasetSpec, config: ResolvedConfig) -> None:
    """Fill in the recipe, the title and the methods of a dataset."""
    where = f"{task}.{name}"
    check_known(name, catalogue.DATASETS, where, "dataset")
    spec["recipe"] = _resolve_recipe(spec["recipe"], config.get("recipes", {}), f"{where}.recipe")
    for group in ("settings", "tuning"):
        settings: Any = spec.get(group, {})
        for setting, noise in settings.items() if task == "noisy" else ():
            if "recipe" in noise:
                at = f"{where}.{group}.{setting}.recipe"
                noise["recipe"] = _resolve_recipe(noise["recipe"], config.get("recipes", {}), at)
    spec.setdefault("title", catalogue.DATASETS[name].title)
    methods = spec.get("methods", config["methods"][task]) + spec.pop("extra_methods", [])
    spec["methods"] = list(dict.fromkeys(methods))
    checks.check_val(name, spec, f"{where}.val")
    tuning_methods: Any = spec.get("tuning_methods", [])
    for method in spec["methods"] + tuning_methods:
        checks.check_method(task, method, config, f"{where}.methods")
    checks.check_titles(task, spec["methods"], f"{where}.methods")


def _resolve_recipe(recipe: dict[str, Any], named: dict[str, dict[str, Any]], where: str) -> dict[str, Any]:
    """Lay a recipe over the named recipe that it is based on."""
    recipe = dict(recipe)
    base = recipe.pop("base", None)
    if base is None:
        return recipe
    check_known(base, named, f"{where}.base", "recipe")
    others = {name: value for name, value in named.items() if name != base}  # a recipe is not based on itself
    return merge(_resolve_recipe(named[base], others, f"recipes.{base}"), recipe)


def _add_table_rows(config: ResolvedConfig) -> None:
    """Have the methods that tables name as rows run in the settings the tables show.

    A method that the dataset does not run anyway is added and restricted to those settings, unless `restrict` already
    says where it is run. It is not retrained, since such tables show no test accuracy.
    """
    for wanted in config["tables"].values():
        methods = wanted.get("methods", [])
        if not methods or table_task(wanted) != "noisy":
            continue
        for dataset, setting in _shown_settings(wanted, config):
            spec = config["noisy"][dataset]
            spec.setdefault("restrict", {})
            if spec["retrain"] is True:
                spec["retrain"] = list(spec["methods"])
            for method in methods:
                _add_row(spec, method, setting)


def _shown_settings(table: TableSpec, config: ResolvedConfig) -> Iterator[tuple[str, str]]:
    """Yield (dataset, setting) of what a table shows, without gaps and datasets that are not in the configuration."""
    if "sets" in table:
        shown = [(chosen["dataset"], chosen.get("setting", "")) for chosen in table["sets"] if "gap" not in chosen]
    else:
        dataset = table.get("dataset", "")
        settings = table.get("settings") or list(config["noisy"].get(dataset, {}).get("settings", {}))
        shown = [(dataset, setting) for setting in settings]
    for dataset, setting in shown:
        if dataset in config["noisy"]:
            yield dataset, setting


def _add_row(spec: NoisySpec, method: str, setting: str) -> None:
    if method not in spec["methods"]:
        spec["methods"].append(method)
        spec["restrict"].setdefault(method, {"settings": [], "reason": TABLE_ROW_REASON})
    share = spec["restrict"].get(method, {})
    if share.get("reason") == TABLE_ROW_REASON and setting not in share["settings"]:
        share["settings"].append(setting)


def _skip_missing_datasets(config: ResolvedConfig) -> None:
    """Move optional datasets of which something is missing on this machine to `not_run`."""
    root, mirror = Path(config["data"]["root"]), config["data"]["mirror"]
    for task, name, spec in datasets_of(config):
        if not spec["optional"]:
            continue
        missing = [n for n in [name, *other_sets(spec)] if check_availability(n, root, mirror).missing]
        if missing:
            reason = f"not on this machine: {', '.join(missing)}; `make doctor` says where to get and put it"
            gap: Gap = {"task": task, "dataset": name, "title": spec["title"], "reason": reason}
            del config[task][name]
            others = [g for g in config["not_run"] if (g["task"], g["dataset"]) != (task, name)]
            config["not_run"] = [*others, gap]
