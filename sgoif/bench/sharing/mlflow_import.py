"""Imports a finished run into MLflow: one experiment per task and dataset, one run per cell, with tags to group by.

Jobs never use MLflow; they write JSON. One serial import compares the store with the files, creates what is missing and
deletes what is stale, so importing twice changes nothing and a cell that was computed again replaces its old run. The
store can be deleted at any time.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from sgoif.bench.config.values import digest as config_digest
from sgoif.bench.evaluation.cell_result import CellResult, read_cells
from sgoif.bench.evaluation.metric_record import MetricRecord, Name, metrics_file, read_metrics
from sgoif.bench.execution.records import ResultRecord
from sgoif.bench.sharing import mlflow_artifacts, mlflow_store, mlflow_view
from sgoif.bench.tables import names
from sgoif.utils.files import atomic_write_json, sha256_file

if TYPE_CHECKING:
    from mlflow import MlflowClient

DIGEST_TAG = "sgoif.digest"
ITEM_TAG = "sgoif.item"
METRICS_PER_CALL = 900  # MLflow takes at most 1000
MAX_PARAMS = 100
MAX_PARAM_LENGTH = 500
MAX_TAG_LENGTH = 4000
MAX_NAME_LENGTH = 250
Metric = tuple[str, float, int]  # name, value, step


@dataclass
class _Item:
    """What one MLflow run should hold."""

    name: str  # unique within its experiment
    title: str
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: list[Metric] = field(default_factory=list)
    artifacts: list[Path] = field(default_factory=list)
    start: int = 0  # ms since 1970
    seconds: float = 0.0
    failed: bool = False

    def digest(self) -> str:
        """A hash that changes when anything in the run would."""
        files = [(p.name, sha256_file(p)) for p in self.artifacts]
        parts = [self.title, self.params, self.tags, self.metrics, files, self.start, self.seconds, self.failed]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def import_run(run_dir: Path | str, uri: str) -> dict[str, Any]:
    """Make the store hold exactly what the run's folder holds, and write mlflow/imported.json.

    Args:
        run_dir: Folder of the run.
        uri: Address of the store (`mlflow_store.store_uri`).

    Returns:
        {created, kept, removed, experiments, uri, seconds}.

    Raises:
        UserError: If the store is damaged or cannot be reached, or a cell is damaged.
    """
    started = time.perf_counter()
    run_dir = Path(run_dir)
    wanted = _items(run_dir)
    with mlflow_store.readable_errors(uri), mlflow_store.exclusive(uri):
        counts = _synchronise(run_dir, uri, wanted)
    report = run_dir / "mlflow" / "imported.json"
    atomic_write_json(report, {"experiments": sorted(wanted), "runs": sum(map(len, wanted.values()))})
    report.touch()
    return {
        **counts,
        "experiments": sorted(wanted),
        "uri": mlflow_store.without_password(uri),
        "seconds": time.perf_counter() - started,
    }


# ------------------------------------------------------------------------------------------------ what should be there


def _items(run_dir: Path) -> dict[str, list[_Item]]:
    """Experiment name -> its runs: the cells of every task and dataset, and one run with the tables."""
    wanted: dict[str, list[_Item]] = {}
    config = run_dir / "config.json"
    config_hash = sha256_file(config)[:16] if config.is_file() else ""
    for folder in sorted(p for p in (run_dir / "batches").glob("*/*") if p.is_dir()):
        task, dataset = folder.parent.name, folder.name
        path = metrics_file(run_dir, task, dataset)
        records: dict[Name, list[MetricRecord]] = defaultdict(list)
        for record in read_metrics(path) if path.is_file() else []:
            records[record["setting"], record["seed"], record["method"]].append(record)
        cells = read_cells(run_dir, task, dataset)
        wanted[f"{run_dir.name}/{task}/{dataset}"] = [_cell_item(cell, records[cell.name]) for cell in cells]
    wanted[f"{run_dir.name}/tables"] = [_tables_item(run_dir, config_hash)]
    return wanted


def _cell_item(cell: CellResult, records: Sequence[MetricRecord]) -> _Item:
    setting, seed, method = cell.name
    return _Item(
        name=f"{setting}/seed{seed}/{method}",
        title=f"{method} {setting} {seed}",
        params=_cell_params(cell.result),
        tags=_cell_tags(cell.result),
        metrics=_cell_metrics(cell.result, records),
        artifacts=[cell.directory / "result.json"],
        start=_milliseconds(cell.result.created),
        seconds=sum(cell.result.seconds.values()),
        failed=cell.result.status != "ok",
    )


def _cell_params(result: ResultRecord) -> dict[str, str]:
    params = {k: str(getattr(result.cell, k)) for k in ("method", "dataset", "setting", "seed")}
    params |= {f"config.{k}": v for k, v in _leaves(result.config.get("params") or {})}
    return params | {f"recipe.{k}": v for k, v in _leaves(result.config.get("recipe") or {})}


def _cell_tags(result: ResultRecord) -> dict[str, str]:
    shown = names.row(result.cell.task, result.cell.method)
    tags = {
        "task": result.cell.task,
        "method": result.cell.method,
        "method_title": shown.title,
        "method_group": shown.group,
        "setting": result.cell.setting,
        "cell_key": result.key,
        "status": result.status,
        "commit": result.commit,
        "config_hash": config_digest(result.config) if result.config else "",  # of the cell's part of it
        "hardware": _as_text(result.hardware),
        "versions": _as_text(result.versions),
        "reason": result.reason[:MAX_TAG_LENGTH],
    }
    return {k: v for k, v in tags.items() if v}


def _cell_metrics(result: ResultRecord, records: Sequence[MetricRecord]) -> list[Metric]:
    metrics = [(_metric_name(r), r["value"], r["epoch"] or 0) for r in records if r["value"] is not None]
    for curve, values in result.curves.items():
        metrics += [(f"curve/{_clean(curve)}", v, step) for step, v in enumerate(values) if math.isfinite(v)]
    return metrics


def _tables_item(run_dir: Path, config_hash: str) -> _Item:
    files = sorted((run_dir / "tables").glob("[!.]*"))
    files += [p for p in (run_dir / "summary.json", run_dir / "config.json") if p.is_file()]
    tags = {"config_hash": config_hash} if config_hash else {}
    return _Item("tables", "tables and summary", tags=tags, artifacts=files)


def _metric_name(record: MetricRecord) -> str:
    """`auroc:near` -> `auroc/near`: MLflow draws metrics with the same words before the slash together."""
    name = record["metric"] if not record["variant"] else f"variant:{record['variant']}:{record['metric']}"
    return _clean(name.replace(":", "/"))


def _clean(name: str) -> str:
    """The name with characters that MLflow does not allow replaced."""
    return "".join(c if c.isalnum() or c in "_-./ " else "_" for c in name)[:MAX_NAME_LENGTH]


def _leaves(value: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """(dotted path, text) of every value of nested mappings."""
    for key, inner in value.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(inner, Mapping):
            yield from _leaves(inner, name)
        else:
            yield _clean(name), str(inner)[:MAX_PARAM_LENGTH]


def _as_text(facts: Mapping[str, Any]) -> str:
    return ", ".join(f"{k} {v}" for k, v in sorted(facts.items()))[:MAX_TAG_LENGTH]


def _milliseconds(created: str) -> int:
    return int(datetime.datetime.fromisoformat(created).timestamp() * 1000) if created else 0


# ------------------------------------------------------------------------------------------------ what is there


def _synchronise(run_dir: Path, uri: str, wanted: Mapping[str, Sequence[_Item]]) -> dict[str, int]:
    counts = {"created": 0, "kept": 0, "removed": 0}
    mlflow_store.ensure_store(uri, run_dir)
    if (path := mlflow_store.sqlite_file(uri)) is not None:
        mlflow_artifacts.relocate(path, run_dir)
    client = mlflow_store.open_client(uri)
    known = mlflow_store.experiments(client)
    for experiment, items in wanted.items():
        if experiment not in known:
            location = mlflow_artifacts.artifact_location(run_dir, experiment)
            known[experiment] = client.create_experiment(experiment, artifact_location=location)
        mlflow_view.choose_columns(client, experiment, known[experiment])
        _synchronise_experiment(client, known[experiment], items, counts)
    for name, experiment_id in known.items():  # datasets that the run no longer has
        if name.startswith(f"{run_dir.name}/") and name not in wanted:
            _synchronise_experiment(client, experiment_id, [], counts)
    return counts


def _synchronise_experiment(
    client: MlflowClient, experiment_id: str, items: Sequence[_Item], counts: dict[str, int]
) -> None:
    """Create what is missing; delete runs that are stale, incomplete, or belong to a cell that is gone."""
    there = _runs(client, experiment_id)
    for item in items:
        digest = item.digest()
        old = there.pop(item.name, [])
        same = [run_id for run_id, known in old if known == digest][:1]
        if not same:
            _create(client, experiment_id, item, digest)
        counts["kept" if same else "created"] += 1
        there[item.name] = [run for run in old if run[0] not in same]
    for run_id, _ in (run for runs in there.values() for run in runs):
        client.delete_run(run_id)
        counts["removed"] += 1


def _runs(client: MlflowClient, experiment_id: str) -> dict[str, list[tuple[str, str]]]:
    """Item name -> [(run id, digest)]; a run whose import was interrupted has no digest."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    token = None
    while True:
        page = client.search_runs([experiment_id], max_results=1000, page_token=token)
        for run in page:
            found[run.data.tags.get(ITEM_TAG, "")].append((run.info.run_id, run.data.tags.get(DIGEST_TAG, "")))
        token = page.token
        if not token:
            return found


def _create(client: MlflowClient, experiment_id: str, item: _Item, digest: str) -> None:
    from mlflow import entities

    run = client.create_run(
        experiment_id, start_time=item.start or None, tags={**item.tags, ITEM_TAG: item.name}, run_name=item.title
    )
    run_id = run.info.run_id
    folder = Path(unquote(urlparse(run.info.artifact_uri).path))
    folder.mkdir(parents=True, exist_ok=True)
    for path in item.artifacts:  # as log_artifact does for a local store, without another request to the store
        shutil.copyfile(path, folder / path.name)
    end = item.start + int(1000 * item.seconds)
    client.set_terminated(run_id, "FAILED" if item.failed else "FINISHED", end or None)
    metrics = [entities.Metric(name, float(value), end, step) for name, value, step in item.metrics]
    while len(metrics) > METRICS_PER_CALL:
        client.log_batch(run_id, metrics[:METRICS_PER_CALL])
        metrics = metrics[METRICS_PER_CALL:]
    params = [entities.Param(k, v) for k, v in item.params.items()][:MAX_PARAMS]
    digest_tag = entities.RunTag(DIGEST_TAG, digest)  # with its digest the run counts as imported
    client.log_batch(run_id, metrics, params, [digest_tag])
