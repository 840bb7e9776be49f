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
    """Put the records of a family in the place of its old ones and write both files; return all records."""
    path = folder / "chaos.json"
    before = read_json(path) if path.is_file() else {"records": []}
    old = [{"machine": before["machine"], **r} for r in before["records"]]
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    new = [{**r, "family": family, "date": today, "machine": machine} for r in records]
    kept = [r for r in old if r["family"] != family and r["family"] in order]
    everything = sorted(kept + new, key=lambda r: order.index(r["family"]))
    facts = {
        "date": max(r["date"] for r in everything),
        "machine": machine,
        "note": before.get("note", ""),  # written by hand
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
        f"`make chaos`, {_occasions(records)}. A small run is disturbed "
        f"{facts['faults']} times, each time differently. Compared, byte by byte, with a run nobody disturbed: tables, "
        "scores, noisy labels, truth, prepared data. A fault that did not strike would count as lost.",
        "",
        *([facts["note"], ""] if facts["note"] else []),
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


def _occasions(records: list[dict[str, str]]) -> str:
    """When and where the faults were injected; with the families, if that was not all at once."""
    families: dict[str, dict[str, None]] = {}
    for r in records:
        families.setdefault(f"{r['date']}, {r['machine']}", {})[r["family"]] = None
    if len(families) == 1:
        return next(iter(families))
    return "; ".join(f"{occasion} ({', '.join(names)})" for occasion, names in families.items())


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "/").replace("`", "'").split())
