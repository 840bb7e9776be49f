"""A finished run in MLflow: one experiment per task and dataset, one run per cell, flat, with tags to group by.

Jobs never talk to MLflow; they write JSON. One serial import brings the store in line with the files, so importing
twice changes nothing and a cell that was computed again replaces its old run. The store can be deleted at any time.
Where several nodes run the benchmark the store is a PostgreSQL database or a server (docs/cluster.md).
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import math
import os
import re
import shutil
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from sgoif.bench.config.values import digest as config_digest
from sgoif.bench.evaluation.cell_result import read_cells
from sgoif.errors import UserError
from sgoif.utils.files import alone, atomic_write_json, read_json, replacing, sha256_file

# before mlflow is imported: nothing is sent anywhere, nothing is asked of git or the network
QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "GIT_PYTHON_REFRESH": "quiet"}
DIGEST, ITEM = "sgoif.digest", "sgoif.item"
BATCH = 900  # MLflow takes at most 1000 metrics in one call


@dataclass
class _Item:
    """What one MLflow run should hold."""

    name: str  # unique within its experiment
    title: str
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: list[tuple[str, float, int]] = field(default_factory=list)  # (name, value, step)
    artifacts: list[Path] = field(default_factory=list)
    start: int = 0  # ms since 1970
    seconds: float = 0.0
    failed: bool = False

    def digest(self) -> str:
        """Changes when anything in the run would."""
        files = [(p.name, sha256_file(p)) for p in self.artifacts]
        parts = [self.title, self.params, self.tags, self.metrics, files, self.start, self.seconds, self.failed]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def store_uri(run_dir: Path, config: Mapping) -> str:
    """The store of a run: SGOIF_TRACKING, else the configuration's, else a SQLite file in the run's folder."""
    return os.environ.get("SGOIF_TRACKING") or config["tracking"]["uri"] or f"sqlite:///{run_dir}/mlflow/mlflow.db"


def init_store(uri: str) -> None:
    """Creates the store with MLflow's tables if there is none."""
    with _told(uri), _alone(uri):
        _make(uri)


def _make(uri: str) -> None:
    path = _file(uri)
    if path is None:
        _experiments(_client(uri))
    elif path.is_file():
        _check_store(uri)
    else:  # a store whose making was cut short cannot be mended, so it gets its name when it is whole
        with replacing(path) as temporary:
            _experiments(_client(f"sqlite:///{temporary}"))


@contextlib.contextmanager
def _alone(uri: str) -> Iterator[None]:
    """One process at a time makes or fills a store: MLflow breaks a new one when several create it at once.

    SQLite: a lock beside the file. PostgreSQL: a lock in the database, which holds across nodes and goes with its
    connection. A server has its own.
    """
    if (path := _file(uri)) is not None:
        with alone(path.with_suffix(".lock")):
            yield
    elif uri.startswith("postgresql"):
        from sqlalchemy import create_engine, text
        from sqlalchemy.pool import NullPool

        with create_engine(uri, poolclass=NullPool).connect() as connection:
            connection.execute(text("select pg_advisory_lock(hashtext('sgoif'))"))
            yield
    else:
        yield


def import_run(run_dir: Path | str, uri: str) -> dict[str, Any]:
    """Brings the store in line with the run directory; returns (and writes to mlflow/imported.json) what was done."""
    started, run_dir = time.perf_counter(), Path(run_dir)
    wanted = _items(run_dir)
    with _told(uri), _alone(uri):
        counts = _bring_all_in_line(run_dir, uri, wanted)
    done = {**counts, "experiments": sorted(wanted), "uri": _shown(uri)}
    report = run_dir / "mlflow" / "imported.json"
    atomic_write_json(report, {"experiments": done["experiments"], "runs": sum(map(len, wanted.values()))})
    report.touch()
    return {**done, "seconds": time.perf_counter() - started}


def _bring_all_in_line(run_dir: Path, uri: str, wanted: dict[str, list[_Item]]) -> dict[str, int]:
    counts = {"created": 0, "kept": 0, "removed": 0}
    _make(uri)
    client = _client(uri)
    known = _experiments(client)
    for experiment, items in wanted.items():
        if experiment not in known:
            location = (run_dir / "mlflow" / "artifacts" / experiment.replace("/", "-")).resolve()
            known[experiment] = client.create_experiment(experiment, artifact_location=location.as_uri())
        _bring_in_line(client, known[experiment], items, counts)
    for name, experiment_id in known.items():  # datasets that the run no longer has
        if name.startswith(f"{run_dir.name}/") and name not in wanted:
            _bring_in_line(client, experiment_id, [], counts)
    return counts


