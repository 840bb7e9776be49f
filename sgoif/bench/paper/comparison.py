"""The ledger: every number of the paper beside its public twins and what a run measured, with a verdict and its reason.

results/<run>/ledger.json: {run, rules, tables, cells, findings}. `tables`: [{name, label, shows, reproduced, differs,
not_defined, not_run, proved, on_stand_in}], the last six are counts of cells. A cell is one flat record:
{table, row, column, printed, printed_text, unit, sources: [{name, value, status}], measured, measured_what,
measured_on, interval: [low, high] or null, seeds, stand_in, verdict, reason,
also: [{what, value, interval, seeds, verdict}]}.
`also` holds the other reading of a number, where it has one (Table 1: test accuracy after cleaning).
A finding is {check, tables, outcome, statement, numbers} (sgoif/bench/checks).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sgoif.bench.paper.checks import findings
from sgoif.bench.paper.comparison_page import page
from sgoif.bench.paper.measured_values import Measured, Measurement
from sgoif.bench.paper.printed import Cell, Paper, Table, load, read
from sgoif.bench.paper.public_numbers import PROVED, sources
from sgoif.utils.files import atomic_write_json, atomic_write_text, read_json

REPRODUCED, DIFFERS, NOT_DEFINED, NOT_RUN = "reproduced", "differs", "not defined", "not run"
VERDICTS = (REPRODUCED, DIFFERS, NOT_DEFINED, NOT_RUN)
FEWEST_SEEDS = 3  # below, the interval over seeds is too wide to excuse a difference
TRAINING_FREE = ("gram", "ebo", "gradnorm", "react", "mls", "klm", "dice", "vim", "knn")
RULES = {
    REPRODUCED: "the measured mean is as near to the printed number as the tolerance, or, from three seeds on, as the "
    "half-width of its 95% interval (Student's t over seeds) if that is larger; half of the last printed digit is "
    "added",
    DIFFERS: "measured on the paper's dataset, and further away than that",
    NOT_DEFINED: "the paper does not say what would have to be measured; the nearest measurement stands beside it",
    NOT_RUN: "this run does not measure it on the paper's dataset; what stands in for the dataset is labelled so",
    "tolerance": "2 points for numbers in %, 1 point for OOD scores that need no training of their own, 0.05 for "
    "overheads and τ, 5% for HVPs per step",
}


def write_ledger(run_dir: Path | str, config: Mapping[str, Any]) -> list[Path]:
    """Writes results/<run>/ledger.json and ledger.md from summary.json."""
    run_dir = Path(run_dir)
    ledger = build(read_json(run_dir / "summary.json"), config, load())
    paths = [run_dir / "ledger.json", run_dir / "ledger.md"]
    atomic_write_json(paths[0], ledger)
    atomic_write_text(paths[1], page(ledger))
    for path in paths:
        path.touch()  # Snakemake compares times, so an unchanged file must look new too
    return paths


def build(records: Sequence[Mapping[str, Any]], config: Mapping[str, Any], paper: Paper) -> dict[str, Any]:
    """The ledger of a summary's records."""
    measured, words = Measured(records, config), read("undefined.yaml")
    cells = [entry(cell, measured, words) for table in paper.values() for cell in table]
    return {
        "run": config.get("run", ""),
        "rules": RULES,
        "tables": [_about(table, cells) for table in paper.values()],
        "cells": cells,
        "findings": [f.record() for f in findings(paper)],
    }


def _about(table: Table, cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    own = [c for c in cells if c["table"] == table.name]
    counts = Counter(c["verdict"] for c in own)
    return {
        "name": table.name,
        "label": table.label,
        "shows": table.shows,
        **{verdict.replace(" ", "_"): counts[verdict] for verdict in VERDICTS},
        "proved": sum(any(s["status"] == PROVED for s in c["sources"]) for c in own),
        "on_stand_in": sum(c["stand_in"] for c in own),
    }


def entry(cell: Cell, measured: Measured, words: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """The record of one printed number."""
    column = cell.column
    readings = [r for r in (column.metric, *column.also) if r]
    taken = {metric: measured.of(cell, metric) for metric in readings}
    first = taken[readings[0]] if readings else Measurement()
    also = [m for metric, m in taken.items() if metric != column.metric and m.value is not None]
    if column.undefined:
        first = taken.get(column.metric) or Measurement()
        verdict, reason = NOT_DEFINED, words["undefined"][column.undefined]
    elif column.derived:
        verdict, reason = (
            NOT_RUN,
            f"the paper computes it from other cells ({column.derived}); see the computed columns",
        )
    else:
        verdict, reason = judge(cell, first)
        if column.assumes and first.value is not None:
            reason = f"{reason}; {words['assumes'][column.assumes]}"
    return {
        "table": cell.table,
        "row": cell.row.name,
        "column": column.title,
        "printed": cell.value,
        "printed_text": cell.text,
        "unit": column.unit,
        "sources": sources(cell),
        "measured": first.value,
        "measured_what": first.what,
        "measured_on": first.on,
        "interval": list(first.interval) if first.interval else None,
        "seeds": first.seeds,
        "stand_in": first.stand_in,
        "verdict": verdict,
        "reason": reason,
        "also": [_reading(cell, m, bool(column.undefined)) for m in also],
    }


def judge(cell: Cell, m: Measurement) -> tuple[str, str]:
    """(verdict, reason) of a printed number against a measurement of the quantity it names."""
    if m.value is None:
        return NOT_RUN, m.reason
    if m.stand_in:
        return NOT_RUN, f"{cell.column.dataset} was not run; the number is of a stand-in"
    allowed, why = tolerance(cell), "the tolerance"
    if m.interval and m.seeds >= FEWEST_SEEDS and (m.interval[1] - m.interval[0]) / 2 > allowed:
        allowed, why = (m.interval[1] - m.interval[0]) / 2, "the half-width of the 95% interval"
    apart = abs(m.value - cell.value)
    near = apart <= allowed + cell.half
    return (
        REPRODUCED if near else DIFFERS,
        f"{apart:.3g} {'from' if near else 'away from'} the printed number; {why} is {allowed:.3g}",
    )


def tolerance(cell: Cell) -> float:
    """How far a measured mean may be from the printed number (RULES["tolerance"])."""
    if cell.column.metric == "extra:hvps_per_step":
        return 0.05 * cell.value
    if cell.column.unit == "%":
        return 1.0 if cell.row.method in TRAINING_FREE else 2.0
    return 0.05


def _reading(cell: Cell, m: Measurement, undefined: bool) -> dict[str, Any]:
    verdict = NOT_DEFINED if undefined else judge(cell, m)[0]
    interval = list(m.interval) if m.interval else None
    return {"what": m.what, "value": m.value, "interval": interval, "seeds": m.seeds, "verdict": verdict}
