"""All metrics of a run, averaged over seeds, as one flat list: results/<run>/summary.json.

Tables, figures and reports are rendered from this file alone. Each table also has one record with metric `layout` that
says what the table shows (kind, title, panels, what was not run); all others are numbers:
{table, dataset, setting, method, variant, metric, mean, std, n_seeds, status, reason, seconds, seeds, values}.
A method whose cells are not all there has, besides, one record with metric `status` and the reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sgoif.bench.data import catalogue
from sgoif.bench.evaluation.significance import mean_std
from sgoif.bench.methods.registry import OURS, PLAIN, is_variant, split_variant
from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_json, read_json

COST = ("seconds", "cpu_seconds", "peak_memory", "overhead")
FACTS = ("base_rate", "n_examples")
FOUND = ("auc_pr", "p_at_1", "recall", "tau_top1", "auroc:overall", "aupr_out_ap:overall")
WATCHED = ("extra:hvps", "extra:mean_", "extra:triggers")
ROWS = ("ablation", "stability", "backends", "sensitivity")  # kinds whose rows are variants of one method
SHOWN = {  # kinds of tables that repeat cells of another table: the metrics (by prefix) they need
    **dict.fromkeys(ROWS, (*FACTS, *FOUND, *COST, *WATCHED)),
    "cost": COST,
}
SELECTION = (
    "Epochs and hyper-parameters: the configuration's, else the methods' defaults. No epoch is selected: what is shown "
    "is the score at the end of training (SG-OIF's: over the visits in its window). No job sees the truth; what the "
    "authors had seen when they chose the defaults, and how many they tried, is in docs/measurements.md."
)
NOT_IN_RUN = "the dataset is not part of this run's configuration"
KINDS = {  # kinds of tables in the order they are shown, and their titles, unless the configuration gives one
    "noise_grid": "Wrong labels found, by noise rate and sparsity",
    "noise_sets": "Wrong labels found, by dataset",
    "ood": "Out-of-distribution detection",
    "ablation": "Ablation of SG-OIF",
    "stability": "Ablation of SG-OIF: stability and cost",
    "backends": "Curvature backends of SG-OIF",
    "sensitivity": "Sensitivity of SG-OIF to its settings",
    "cost": "Measured cost",
}


def summarise(run_dir: Path | str, config: Mapping) -> list[dict[str, Any]]:
    """Aggregates results/<run>/metrics over seeds for every table of the configuration; writes and returns it."""
    run_dir, read = Path(run_dir), {}
    records = []
    for table, spec in config["tables"].items():
        if spec["kind"] not in KINDS:
            raise UserError(f"tables.{table}.kind: {spec['kind']!r} is not a kind of table; known: {', '.join(KINDS)}")
    for table, spec in sorted(config["tables"].items(), key=_place):
        layout = _layout(table, spec, config)
        about = {"table": table, "metric": "layout", "status": "layout", "layout": layout}
        records.append(_record(**about))
        for panel in [*layout["panels"], *layout["ood"]]:
            source = run_dir / "metrics" / panel["task"] / f"{panel['dataset']}.json"
            if source not in read:
                if not source.is_file():
                    raise UserError(f"{source} is missing; evaluate {panel['task']} {panel['dataset']} first")
                read[source] = _by_cell(read_json(source))
            records += _panel(table, spec["kind"], panel, read[source])
    atomic_write_json(run_dir / "summary.json", records, seal=True)
    (run_dir / "summary.json").touch()  # Snakemake compares times
    return records


def _place(named: tuple[str, Mapping]) -> tuple[int, bool]:
    """Tables stand by kind; those of some methods after those of all."""
    spec = named[1]
    return [*KINDS].index(spec["kind"]), "methods" in spec


def _record(**given) -> dict[str, Any]:
    empty = {"table": "", "dataset": "", "setting": "", "method": "", "variant": "", "metric": "", "mean": None}
    return {**empty, "std": None, "n_seeds": 0, "status": "ok", "reason": "", "seconds": None, **given}


# ------------------------------------------------------------------------------------------------ what a table shows


def _layout(table: str, spec: Mapping, config: Mapping) -> dict[str, Any]:
    """What the configuration says about a table, resolved: the panels (dataset x setting) in order, and the words."""
    task = "ood" if spec["kind"] == "ood" else spec.get("task", "noisy")
    not_run = {n["dataset"]: n for n in config.get("not_run") or [] if n["task"] == task}
    known = config.get(task) or {}
    panels, absent = [], []
    for dataset, setting, words in _chosen(spec, known, not_run):
        if "gap" in words:
            absent.append({"dataset": dataset, "title": _name(dataset, known), "reason": words["gap"]})
        elif dataset in known:
            if task == "noisy" and setting not in known[dataset]["settings"]:
                there = ", ".join(known[dataset]["settings"])
                raise UserError(f"tables.{table}: noisy.{dataset} has no setting {setting!r}; there are: {there}")
            panel = _panel_layout({**spec, **words}, task, dataset, setting, known[dataset])
            tuned = [e.get("title", d) for d, e in known.items() if e.get("tuning") is True]  # ID sets of the OOD task
            panels.append({**panel, "tuning": panel["tuning"] or tuned})
        elif dataset in not_run:
            absent.append({k: not_run[dataset].get(k, dataset) for k in ("dataset", "title", "reason")})
        elif dataset in catalogue.DATASETS:
            absent.append({"dataset": dataset, "title": _name(dataset, known), "reason": NOT_IN_RUN})
        else:
            there = ", ".join([*known, *not_run]) or "none"
            raise UserError(f"tables.{table}: no {task} dataset {dataset!r} in the configuration; there are: {there}")
    variants = _variants(table, spec, config, panels) if spec["kind"] in ROWS else {}
    return {
        "kind": spec["kind"],
        "task": task,
        "extended": spec.get("extended", False),
        **variants,
        "ood": _ood_panel(table, spec["ood"], variants["rows"][0]["method"], config) if "ood" in spec else [],
        "title": spec.get("title") or _title(table, spec["kind"]),
        "selection": spec.get("selection", SELECTION),
        "panels": panels,
        "not_run": absent,
    }


def _name(dataset: str, known: Mapping) -> str:
    return known.get(dataset, {}).get("title") or dataset


def _title(table: str, kind: str) -> str:
    number = table.removeprefix("table")
    return f"Table {number}: {KINDS[kind]}" if number.isdigit() else KINDS[kind]


def _chosen(spec: Mapping, known: Mapping, not_run: Mapping) -> list[tuple[str, str, Mapping]]:
    """(dataset, setting, words) of the panels: `sets`, or `dataset(s)` with `settings`, or everything there is."""
    if "sets" in spec:
        words = ("stands_for", "gap")
        return [(s["dataset"], s.get("setting", ""), {w: s[w] for w in words if w in s}) for s in spec["sets"]]
    if "dataset" in spec:
        datasets = [spec["dataset"]]
    else:
        measured = [d for d, entry in known.items() if entry.get("tuning") is not True]
        absent = [d for d in not_run if d not in known and spec["kind"] != "cost"]
        datasets = spec.get("datasets") or [*measured, *absent]
    chosen = []
    for dataset in datasets:
        settings = known.get(dataset, {}).get("settings") or {"clean": {}}
        if spec["kind"] == "noise_grid" and dataset in known:
            settings = [s for s, noise in settings.items() if noise.get("kind") == "class_conditional"]
            if not settings:
                raise UserError(f"a noise_grid table needs class_conditional settings; noisy.{dataset} has none")
        chosen += [(dataset, s, {}) for s in spec.get("settings") or settings]
    return chosen


def _variants(table: str, spec: Mapping, config: Mapping, panels: Sequence[Mapping]) -> dict[str, Any]:
    """The rows of a table of variants: what each changes, and the settings of the first, which the others start from.

    `name`: the paper's word for a change, where it has one.
    """
    from sgoif import InfluenceConfig

    methods = spec.get("methods") or list(dict.fromkeys(m for p in panels for m in p["methods"]))
    if not methods:
        raise UserError(f"tables.{table}: name its rows in `methods`")
    words = {tuple(change.items()): name for name, change in InfluenceConfig.ablations().items()}
    rows = []
    for method in methods:
        name, variant = split_variant(method)
        change = dict((config.get("variants") or {}).get(name, {}).get(variant, {}))
        known = words.get(tuple(change.items()), "") if change or not variant else ""
        rows.append({"method": method, "change": change, "name": known})
    common = (config.get("params") or {}).get(split_variant(methods[0])[0], {})
    full = InfluenceConfig.from_dict({**common, **rows[0]["change"]})
    return {"rows": rows, "full": full.to_dict()}


def _ood_panel(table: str, dataset: str, method: str, config: Mapping) -> list[dict[str, Any]]:
    """The ID set whose OOD figures a table of variants shows for its first row, in a list; empty if not in this run."""
    if dataset not in config["ood"] and dataset in catalogue.DATASETS:
        return []
    if dataset not in config["ood"]:
        raise UserError(f"tables.{table}.ood: no ood dataset {dataset!r}; there are: {', '.join(config['ood'])}")
    panel = _panel_layout({"kind": "ood"}, "ood", dataset, "clean", config["ood"][dataset])
    return [{**panel, "methods": [method]}]


def _panel_layout(spec: Mapping, task: str, dataset: str, setting: str, entry: Mapping) -> dict[str, Any]:
    methods = [PLAIN, *(m for m in entry["methods"] if m != PLAIN)]
    if "methods" in spec:
        methods = spec["methods"]
    elif spec["kind"] in ROWS:
        methods = [m for m in methods if split_variant(m)[0] == OURS]
    else:
        methods = [m for m in methods if not is_variant(m)]
    noise = (entry.get("settings") or {}).get(setting) or {}
    title = entry.get("title", dataset)
    tuning = entry.get("tuning") if task == "noisy" else None
    return {
        "task": task,
        "dataset": dataset,
        "setting": setting,
        "title": title,
        "stands_for": spec.get("stands_for") or entry.get("stands_for") or "",
        "kind": noise.get("kind", ""),
        "noise": noise.get("noise", noise.get("rate")),
        "sparsity": noise.get("sparsity", 0.0) if noise.get("kind") == "class_conditional" else None,
        "column": noise.get("column", ""),
        "methods": methods,
        "seeds": list(entry["seeds"]),
        "tuning": [f"{title} {t}" for t in tuning or {}],
        "near": list(entry.get("near") or []),
        "far": list(entry.get("far") or []),
    }


# ------------------------------------------------------------------------------------------------ numbers


def _by_cell(records: Sequence[Mapping]) -> dict[tuple[str, str], list[Mapping]]:
    cells = defaultdict(list)
    for record in records:
        cells[record["setting"], record["method"]].append(record)
    return cells


def _panel(table: str, kind: str, panel: Mapping, cells: Mapping[tuple[str, str], Sequence[Mapping]]) -> list[dict]:
    """The records of one dataset and setting in one table: facts about the data first, then method by method."""
    where = {"table": table, "dataset": panel["dataset"], "setting": panel["setting"]}
    records = []
    for method in ["", *panel["methods"]]:
        found = cells.get((panel["setting"], method), [])
        if method == PLAIN and not found:  # a plain run is shown where there is one, but no table asks for it
            continue
        missing = {r["seed"]: r for r in found if r["metric"] == "status"}
        if method and not found:
            reason = "the evaluation does not know this cell; evaluate again"
            missing = {s: {"status": "not run", "reason": reason} for s in panel["seeds"]}
        measured = _group(found, SHOWN.get(kind))
        seconds = _mean(measured.get(("", "seconds_total")) or _group(found, None).get(("", "seconds_total")))
        status, reason = _status(missing, len(panel["seeds"]))
        about = {**where, "method": method, "seconds": seconds}
        if missing:
            n_seeds = len(panel["seeds"]) - len(missing)
            records.append(_record(**about, metric="status", n_seeds=n_seeds, status=status, reason=reason))
        for (variant, metric), values in measured.items():
            records.append(_number(about, variant, metric, values, status, reason, panel["seeds"]))
    return records


def _group(found: Sequence[Mapping], prefixes: Sequence[str] | None) -> dict[tuple[str, str], list[Mapping]]:
    groups = defaultdict(list)
    for r in found:
        if (
            r["epoch"] is None
            and r["metric"] != "status"
            and (prefixes is None or r["metric"].startswith(tuple(prefixes)))
        ):
            groups[r["variant"], r["metric"]].append(r)
    return groups


def _number(
    about: Mapping, variant: str, metric: str, found: Sequence[Mapping], status: str, reason: str, wanted: Sequence[int]
) -> dict:
    """One metric over its seeds; a metric that no seed has a value for keeps the reason why, one that only some have of
    those the method was run with says so."""
    good = sorted((r for r in found if r["value"] is not None), key=lambda r: -1 if r["seed"] is None else r["seed"])
    given = {**about, "variant": variant, "metric": metric, "n_seeds": len(good)}
    if not good:
        return _record(**given, status=found[0]["status"], reason=found[0]["reason"], seeds=[], values=[])
    values = [r["value"] for r in good]
    mean, std = mean_std(values)
    seeds = [r["seed"] for r in good]
    if status == "ok" and seeds != [None] and len(seeds) < len(wanted):
        why = dict.fromkeys(r["reason"] for r in found if r["value"] is None and r["reason"])
        told = "; ".join(why) or "the others were not asked for it"
        status, reason = "partial", f"{len(seeds)} of {len(wanted)} seeds; {told}"
    return _record(**given, mean=mean, std=std, status=status, reason=reason, seeds=seeds, values=values)


def _mean(found: Sequence[Mapping] | None) -> float | None:
    values = [r["value"] for r in found or [] if r["value"] is not None]
    return sum(values) / len(values) if values else None


def _status(missing: Mapping[int, Mapping], n_seeds: int) -> tuple[str, str]:
    """ "ok"; or what befell the missing seeds, in one phrase; "partial" when other seeds have numbers."""
    if not missing:
        return "ok", ""
    by_reason = defaultdict(list)
    for seed, record in sorted(missing.items()):
        by_reason[record["status"], record["reason"]].append(seed)
    if len(missing) >= n_seeds:
        status = "failed" if any(s == "failed" for s, _ in by_reason) else next(iter(by_reason))[0]
        if len(by_reason) == 1:
            return status, next(iter(by_reason))[1]
    else:
        status = "partial"
    told = [
        f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))} {state}: {reason}"
        for (state, reason), seeds in by_reason.items()
    ]
    return status, f"{n_seeds - len(missing)} of {n_seeds} seeds; " + "; ".join(told)
