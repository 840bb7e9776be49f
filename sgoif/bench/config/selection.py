"""Reduce a resolved configuration to some of its methods, settings, seeds and datasets: its key `select`.

    select: {methods: [sgoif, aum], settings: [n20_s0], seeds: [0], datasets: [digits]}

What is left out means all. The cells of a selection are those of the whole run: same parameters, same keys. Its results
lie in a folder of their own, results/<run>/selections/<name>.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, cast

from sgoif.bench.config.schema import check_known
from sgoif.bench.config.shares import allowed, restriction
from sgoif.bench.config.table_checks import table_task
from sgoif.bench.config.types import TABLE_ROW_REASON, VARIANT_KINDS, ResolvedConfig, SelectSpec, TableSpec, Task
from sgoif.bench.config.values import datasets_of, digest
from sgoif.bench.methods import registry
from sgoif.errors import UserError

KEYS = ("methods", "settings", "seeds", "datasets")
CLEAN = "clean"  # the setting of OOD detection
ADDED_TABLE = "selected"
MAX_NAME = 100  # characters of a folder's name; a longer one is cut and gets a hash


def parse_selection(**given: str | None) -> dict[str, list[str]]:
    """Return the key `select` of what a command line names.

    Args:
        **given: Names separated by commas, by key of `select`; None and "" mean all.

    Raises:
        UserError: If there is nothing between two commas.
    """
    select = {}
    for key, text in given.items():
        if text and text.strip():
            select[key] = [word.strip() for word in text.split(",")]
            if "" in select[key]:
                raise UserError(f"{key.upper()}: {text!r} has an empty name; write {key.upper()}=a,b")
    return select


def selection_name(select: Mapping[str, Any]) -> str:
    """Return the name of a selection's folder: the same for the same selection, different for different ones."""
    parts = [f"{key}-{'-'.join(map(str, select[key]))}" for key in KEYS if key in select]
    name = ".".join(parts)
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 20]}.{digest(dict(select))}"


def apply_selection(config: ResolvedConfig) -> None:
    """Reduce a resolved configuration to what its key `select` names, in place; without the key nothing is changed.

    Raises:
        UserError: If the run has no such method, setting, seed or dataset, or nothing is left to compute.
    """
    select = config.pop("select", None)
    if not select:
        return
    chosen = _in_order(select, config)
    held_out = _held_out(config)
    for task, name, spec in datasets_of(config):
        if not _reduce_dataset(task, name, spec, chosen, config):
            del config[task][name]
    if not any(_has_cells(task, spec) for task, _, spec in datasets_of(config)):
        named = ", ".join(f"{key} {' '.join(map(str, chosen[key]))}" for key in KEYS if key in chosen)  # type: ignore[literal-required]
        raise UserError(f"select: no cell of run {config['run']!r} has all of: {named}")
    config["not_run"] = []
    config.pop("fidelity", None)  # it has settings and methods of its own
    config["tables"] = _reduced_tables(config, "methods" in chosen)
    less = {name: count for name, count in held_out.items() if _held_out(config).get(name, count) < count}
    if less:
        chosen["val"] = less
    config["select"] = chosen


def _held_out(config: ResolvedConfig) -> dict[str, int]:
    """Test images that are set aside, by dataset: the most that one of the tasks asks for."""
    counts: dict[str, int] = {}
    for _, name, spec in datasets_of(config):
        counts[name] = max(counts.get(name, 0), spec["val"])
    return counts


# ------------------------------------------------------------------------------------------------ names


def _in_order(select: Mapping[str, Any], config: ResolvedConfig) -> SelectSpec:
    """Check all names and bring them into the configuration's order, so that a selection has one name."""
    ordered: dict[str, Any] = {}
    for key, known in _known(config).items():
        if key in select:
            for name in map(str, select[key]):
                check_known(name, known, f"select.{key}", key.removesuffix("s"))
            ordered[key] = [name for name in known if name in map(str, select[key])]
    if "seeds" in ordered:
        ordered["seeds"] = [int(seed) for seed in ordered["seeds"]]
    return cast(SelectSpec, ordered)


def _known(config: ResolvedConfig) -> dict[str, list[str]]:
    """Every name that may be selected, by key: what the run has, and methods and variants that it could run."""
    methods, settings, seeds, datasets = [], [], [], []
    for task, name, spec in datasets_of(config):
        datasets.append(name)
        seeds += [str(seed) for seed in spec["seeds"]]
        methods += spec["methods"]
        settings += [*config["noisy"][name]["settings"]] if task == "noisy" else [CLEAN]
    for kind in registry.TASKS:
        methods += registry.available(kind) if config[kind] else []  # type: ignore[literal-required]
    methods += [f"{m}@{variant}" for m, variants in config["variants"].items() if m in methods for variant in variants]
    lists = {"methods": methods, "settings": settings, "seeds": seeds, "datasets": datasets}
    return {key: list(dict.fromkeys(names)) for key, names in lists.items()}


# ------------------------------------------------------------------------------------------------ datasets


def _reduce_dataset(task: Task, name: str, spec: Any, select: SelectSpec, config: ResolvedConfig) -> bool:
    """Reduce one dataset, in place; return whether something of it is left."""
    if name not in select.get("datasets", [name]):
        return False
    wanted = select.get("settings")
    if task == "ood" and wanted is not None and CLEAN not in wanted:
        return False
    if task == "noisy":
        spec["settings"] = {s: noise for s, noise in spec["settings"].items() if wanted is None or s in wanted}
        for key in ("tuning", "tuning_seeds", "tuning_methods"):
            spec.pop(key, None)
    spec["seeds"] = [seed for seed in spec["seeds"] if seed in select.get("seeds", [seed])]
    spec["methods"] = _reduced_methods(task, spec, select.get("methods"), config)
    return bool(spec["methods"] and spec["seeds"] and (task == "ood" or spec["settings"]))


