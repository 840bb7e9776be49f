"""The faults and what became of them, counted: docs/chaos.md for people, docs/chaos.json for programs."""

from __future__ import annotations

import datetime
import os
import platform
from collections import Counter
from pathlib import Path

from sgoif.utils.files import atomic_write_json, atomic_write_text, read_json

WORDS = {
    "same": "the next run gave the same bits without being told anything",
    "told, then same": "one line named the file and the cure; after doing just that, the same bits",
    "LOST": "neither",
}


def merge(folder: Path, family: str, records: list[dict[str, str]], order: list[str]) -> list[dict[str, str]]:
    """Puts the records of a family in the place of its old ones and writes both files; returns all records."""
    path = folder / "chaos.json"
    old = read_json(path)["records"] if path.is_file() else []
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    new = [{**r, "family": family, "date": today} for r in records]
    kept = [r for r in old if r["family"] != family and r["family"] in order]
    everything = sorted(kept + new, key=lambda r: order.index(r["family"]))
    facts = {
        "date": max(r["date"] for r in everything),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "faults": len(everything),
        "outcomes": dict(Counter(r["outcome"] for r in everything)),
        "absent": [name for name in order if name not in {r["family"] for r in everything}],
    }
    atomic_write_json(path, {**facts, "records": everything})
    atomic_write_text(folder / "chaos.md", markdown(facts, everything))
    return everything


def markdown(facts: dict, records: list[dict[str, str]]) -> str:
    counts = [f"* **{n} × {outcome}**: {WORDS[outcome]}" for outcome, n in sorted(facts["outcomes"].items())]
    kinds = Counter(r["fault"] for r in records)
    rows = [f"| {n} | {r['fault']} | {_cell(r['moment'])} | {r['outcome']} |" for n, r in enumerate(records, 1)]
    told = [f"* {n}: `{_cell(r['said'])}`" for n, r in enumerate(records, 1) if r["said"]]
    lines = [
        "# Injected faults",
        "",
        f"`make chaos`, {facts['date']}, {facts['machine']}. A small run is disturbed "
        f"{facts['faults']} times, each time differently. Compared, byte by byte, with a run nobody disturbed: tables, "
        "scores, noisy labels, truth, prepared data. A fault that did not strike would count as lost.",
        "",
        *counts,
        "",
        "By kind: " + ", ".join(f"{kind} {n}" for kind, n in kinds.items()) + ".",
        *([f"Families not injected for this report: {', '.join(facts['absent'])}."] if facts["absent"] else []),
        "",
        "| # | fault | moment or file | outcome |",
        "|---|---|---|---|",
        *rows,
        "",
        "## What was said",
        "",
        *told,
    ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "/").replace("`", "'").split())