def _client(uri: str):
    _check_store(uri)
    os.environ.update(QUIET)
    import logging

    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
    from mlflow import MlflowClient
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    if not event.contains(Engine, "connect", _hurry):
        event.listen(Engine, "connect", _hurry)
    return MlflowClient(tracking_uri=uri)


def _file(uri: str) -> Path | None:
    """The file of a SQLite store; None for a server or another database."""
    return Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else None


def _check_store(uri: str) -> None:
    """Refuses a file that is no whole database; MLflow itself would try again for two minutes."""
    path = _file(uri)
    if path is None or not path.is_file():
        return
    try:
        with contextlib.closing(sqlite3.connect(path)) as db:
            (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as e:
        found = str(e)
    if found != "ok":
        said = " ".join(found.split())[:200]
        raise UserError(f"{path} is not a usable MLflow store ({said}); delete the file and run again")


@contextlib.contextmanager
def _told(uri: str) -> Iterator[None]:
    """What MLflow or its database cannot do is told in one line, with the store and the cure."""
    os.environ.update(QUIET)
    from alembic.util.exc import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, CommandError) as e:
        said = " ".join(str(getattr(e, "orig", None) or e).split())[:200]
        if "disk is full" in said:
            raise UserError(f"{uri}: the disk is full; free some room and run again") from None
        cure = f"delete {_file(uri)} and run again" if _file(uri) else "check that its server runs and can be reached"
        raise UserError(f"the MLflow store {_shown(uri)} does not work ({said}); {cure}") from None
    except ModuleNotFoundError as e:
        raise UserError(f"{_shown(uri)} needs the package {e.name}; `make cluster` installs it") from None


def _shown(uri: str) -> str:
    """Without the password."""
    return re.sub(r"(://[^:/@]*):[^@]*@", r"\1:***@", uri)


def _experiments(client) -> dict[str, str]:
    """Name -> id of all experiments; one that was put into the bin in the UI comes back."""
    from mlflow.entities import ViewType

    found = client.search_experiments(ViewType.ALL, max_results=1000)
    for experiment in found:
        if experiment.lifecycle_stage == "deleted":
            client.restore_experiment(experiment.experiment_id)
    return {e.name: e.experiment_id for e in found}


def _hurry(connection, _) -> None:
    """Do not wait for the disk at each of the ten commits a run takes: a broken store is deleted and imported again."""
    if type(connection).__module__.startswith("sqlite3"):
        connection.execute("PRAGMA synchronous = OFF")


# ------------------------------------------------------------------------------------------------ what should be there


def _items(run_dir: Path) -> dict[str, list[_Item]]:
    """Experiment name -> its runs: the cells of every task and dataset, and one run with the tables."""
    wanted: dict[str, list[_Item]] = {}
    config = run_dir / "config.json"
    config_hash = sha256_file(config)[:16] if config.is_file() else ""
    for folder in sorted(p for p in (run_dir / "batches").glob("*/*") if p.is_dir()):
        task, dataset = folder.parent.name, folder.name
        path = run_dir / "metrics" / task / f"{dataset}.json"
        measured = defaultdict(list)
        for record in read_json(path) if path.is_file() else []:
            measured[record["setting"], record["seed"], record["method"]].append(record)
        cells = read_cells(run_dir, task, dataset)
        name = f"{run_dir.name}/{task}/{dataset}"
        wanted[name] = [_cell_item(c.directory, c.result.to_json(), measured[c.name]) for c in cells]
    wanted[f"{run_dir.name}/tables"] = [_tables_item(run_dir, config_hash)]
    return wanted


