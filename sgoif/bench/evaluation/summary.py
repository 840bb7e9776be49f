"""Averages the metrics of a run over seeds, table by table: results/<run>/summary.json, a flat list of records.

Tables, figures and reports are made from this file alone. Each table has one record with metric `layout` that says what
it shows; a method whose cells are not all there has one record with metric `status` and the reason; all others are
numbers (`SummaryRecord`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sgoif.bench.config.types import VARIANT_KINDS
from sgoif.bench.evaluation.metric_record import MetricRecord, metrics_file, read_metrics
from sgoif.bench.evaluation.resolve_layout import resolve_layout
from sgoif.bench.evaluation.significance import mean_std
from sgoif.bench.evaluation.summary_record import SummaryFields, SummaryRecord, layout_record, summary_record
from sgoif.bench.evaluation.table_layout import TABLE_KINDS, Panel
from sgoif.bench.methods.registry import PLAIN
from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_json

COST_METRICS = ("seconds", "cpu_seconds", "peak_memory", "overhead")
LABEL_METRICS = ("base_rate", "n_examples")
QUALITY_METRICS = ("auc_pr", "p_at_1", "recall", "tau_top1", "auroc:overall", "aupr_out_ap:overall")
SOLVER_METRICS = ("extra:hvps", "extra:mean_", "extra:triggers")
NEEDED_METRICS = {  # of kinds of tables that repeat cells of another table: prefixes of the metrics they show
    **dict.fromkeys(VARIANT_KINDS, (*LABEL_METRICS, *QUALITY_METRICS, *COST_METRICS, *SOLVER_METRICS)),
    "scores": ("auc_pr", "base_rate"),
    "cleaning": ("base_rate", "removal_", "same_", "r_precision", "test_accuracy", "overhead_p", "seconds_retrain"),
    "cost": COST_METRICS,
}
NOT_CONFIGURED = "no more are configured for it"
NOT_MEASURED_APART = "the others have no cost of their own"
NOT_EVALUATED = "the evaluation does not know this cell; evaluate again"
CellRecords = Mapping[tuple[str, str], Sequence[MetricRecord]]  # by setting and method


def summarise(run_dir: Path | str, config: Mapping[str, Any]) -> list[SummaryRecord]:
    """Averages results/<run>/metrics over seeds for every table of the configuration, and writes summary.json.

    Args:
        run_dir: Folder of the run.
        config: The resolved configuration.

    Returns:
        The records that were written.

    Raises:
        UserError: If a table is not of a known kind, names something that does not exist, or needs metrics that were
            not evaluated.
    """
    for table, spec in config["tables"].items():
        if spec["kind"] not in TABLE_KINDS:
            known = ", ".join(TABLE_KINDS)
            raise UserError(f"tables.{table}.kind: {spec['kind']!r} is not a kind of table; known: {known}")
    metrics: dict[Path, CellRecords] = {}
    records: list[SummaryRecord] = []
    for table, spec in sorted(config["tables"].items(), key=_table_order):
        layout = resolve_layout(table, spec, config)
        records.append(layout_record(table, layout))
        for panel in [*layout.panels, *layout.ood_panels]:
            path = metrics_file(run_dir, panel.task, panel.dataset)
            if path not in metrics:
                if not path.is_file():
                    raise UserError(f"{path} is missing; evaluate {panel.task} {panel.dataset} first")
                metrics[path] = _by_cell(read_metrics(path))
            records += _panel_records(table, layout.kind, panel, metrics[path])
    summary = Path(run_dir) / "summary.json"
    atomic_write_json(summary, records, seal=True)
    summary.touch()  # Snakemake compares times
    return records


def _table_order(named: tuple[str, Mapping[str, Any]]) -> tuple[int, bool]:
    """Orders tables by kind; those of chosen methods come after those of all."""
    _, spec = named
    return list(TABLE_KINDS).index(spec["kind"]), "methods" in spec


def _by_cell(records: Iterable[MetricRecord]) -> CellRecords:
    cells = defaultdict(list)
    for record in records:
        cells[record["setting"], record["method"]].append(record)
    return cells


def _panel_records(table: str, kind: str, panel: Panel, cells: CellRecords) -> list[SummaryRecord]:
    """Return the records of one dataset and setting: facts about the labels first, then method by method."""
    records: list[SummaryRecord] = []
    for method in ["", *panel.methods]:
        found = cells.get((panel.setting, method), [])
        if method == PLAIN and not found:  # a plain run is shown where there is one, but no table asks for it
            continue
        records += _method_records(table, panel, method, found, NEEDED_METRICS.get(kind))
    return records


def _method_records(
    table: str, panel: Panel, method: str, found: Sequence[MetricRecord], prefixes: Sequence[str] | None
) -> list[SummaryRecord]:
    """Return the records of one method in one panel; `prefixes` limits the metrics."""
    missing = {r["seed"]: (r["status"], r["reason"]) for r in found if r["metric"] == "status"}
    if method and not found:
        missing = {seed: ("not run", NOT_EVALUATED) for seed in panel.seeds}
    measured = _by_metric(found, prefixes)
    seconds = measured.get(("", "seconds_total")) or _by_metric(found, None).get(("", "seconds_total"))
    status, reason = _status(missing, len(panel.seeds))
    about: SummaryFields = {
        "dataset": panel.dataset,
        "setting": panel.setting,
        "method": method,
        "seconds": _mean_value(seconds or []),
    }
    records = []
    if missing:
        n_seeds = len(panel.seeds) - len(missing)
        fields: SummaryFields = {**about, "metric": "status", "n_seeds": n_seeds, "status": status, "reason": reason}
        records.append(summary_record(table, **fields))
    for (variant, metric), values in measured.items():
        averaged = _averaged(values, status, reason, len(panel.seeds))
        fields = {**about, "variant": variant, "metric": metric, **averaged}
        records.append(summary_record(table, **fields))
    return records


def _by_metric(
    found: Iterable[MetricRecord], prefixes: Sequence[str] | None
) -> dict[tuple[str, str], list[MetricRecord]]:
    """Group the numbers of whole runs (not of epochs) by variant and metric."""
    groups = defaultdict(list)
    for record in found:
        metric = record["metric"]
        is_needed = prefixes is None or metric.startswith(tuple(prefixes))
        if record["epoch"] is None and metric != "status" and is_needed:
            groups[record["variant"], metric].append(record)
    return groups


def _averaged(found: Sequence[MetricRecord], status: str, reason: str, n_wanted: int) -> SummaryFields:
    """Averages one metric over its seeds.

    A metric that no seed has a value of keeps the reason. If only some of the seeds have one, the status is "partial".

    Args:
        found: Records of the metric, one for each seed.
        status: The status of the method's cells.
        reason: Its reason.
        n_wanted: How many seeds the method is run with.
    """
    by_seed = sorted(found, key=lambda r: -1 if r["seed"] is None else r["seed"])
    seeds = [r["seed"] for r in by_seed if r["value"] is not None]
    values = [r["value"] for r in by_seed if r["value"] is not None]
    if not values:
        return {"n_seeds": 0, "status": found[0]["status"], "reason": found[0]["reason"], "seeds": [], "values": []}
    mean, std = mean_std(values)
    if status == "ok" and seeds != [None] and len(seeds) < n_wanted:
        reasons = dict.fromkeys(r["reason"] for r in found if r["value"] is None and r["reason"])
        status = "partial"
        why = NOT_MEASURED_APART if found[0]["metric"].startswith(COST_METRICS) else NOT_CONFIGURED
        reason = f"{len(seeds)} of {n_wanted} seeds; {'; '.join(reasons) or why}"
    return {
        "n_seeds": len(seeds), "mean": mean, "std": std, "status": status, "reason": reason, "seeds": seeds,
        "values": values,
    }  # fmt: skip


def _mean_value(found: Iterable[MetricRecord]) -> float | None:
    values = [r["value"] for r in found if r["value"] is not None]
    return sum(values) / len(values) if values else None


def _status(missing: Mapping[int | None, tuple[str, str]], n_seeds: int) -> tuple[str, str]:
    """Describe the cells of a method over its seeds.

    Args:
        missing: Status and reason of the seeds without numbers.
        n_seeds: How many seeds the method is run with.

    Returns:
        "ok" if no seed is missing; "partial" if some are, else what happened to them; and the reason in one phrase.
    """
    if not missing:
        return "ok", ""
    by_reason: dict[tuple[str, str], list[int | None]] = defaultdict(list)
    for seed, status_and_reason in sorted(missing.items()):  # type: ignore[type-var]
        by_reason[status_and_reason].append(seed)
    if len(missing) < n_seeds:
        status = "partial"
    else:
        statuses = [status for status, _ in by_reason]
        status = "failed" if "failed" in statuses else statuses[0]
        if len(by_reason) == 1:
            return status, next(iter(by_reason))[1]
    phrases = [
        f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))} {state}: {reason}"
        for (state, reason), seeds in by_reason.items()
    ]
    return status, f"{n_seeds - len(missing)} of {n_seeds} seeds; " + "; ".join(phrases)
