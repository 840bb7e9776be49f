"""The parts of the report as plain values: what the template needs and nothing it would have to compute."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from sgoif.bench.methods.registry import split_variant
from sgoif.bench.tables.model import Block, Entry, Table, format_entry, name_marks
from sgoif.bench.tables.names import title
from sgoif.utils.files import read_json

LEDGER_COLUMNS = (
    "table",
    "row",
    "column",
    "printed",
    "unit",
    "measured",
    "measured_what",
    "interval",
    "seeds",
    "verdict",
)


def table(table: Table) -> dict[str, Any]:
    caption = [name_marks(sentence, "bold", "≈") for sentence in table.caption]
    blocks = [_block(block) for block in table.blocks]
    return {"name": table.name, "title": table.title, "caption": caption, "blocks": blocks, "notes": table.notes}


def _block(block: Block) -> dict[str, Any]:
    spans = [(group, len(list(columns))) for group, columns in groupby(block.columns, key=lambda c: c.group)]
    several = len({row.group for row in block.rows}) > 1
    rows, last = [], None
    for row in block.rows:
        cells = [_cell(e, c.style) for e, c in zip(row.entries, block.columns, strict=True)]
        rows.append({"group": row.group if several and row.group != last else "", "title": row.title,
                     "ours": row.method == "sgoif", "cells": cells})  # fmt: skip
        last = row.group
    columns = [{"title": c.title or c.group or c.metric, "better": c.better} for c in block.columns]
    return {
        "title": block.title, "corner": block.corner, "spans": spans if any(g for g, _ in spans) else [],
        "columns": columns, "rows": rows, "footer": block.footer,
    }  # fmt: skip


def _cell(entry: Entry, style: str) -> dict[str, Any]:
    if entry.mean is None:
        word = "–" if entry.status == "ok" else entry.status
        return {"value": None, "text": word, "spread": "", "mark": "", "note": entry.note}
    mean, spread, unit = format_entry(entry, style)
    return {"value": entry.mean, "text": mean, "spread": spread, "unit": unit, "mark": entry.mark, "note": entry.note}


def ledger(path: Path) -> dict[str, Any] | None:
    """Cells and findings of the ledger as shown, with what can be chosen in the filters; None where there is none."""
    if not path.is_file():
        return None
    found = read_json(path)
    cells = []
    for c in found["cells"]:
        interval = " to ".join(f"{v:.4g}" for v in c["interval"]) if c["interval"] else ""
        sources = "; ".join(f"{s['name']}: {s['value']} ({s['status']})" for s in c["sources"])
        others = [f"{o['what']}: {o['value']:.4g}" for o in c["also"]]
        cells.append(
            {**c, "interval": interval, "sources": sources, "what": "; ".join([c["measured_what"] or "", *others])}
        )
    verdicts = Counter(c["verdict"] for c in cells)
    outcomes: dict[str, list] = {}
    for f in found["findings"]:
        outcomes.setdefault(f["outcome"], []).append(f)
    tables = {t["name"]: t["shows"] for t in found["tables"]}
    return {"cells": cells, "rules": found["rules"], "verdicts": verdicts, "findings": outcomes, "tables": tables}


def cost(run_dir: Path) -> list[dict[str, Any]]:
    """What each method cost over all cells of the run, measured: most expensive first."""
    found: dict[tuple, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for task, r in _metrics(run_dir):
        if r["method"] and r["value"] is not None and r.get("epoch") is None and not r["variant"]:
            found[task, r["method"]][r["metric"]].append(r["value"])
    rows = [
        {
            "task": task,
            "method": _name(task, method),
            "cells": len(m["seconds_total"]),
            "seconds": sum(m["seconds_total"]),
            "per_cell": sum(m["seconds_total"]) / len(m["seconds_total"]),
            "cpu": sum(m["cpu_seconds_total"]),
            "memory": max(m["peak_memory_mb"], default=None),
            "marginal": _mean(m["overhead_marginal"]),
            "standalone": _mean(m["overhead_standalone"]),
        }
        for (task, method), m in found.items()
        if m["seconds_total"]
    ]
    return sorted(rows, key=lambda row: -row["seconds"])


def failures(run_dir: Path, config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What has no result and why: cells of the same fate together, then the datasets that were not run."""
    fates: dict[tuple, list[tuple]] = defaultdict(list)
    for task, r in _metrics(run_dir):
        if r["metric"] == "status":
            fate = (_name(task, r["method"]), task, r["dataset"], r["status"], r["reason"])
            fates[fate].append((r["setting"], r["seed"]))
    out = []
    for (method, task, dataset, status, reason), cells in sorted(fates.items(), key=lambda f: (f[0][3], f[0])):
        settings = list(dict.fromkeys(setting for setting, _ in cells))
        few = ", ".join(settings) if len(settings) < 5 else f"{len(settings)} settings"
        about = {"method": method, "task": task, "dataset": dataset, "settings": few, "cells": len(cells)}
        out.append({**about, "status": status, "reason": reason})
    for n in config.get("not_run") or []:
        about = {"method": "all", "task": n["task"], "dataset": n.get("title", n["dataset"]), "settings": "all"}
        out.append({**about, "cells": None, "status": "not run", "reason": n["reason"]})
    return out


def _metrics(run_dir: Path):
    """(task, record) of all metrics that were reported; tuning is not."""
    for path in sorted(run_dir.glob("metrics/*/*.json")):
        if path.parent.name != "tuning":
            yield from ((path.parent.name, r) for r in read_json(path))


def _name(task: str, method: str) -> str:
    name, variant = split_variant(method)
    return f"{title(task, name)}@{variant}" if variant else title(task, name)


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