def _cell_item(directory: Path, result: Mapping[str, Any], records: list[Mapping]) -> _Item:
    cell = result["cell"]
    params = {k: str(cell[k]) for k in ("method", "dataset", "setting", "seed")}
    params |= {f"config.{k}": v for k, v in _leaves((result.get("config") or {}).get("params") or {})}
    params |= {f"recipe.{k}": v for k, v in _leaves((result.get("config") or {}).get("recipe") or {})}
    tags = {
        "task": cell["task"],
        "method": cell["method"],
        "setting": cell["setting"],
        "cell_key": result["key"],
        "status": result["status"],
        "commit": result.get("commit") or "",
        "config_hash": config_digest(result["config"]) if result.get("config") else "",  # of the cell's part of it
        "hardware": _words(result.get("hardware")),
        "versions": _words(result.get("versions")),
    }
    if result.get("reason"):
        tags["reason"] = str(result["reason"])[:4000]
    metrics = [(_metric_name(r), r["value"], r["epoch"] or 0) for r in records if r["value"] is not None]
    for curve, values in (result.get("curves") or {}).items():
        metrics += [(f"curve/{_clean(curve)}", v, step) for step, v in enumerate(values) if math.isfinite(v)]
    return _Item(
        name="/".join([cell["setting"], f"seed{cell['seed']}", cell["method"]]),
        title=f"{cell['method']} {cell['setting']} seed{cell['seed']}",
        params=params,
        tags={k: v for k, v in tags.items() if v},
        metrics=metrics,
        artifacts=[directory / "result.json"],
        start=_milliseconds(result.get("created")),
        seconds=sum((result.get("seconds") or {}).values()),
        failed=result["status"] != "ok",
    )


def _tables_item(run_dir: Path, config_hash: str) -> _Item:
    files = sorted((run_dir / "tables").glob("[!.]*"))
    files += [p for p in (run_dir / "summary.json", run_dir / "config.json") if p.is_file()]
    tags = {"config_hash": config_hash} if config_hash else {}
    return _Item("tables", "tables and summary", tags=tags, artifacts=files)


def _metric_name(record: Mapping) -> str:
    """`auroc:near` -> `auroc/near`: MLflow draws what stands before the slash together."""
    name = record["metric"] if not record["variant"] else f"variant:{record['variant']}:{record['metric']}"
    return _clean(name.replace(":", "/"))


def _clean(name: str) -> str:
    return "".join(c if c.isalnum() or c in "_-./ " else "_" for c in name)[:250]


def _leaves(value: Mapping, path: str = "") -> Iterator[tuple[str, str]]:
    for key, inner in value.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(inner, Mapping):
            yield from _leaves(inner, name)
        else:
            yield _clean(name), str(inner)[:500]


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {v}" for k, v in sorted(value.items()))[:4000]
    return str(value or "")[:4000]


def _milliseconds(created: str | None) -> int:
    return int(datetime.datetime.fromisoformat(created).timestamp() * 1000) if created else 0


# ------------------------------------------------------------------------------------------------ what is there


def _runs(client, experiment_id: str) -> dict[str, list[tuple[str, str]]]:
    """item name -> [(run id, digest)]; a run whose import was cut short has no digest."""
    found, token = defaultdict(list), None
    while True:
        page = client.search_runs([experiment_id], max_results=1000, page_token=token)
        for run in page:
            found[run.data.tags.get(ITEM, "")].append((run.info.run_id, run.data.tags.get(DIGEST, "")))
        token = page.token
        if not token:
            return found


def _bring_in_line(client, experiment_id: str, items: list[_Item], counts: dict[str, int]) -> None:
    """Creates what is missing; deletes runs that are stale, were cut short, or belong to a cell that is gone."""
    there = _runs(client, experiment_id)
    for item in items:
        digest, old = item.digest(), there.pop(item.name, [])
        same = [run_id for run_id, known in old if known == digest][:1]
        if not same:
            _create(client, experiment_id, item, digest)
        counts["kept" if same else "created"] += 1
        there[item.name] = [run for run in old if run[0] not in same]
    for run_id, _ in (run for runs in there.values() for run in runs):
        client.delete_run(run_id)
        counts["removed"] += 1


def _create(client, experiment_id: str, item: _Item, digest: str) -> None:
    from mlflow.entities import Metric, Param, RunTag

    run = client.create_run(
        experiment_id, start_time=item.start or None, tags={**item.tags, ITEM: item.name}, run_name=item.title
    )
    run_id = run.info.run_id
    folder = Path(unquote(urlparse(run.info.artifact_uri).path))
    folder.mkdir(parents=True, exist_ok=True)
    for path in item.artifacts:  # what log_artifact does for a local store, without asking the store again
        shutil.copyfile(path, folder / path.name)
    end = item.start + int(1000 * item.seconds)
    client.set_terminated(run_id, "FAILED" if item.failed else "FINISHED", end or None)
    metrics = [Metric(name, float(value), end, step) for name, value, step in item.metrics]
    while len(metrics) > BATCH:
        client.log_batch(run_id, metrics[:BATCH])
        metrics = metrics[BATCH:]
    params = [Param(k, v) for k, v in item.params.items()][:100]
    client.log_batch(run_id, metrics, params, [RunTag(DIGEST, digest)])  # with its digest the run counts as imported
