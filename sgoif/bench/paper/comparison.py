"""Compares every number of the paper with its public sources and with what a run measured: the ledger.

results/<run>/ledger.json is {run, rules, tables, cells, findings}:

* `tables`: [{name, label, shows, reproduced, differs, inconclusive, stand-in, not_defined, not_run, proved,
  on_stand_in}]; the last eight are counts of numbers. `on_stand_in` also has those that are not defined.
* `cells`: one flat record per printed number, {table, row, column, printed, printed_text, unit,
  sources: [{name, value, status}], measured, measured_what, measured_on, interval: [low, high] or null, seeds,
  stand_in, verdict, reason, also: [{what, value, interval, seeds, verdict}]}. `also` holds the other reading of a
  number, where it has one (Table 1: test accuracy after cleaning).
* `findings`: [{check, tables, outcome, statement, numbers}] of `paper.checks`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sgoif.bench.evaluation.draws import draws_own_noise
from sgoif.bench.evaluation.summary_record import read_summary
from sgoif.bench.evaluation.table_layout import TableLayout
from sgoif.bench.paper.checks import findings
from sgoif.bench.paper.comparison_page import page
from sgoif.bench.paper.measured_values import MeasuredValues, Measurement
from sgoif.bench.paper.printed import Paper, PrintedNumber, PrintedTable, load, read
from sgoif.bench.paper.public_numbers import PROVED, sources
from sgoif.utils.files import atomic_write_json, atomic_write_text

REPRODUCED = "reproduced"
DIFFERS = "differs"
INCONCLUSIVE = "inconclusive"
ON_STAND_IN = "stand-in"
NOT_DEFINED = "not defined"
NOT_RUN = "not run"
VERDICTS = (REPRODUCED, DIFFERS, INCONCLUSIVE, ON_STAND_IN, NOT_DEFINED, NOT_RUN)
TRAINING_FREE = ("gram", "ebo", "gradnorm", "react", "mls", "klm", "dice", "vim", "knn")
RULES = {
    REPRODUCED: "measured on the paper's dataset; the mean is within the tolerance of the printed number, and the "
    "half-width of its 95% interval (Student's t over seeds) is no larger than the tolerance",
    DIFFERS: "measured on the paper's dataset; the printed number is further from the mean than the tolerance and that "
    "half-width together (of one seed: than the tolerance, since its interval is not known)",
    INCONCLUSIVE: "measured on the paper's dataset, but the seeds do not decide between the two: the interval is wider "
    "than the tolerance or reaches over its edge, or there is one seed within the tolerance",
    NOT_DEFINED: "the paper does not say what would have to be measured; the nearest measurement stands beside it",
    ON_STAND_IN: "measured on data that stands in for the paper's dataset or for its OOD sets, which never counts as a "
    "reproduction",
    NOT_RUN: "this run does not measure it",
    "tolerance": "2 points for numbers in %, 1 point for OOD scores that need no training of their own, 0.05 for "
    "overheads and τ, 5% for HVPs per step; half of the last printed digit is added",
}


def write_ledger(run_dir: Path | str, config: Mapping[str, Any]) -> list[Path]:
    """Write results/<run>/ledger.json and ledger.md from the run's summary.json.

    Args:
        run_dir: Folder of the run.
        config: Its resolved configuration.

    Returns:
        The two files.
    """
    run_dir = Path(run_dir)
    ledger = build_ledger(read_summary(run_dir), config, load())
    paths = [run_dir / "ledger.json", run_dir / "ledger.md"]
    atomic_write_json(paths[0], ledger, seal=True)
    atomic_write_text(paths[1], page(ledger), seal=True)
    for path in paths:
        path.touch()  # Snakemake compares times, so an unchanged file must look new too
    return paths


def build_ledger(records: Sequence[Mapping[str, Any]], config: Mapping[str, Any], paper: Paper) -> dict[str, Any]:
    """Compare all printed numbers with the records of a summary.

    Args:
        records: Records of summary.json.
        config: The run's resolved configuration; its variants of SG-OIF are matched with the paper's.
        paper: The printed tables.

    Returns:
        The content of ledger.json.
    """
    measured = MeasuredValues(records, config)
    explanations = read("undefined.yaml")
    entries = [_compare(number, measured, explanations) for table in paper.values() for number in table]
    return {
        "run": config.get("run", ""),
        "rules": {**RULES, "intervals": interval_words(records)},
        "tables": [_count(table, entries) for table in paper.values()],
        "cells": entries,
        "findings": [f.record() for f in findings(paper)],
    }


def interval_words(records: Sequence[Mapping[str, Any]]) -> str:
    """Say what the intervals of a run are over: training alone where its seeds share their labels, else noise too."""
    facts = {(r["dataset"], r["setting"]): r for r in records if r["metric"] == "base_rate"}
    shown = [TableLayout.from_json(r["layout"]) for r in records if r["metric"] == "layout"]
    panels = {(p.dataset, p.setting): p for layout in shown for p in layout.panels}
    noisy = {key: p for key, p in panels.items() if p.task == "noisy" and len(p.seeds) > 1 and key in facts}
    shared = sum(not draws_own_noise(panel, facts[key]) for key, panel in noisy.items())
    words = "over the seeds of this run"
    if not shared:
        return f"{words}, each of which draws its own noise and training" if noisy else words
    return (
        f"{words}; in {shared} of {len(noisy)} noisy settings all seeds read the same labels, so that the interval is "
        "of training alone and leaves out what another draw of noise would change"
    )


def judge(number: PrintedNumber, m: Measurement) -> tuple[str, str]:
    """Judge a printed number by a measurement of the quantity it names.

    Returns:
        The verdict and its reason.
    """
    if m.value is None:
        return NOT_RUN, m.reason
    if m.stand_in:
        return ON_STAND_IN, f"not measured on the paper's data; the number is of a stand-in ({m.stand_in})"
    allowed = tolerance(number)
    limit = allowed + number.half_digit
    apart = abs(m.value - number.value)
    half_width = max(m.value - m.interval[0], m.interval[1] - m.value) if m.interval else 0.0
    where = f"{apart:.3g} from the printed number; "
    if apart > limit + half_width:
        return DIFFERS, where + f"the tolerance is {allowed:.3g}"
    if m.interval is None:
        return INCONCLUSIVE, where + f"one seed, and the tolerance is {allowed:.3g}"
    if half_width > limit:
        return INCONCLUSIVE, where + "the half-width of the 95% interval is larger than the tolerance"
    verdict = REPRODUCED if apart <= limit else INCONCLUSIVE
    return verdict, where + f"the tolerance is {allowed:.3g}"


def tolerance(number: PrintedNumber) -> float:
    """Return how far a measured mean may be from the printed number (`RULES["tolerance"]`)."""
    if number.column.metric == "extra:hvps_per_step":
        return 0.05 * number.value
    if number.column.unit == "%":
        return 1.0 if number.row.method in TRAINING_FREE else 2.0
    return 0.05


def _count(table: PrintedTable, entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Count the verdicts of one table."""
    own = [e for e in entries if e["table"] == table.name]
    counts = Counter(e["verdict"] for e in own)
    return {
        "name": table.name,
        "label": table.label,
        "shows": table.shows,
        **{verdict.replace(" ", "_"): counts[verdict] for verdict in VERDICTS},
        "proved": sum(any(s["status"] == PROVED for s in e["sources"]) for e in own),
        "on_stand_in": sum(e["stand_in"] for e in own),
    }


