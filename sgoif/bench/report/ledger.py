"""The comparison with the paper as the report shows it: what the run measured, with numbered notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sgoif.bench.paper.comparison_page import shared_reason
from sgoif.utils.files import read_json

VERDICTS = ("reproduced", "differs", "inconclusive", "stand-in", "not defined", "not run")  # in the order of the page
JUDGED = VERDICTS[:3]  # those that compare a number with the printed one
KEPT = ("table", "row", "column", "printed_text", "unit", "measured", "seeds", "verdict")
PUBLIC = {"proved": "=", "differs": "≠"}  # how a public number stands to the printed one


def compares(ledger: Mapping[str, Any]) -> bool:
    """Return whether a run measured anything beside a number of the paper, itself or with a stand-in."""
    return any(_is_measured(cell) for cell in ledger["cells"])


def ledger_section(path: Path) -> dict[str, Any] | None:
    """Return the comparison with the paper as shown.

    Args:
        path: ledger.json.

    Returns:
        {cells, total, rules, verdicts, counts, findings, notes, tables}, or None if there is no file or the run
        measured nothing of the paper. `cells` are the numbers with a measurement, `total` counts all; `verdicts` are
        counts over all, `counts` has them by table; `findings` are grouped by outcome; `tables` are a filter's choices.
    """
    if not path.is_file():
        return None
    found = read_json(path)
    if not compares(found):
        return None
    notes: dict[str, int] = {}
    measured = [_cell(cell, notes) for cell in found["cells"] if _is_measured(cell)]
    counts = Counter(cell["verdict"] for cell in found["cells"])
    verdicts = [v for v in [*VERDICTS, *sorted(set(counts) - set(VERDICTS))] if counts[v]]
    findings: dict[str, list[dict[str, Any]]] = {}
    for finding in found["findings"]:
        findings.setdefault(finding["outcome"], []).append(finding)
    shown = {cell["table"] for cell in measured}
    return {
        "cells": measured,
        "total": len(found["cells"]),
        "rules": found["rules"],
        "verdicts": {v: counts[v] for v in verdicts},
        "counts": _counts(found, verdicts),
        "findings": findings,
        "notes": list(notes),
        "tables": {t["name"]: t["shows"] for t in found["tables"] if t["name"] in shown},
    }


def _is_measured(cell: Mapping[str, Any]) -> bool:
    return cell["measured"] is not None or bool(cell["also"])


def _counts(found: Mapping[str, Any], verdicts: Sequence[str]) -> list[dict[str, Any]]:
    """How many numbers of each table of the paper got which verdict, and how many have a measurement beside them."""
    rows = []
    for table in found["tables"]:
        own = [cell for cell in found["cells"] if cell["table"] == table["name"]]
        by_verdict = Counter(cell["verdict"] for cell in own)
        row = {"name": table["name"], "shows": table["shows"], "measured": sum(map(_is_measured, own))}
        rows.append({**row, "by_verdict": [by_verdict[v] for v in verdicts]})
    return rows


def _cell(cell: Mapping[str, Any], notes: dict[str, int]) -> dict[str, Any]:
    """One number with its notes, which are numbered in the order of the columns; equal texts share a number."""

    def note(text: str) -> int:
        return notes.setdefault(text, len(notes) + 1)

    public = [
        {"text": f"{PUBLIC[s['status']]} {s['value']:.4g}" if s["status"] in PUBLIC else "?", "note": note(s["name"])}
        for s in cell["sources"]
    ]
    off = cell["measured"] - cell["printed"] if cell["verdict"] in JUDGED else None
    what = note(cell["measured_what"]) if cell["measured_what"] else None
    why = note(shared_reason(cell["reason"])) if cell["reason"] else None
    others = []
    for other in cell["also"]:
        verdict = other["verdict"] if other["verdict"] in JUDGED else ""
        others.append({"text": f"{other['value']:.4g}", "note": note(other["what"]), "verdict": verdict})
    kept = {key: cell[key] for key in KEPT}
    interval = " to ".join(f"{v:.4g}" for v in cell["interval"]) if cell["interval"] else ""
    return {**kept, "interval": interval, "off": off, "what": what, "why": why, "public": public, "others": others}
