"""The sections of the report as plain values, so that the template computes nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from sgoif.bench.evaluation.metric_record import MetricRecord, read_metrics
from sgoif.bench.evaluation.overhead import SHARED_GPU
from sgoif.bench.methods.registry import OURS
from sgoif.bench.tables.model import Block, Entry, Table, format_entry, name_marks
from sgoif.bench.tables.names import title

MAX_LISTED_SETTINGS = 4


def table_section(table: Table) -> dict[str, Any]:
    """Return a table as {name, title, caption, blocks, notes}."""
    caption = [name_marks(sentence, "bold", "≈") for sentence in table.caption]
    blocks = [_block(block) for block in table.blocks]
    return {"name": table.name, "title": table.title, "caption": caption, "blocks": blocks, "notes": table.notes}


def _block(block: Block) -> dict[str, Any]:
    spans = [(group, len(list(columns))) for group, columns in groupby(block.columns, key=lambda c: c.group)]
    return {
        "title": block.title,
        "corner": block.corner,
        "spans": spans if any(group for group, _ in spans) else [],
        "columns": [{"title": c.title or c.group or c.metric, "better": c.better} for c in block.columns],
        "rows": _rows(block),
        "footer": block.footer,
    }


def _rows(block: Block) -> list[dict[str, Any]]:
    """The rows of a block; the first of a group names it, if there are several groups."""
    several_groups = len({row.group for row in block.rows}) > 1
    rows = []
    previous_group = None
    for row in block.rows:
        cells = [_cell(e, c.style) for e, c in zip(row.entries, block.columns, strict=True)]
        group = row.group if several_groups and row.group != previous_group else ""
        rows.append({"group": group, "title": row.title, "ours": row.method == OURS, "cells": cells})
        previous_group = row.group
    return rows


def _cell(entry: Entry, style: str) -> dict[str, Any]:
    if entry.mean is None:
        word = "–" if entry.status == "ok" else entry.status
        return {"value": None, "text": word, "spread": "", "mark": "", "note": entry.note}
    mean, spread, unit = format_entry(entry, style)
    return {"value": entry.mean, "text": mean, "spread": spread, "unit": unit, "mark": entry.mark, "note": entry.note}


def cost_section(run_dir: Path) -> list[dict[str, Any]]:
    """Return what each method cost over all cells of the run, most expensive first.

    `shared` counts the cells that shared their GPU with other jobs. Their seconds are in the sum, but not in the
    seconds of a cell, which are None where no cell ran alone.
    """
    found: dict[tuple[str, str], dict[str, dict[Hashable, float]]] = defaultdict(lambda: defaultdict(dict))
    shared: dict[tuple[str, str], set[Hashable]] = defaultdict(set)
    for task, r in _metrics(run_dir):
        cell = (r["dataset"], r["setting"], r["seed"])
        if r["metric"] == "overhead_marginal" and SHARED_GPU in r["reason"]:
            shared[task, r["method"]].add(cell)
        if r["method"] and r["value"] is not None and r.get("epoch") is None and not r["variant"]:
            found[task, r["method"]][r["metric"]][cell] = r["value"]
    rows: list[dict[str, Any]] = []
    for (task, method), m in found.items():
        seconds = m["seconds_total"]
        if not seconds:
            continue
        beside_others = shared[task, method] & seconds.keys()
        rows.append(
            {
                "task": task,
                "method": title(task, method),
                "cells": len(seconds),
                "shared": len(beside_others),
                "seconds": sum(seconds.values()),
                "per_cell": _mean([v for cell, v in seconds.items() if cell not in beside_others]),
                "cpu": sum(m["cpu_seconds_total"].values()),
                "memory": max(m["peak_memory_mb"].values(), default=None),
                "passes": _mean(list(m["overhead_passes"].values())),
                "marginal": _mean(list(m["overhead_marginal"].values())),
                "standalone": _mean(list(m["overhead_standalone"].values())),
            }
        )
    return sorted(rows, key=lambda row: -row["seconds"])


def failures_section(run_dir: Path, config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what has no result and why: cells with the same reason together, then datasets and tables not run."""
    settings: dict[tuple[str, str, str, str, str], list[str]] = defaultdict(list)
    for task, r in _metrics(run_dir):
        if r["metric"] == "status":
            settings[title(task, r["method"]), task, r["dataset"], r["status"], r["reason"]].append(r["setting"])
    out: list[dict[str, Any]] = []
    for key, of_cells in sorted(settings.items(), key=lambda item: (item[0][3], item[0])):
        method, task, dataset, status, reason = key
        names = list(dict.fromkeys(of_cells))
        shown = ", ".join(names) if len(names) <= MAX_LISTED_SETTINGS else f"{len(names)} settings"
        about = {"method": method, "task": task, "dataset": dataset, "settings": shown, "cells": len(of_cells)}
        out.append({**about, "status": status, "reason": reason})
    for n in config.get("not_run") or []:
        about = {"method": "all", "task": n["task"], "dataset": n.get("title", n["dataset"]), "settings": "all"}
        out.append({**about, "cells": None, "status": "not run", "reason": n["reason"]})
    for n in config.get("seeds_not_run") or []:
        seeds = f"seed{'s' * (len(n['seeds']) > 1)} {', '.join(map(str, n['seeds']))}"
        about = {"method": "all", "task": n["task"], "dataset": n["title"], "settings": f"all with {seeds}"}
        out.append({**about, "cells": None, "status": "not run", "reason": n["reason"]})
    for n in config.get("tables_not_run") or []:
        about = {"method": "all", "task": "table", "dataset": n["title"], "settings": "all"}
        out.append({**about, "cells": None, "status": "not run", "reason": n["reason"]})
    return out


def _metrics(run_dir: Path) -> Iterator[tuple[str, MetricRecord]]:
    """(task, record) of all metrics but those of tuning, which is not reported."""
    for path in sorted(run_dir.glob("metrics/*/*.json")):
        if path.parent.name != "tuning":
            yield from ((path.parent.name, record) for record in read_metrics(path))


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