def _reduced_methods(task: Task, spec: Any, named: list[str] | None, config: ResolvedConfig) -> list[str]:
    """Return the methods of a dataset that are left.

    A variant that is run only where a table shows it is run in all selected settings if it is named. A method that no
    dataset of the task runs is added if it is named.
    """
    if named is None:
        return [m for m in spec["methods"] if any(_allowed_cells(task, spec, m))]
    run_by_others = {m for other in config[task].values() for m in other["methods"]}
    for method in named:
        if restriction(spec, method).get("reason") == TABLE_ROW_REASON:
            del spec["restrict"][method]
    can_run = [m for m in named if registry.split_variant(m)[0] in registry.available(task)]
    return [m for m in can_run if m in spec["methods"] or m not in run_by_others]


def _allowed_cells(task: Task, spec: Any, method: str) -> Iterator[bool]:
    for setting in spec["settings"] if task == "noisy" else [CLEAN]:
        for seed in spec["seeds"]:
            if allowed(restriction(spec, method), setting, seed):
                yield True


def _has_cells(task: Task, spec: Any) -> bool:
    return any(any(_allowed_cells(task, spec, method)) for method in spec["methods"])


# ------------------------------------------------------------------------------------------------ tables


def _reduced_tables(config: ResolvedConfig, methods_named: bool) -> dict[str, TableSpec]:
    """Return the tables that still show something, and one of the settings that none of them shows."""
    tables = {}
    for name, table in config["tables"].items():
        reduced = _reduced_table(table, config)
        if reduced is not None:
            tables[name] = reduced
    left = [{"dataset": d, "setting": s} for d, s in _unshown(tables.values(), config)]
    if left:
        tables[ADDED_TABLE] = cast(
            TableSpec, {"kind": "noise_sets", "title": "Selected settings", "task": "noisy", "sets": left}
        )
    for table in tables.values():
        rows = _all_methods(table_task(table), config)
        has_variants = any(registry.is_variant(method) for method in rows)
        if methods_named and has_variants and "methods" not in table and table["kind"] not in VARIANT_KINDS:
            table["methods"] = [registry.PLAIN, *rows]
    return tables


def _all_methods(task: Task, config: ResolvedConfig) -> list[str]:
    return list(dict.fromkeys(method for spec in config[task].values() for method in spec["methods"]))


def _reduced_table(table: TableSpec, config: ResolvedConfig) -> TableSpec | None:
    """Return what is left of a table; None if nothing is, or if the row that others are compared with is not."""
    table = cast(TableSpec, dict(table))
    task = table_task(table)
    methods = _all_methods(task, config)
    if table["kind"] in VARIANT_KINDS:
        first = table.get("methods", [registry.OURS])[0]
        if first not in methods or len([m for m in table.get("methods", methods) if m in methods]) < 2:
            return None
    if "methods" in table:
        table["methods"] = [m for m in table["methods"] if m in methods]
    if "sets" in table:
        table["sets"] = [
            c for c in table["sets"] if "gap" not in c and _is_left(c["dataset"], c.get("setting"), config)
        ]
    else:
        _reduce_datasets(table, task, config)
    if table.get("ood") not in config["ood"]:
        table.pop("ood", None)
    lists: list[Any] = [table.get(key, [True]) for key in ("methods", "sets", "datasets", "settings")]
    return table if all(lists) else None


def _reduce_datasets(table: TableSpec, task: Task, config: ResolvedConfig) -> None:
    """Reduce the datasets and settings of a table that does not list its `sets`; empty lists: nothing is left."""
    named = [table["dataset"]] if "dataset" in table else table.get("datasets", list(config[task]))
    left: list[str] = [name for name in named if name in config[task]]
    if table["kind"] == "noise_grid":
        left = [
            name for name in left if any(n["kind"] == "class_conditional" for n in _settings(name, config).values())
        ]
    if "dataset" in table and left:
        if "settings" in table:
            table["settings"] = [s for s in table["settings"] if s in _settings(left[0], config)]
        return
    table["datasets"] = left


def _settings(dataset: str, config: ResolvedConfig) -> dict[str, dict[str, Any]]:
    return config["noisy"].get(dataset, {}).get("settings", {})


def _is_left(dataset: str, setting: str | None, config: ResolvedConfig) -> bool:
    return setting in _settings(dataset, config) or (setting is None and dataset in config["ood"])


def _unshown(tables: Iterable[TableSpec], config: ResolvedConfig) -> list[tuple[str, str]]:
    """(dataset, setting) of all selected labels that no table of results shows."""
    shown: set[tuple[str, str]] = set()
    for table in tables:
        if table["kind"] not in ("noise_grid", "noise_sets", "regimes"):
            continue
        if "sets" in table:
            shown |= {(chosen["dataset"], chosen["setting"]) for chosen in table["sets"]}
            continue
        for dataset in [table["dataset"]] if "dataset" in table else table["datasets"]:
            found: Collection[str] = table.get("settings") or _grid(table, dataset, config)
            shown |= {(dataset, setting) for setting in found}
    every = [(dataset, setting) for dataset, spec in config["noisy"].items() for setting in spec["settings"]]
    return [one for one in every if one not in shown]


def _grid(table: TableSpec, dataset: str, config: ResolvedConfig) -> list[str]:
    """The settings that a table without `settings` shows of a dataset."""
    settings = _settings(dataset, config)
    is_grid = table["kind"] == "noise_grid"
    return [name for name, noise in settings.items() if not is_grid or noise["kind"] == "class_conditional"]