def _compare(
    number: PrintedNumber, measured: MeasuredValues, explanations: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    """The ledger's record of one printed number."""
    column = number.column
    found = {metric: measured.of(number, metric) for metric in (column.metric, *column.also) if metric}
    if column.undefined:
        first = found.get(column.metric) or Measurement()
    else:
        first = next(iter(found.values()), Measurement())
    verdict, reason = _verdict(number, first, explanations)
    others = [m for metric, m in found.items() if metric != column.metric and m.value is not None]
    return {
        "table": number.table,
        "row": number.row.name,
        "column": column.title,
        "printed": number.value,
        "printed_text": number.text,
        "unit": column.unit,
        "sources": sources(number),
        "measured": first.value,
        "measured_what": first.what,
        "measured_on": first.on,
        "interval": list(first.interval) if first.interval else None,
        "seeds": first.seeds,
        "stand_in": bool(first.stand_in),
        "verdict": verdict,
        "reason": reason,
        "also": [_other_reading(number, m) for m in others],
    }


def _verdict(number: PrintedNumber, m: Measurement, explanations: Mapping[str, Mapping[str, str]]) -> tuple[str, str]:
    """Verdict and reason, with what the paper leaves open about the column."""
    column = number.column
    if column.undefined:
        return NOT_DEFINED, explanations["undefined"][column.undefined]
    if column.derived:
        return NOT_RUN, f"the paper computes it from other cells ({column.derived}); see the computed columns"
    verdict, reason = judge(number, m)
    if column.assumes and m.value is not None:
        reason = f"{reason}; {explanations['assumes'][column.assumes]}"
    return verdict, reason


def _other_reading(number: PrintedNumber, m: Measurement) -> dict[str, Any]:
    verdict = NOT_DEFINED if number.column.undefined else judge(number, m)[0]
    interval = list(m.interval) if m.interval else None
    return {"what": m.what, "value": m.value, "interval": interval, "seeds": m.seeds, "verdict": verdict}
