"""Builds the fidelity table of a run: agreement with retraining beside the cost, a block for each measurement."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sgoif.bench.evaluation.significance import mean_std
from sgoif.bench.fidelity.cells import AS_IT_IS, folder
from sgoif.bench.fidelity.certificate_table import certificate_blocks
from sgoif.bench.fidelity.methods import METHODS, REFERENCE
from sgoif.bench.tables.formats.table_files import write_table
from sgoif.bench.tables.model import BEST, Block, Column, Entry, Row, Table
from sgoif.errors import UserError
from sgoif.utils.files import read_json

NAME = "fidelity"
COLUMNS = (
    Column("LDS", "one prediction", "lds", "higher", "fraction"),
    Column("LDS", "mean loss", "lds_mean", "higher", "fraction"),
    Column("leave one out", "convex", "loo", "higher", "fraction"),
    Column("leave one out", "network", "loo_network", "higher", "fraction"),
    Column("removal", "changes (%)", "removal", "higher", "percent"),
    Column("cost", "passes", "passes", "", "times"),
    Column("cost", "seconds", "seconds", "", "seconds"),
)
RESIDUAL_COLUMNS = (
    Column("", "estimated relative error of a score", "error", "", "number2"),
    Column("", "relative residual", "residual", "", "number2"),
    Column("", "confidence", "confidence", "", "number2"),
)
CAPTION = (
    "Does an attribution predict what retraining does? One run is analysed; ± is the standard error.",
    "LDS: the linear datamodeling score, the rank correlation over random halves of the training set between the summed"
    " effects of a half and what training on it makes of the prediction (mean over the targets), or of the mean "
    "loss of all targets. Every half is trained from other initial weights than the analysed run.",
    "Ceiling: the LDS that a perfect prediction would have, given how far two trainings on the same half differ.",
    "Leave one out: rank correlation over training examples with the change of a target's loss when one is left out; "
    "convex: logistic regression, exactly; network: the same start and batches.",
    "Removal: how often a right prediction changes when the examples that support it most are left out.",
    "Passes: images through the network beyond plain training, over those of plain training. Seconds: beyond plain "
    "training, of the CPU or on a GPU of the clock, by implementations that are not equally tuned.",
    "{best}: best of a column. Not given: the method has no answer.",
)


def build_fidelity_tables(run_dir: Path | str, config: Mapping[str, Any]) -> list[Table]:
    """Build the table of all measurements of a run; an empty list if it has none.

    Raises:
        UserError: If a measurement is missing.
    """
    specs = config.get("fidelity", {})
    if not specs:
        return []
    notes: list[str] = []
    blocks = [_block(run_dir, name, spec, notes) for name, spec in specs.items()]
    for name, spec in specs.items():
        if spec["model"]:
            blocks.append(_residuals(run_dir, name, spec))
        else:
            blocks += certificate_blocks(spec["title"], certificates(run_dir, name, spec))
    return [Table(NAME, NAME, "Fidelity to retraining", list(CAPTION), blocks, notes)]


def write_fidelity_table(run_dir: Path | str, config: Mapping[str, Any]) -> list[Path]:
    """Write the table as Markdown, LaTeX, CSV and JSON into the run's folder of tables."""
    tables = build_fidelity_tables(run_dir, config)
    return [path for table in tables for path in write_table(table, Path(run_dir) / "tables")]


def read_cells(run_dir: Path | str, name: str, spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Read what was measured for every seed.

    Raises:
        UserError: If a measurement is missing.
    """
    found = []
    for seed in spec["seeds"]:
        path = folder(run_dir, name, seed) / "cells.json"
        if not path.is_file():
            raise UserError(f"{path} is missing; `make tables` measures it")
        found.append(read_json(path))
    return found


def certificates(run_dir: Path | str, name: str, spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Read what was measured about the certificate: for every seed, by the titles of the problems.

    Raises:
        UserError: If a measurement is missing.
    """
    titles = (AS_IT_IS, *spec["certificates"])
    found = [one["facts"]["certificates"] for one in read_cells(run_dir, name, spec)]
    return [{title: one[title] for title in titles} for one in found]


def _residuals(run_dir: Path | str, name: str, spec: Mapping[str, Any]) -> Block:
    """Build the block on how far the directions of each scope solve their equations."""
    found = [one["facts"]["residuals"] for one in read_cells(run_dir, name, spec)]
    rows = []
    for scope in found[0]:
        values = [[one[scope][column.metric] for one in found] for column in RESIDUAL_COLUMNS]
        rows.append(Row("", "", f"scope {scope}", [Entry(*mean_std(v), len(v)) for v in values]))
    footer = (
        "Scores of wrong labels at their defaults. Relative residual R_v: mean over anchors and checks of the score "
        "window; the estimated error multiplies it by the root of the largest eigenvalue of the preconditioned "
        "curvature."
    )
    return Block(f"{spec['title']}: residuals of the directions", list(RESIDUAL_COLUMNS), rows, footer=footer)


def _block(run_dir: Path | str, name: str, spec: Mapping[str, Any], notes: list[str]) -> Block:
    found = read_cells(run_dir, name, spec)
    rows = []
    for method in spec["methods"]:
        cells = [one["cells"][method] for one in found]
        entries = [_entry(cells, column.metric, notes) for column in COLUMNS]
        rows.append(Row(METHODS[method].group, method, METHODS[method].title, entries))
    ceilings = [one["facts"]["ceiling"] for one in found if one["facts"]["ceiling"] is not None]
    if ceilings:
        blank = [Entry() for _ in COLUMNS[1:]]
        rows.append(Row(REFERENCE, "", "ceiling", [Entry(mean_std(ceilings)[0], None, len(ceilings)), *blank]))
    used = [i for i, _ in enumerate(COLUMNS) if any(_has_content(row.entries[i]) for row in rows)]
    for row in rows:
        row.entries = [row.entries[i] for i in used]
    columns = [COLUMNS[i] for i in used]
    _mark(columns, [row for row in rows if row.method])
    removed = f"{spec['removed']} examples removed, " if spec["removal_targets"] else ""
    footer = (
        f"{spec['examples']} training images, {round(100 * spec['noise'])}% wrong labels, {spec['targets']} targets, "
        f"{spec['subsets']} halves trained {spec['repeats']} time(s), {_network(spec)}, "
        f"{removed}{len(spec['seeds'])} seed(s)."
    )
    return Block(spec["title"], columns, rows, footer=footer)


def _network(spec: Mapping[str, Any]) -> str:
    """Return the network in words."""
    if spec["model"]:
        width = f" of width {spec['width']}" if spec["model"] == "resnet9" else ""
        return f"{spec['model']}{width}, {spec['epochs']} epochs"
    return f"network with {' and '.join(map(str, spec['hidden'])) or 'no'} hidden units"


def _has_content(entry: Entry) -> bool:
    return entry.mean is not None or entry.status != "ok"


def _entry(cells: Sequence[Mapping[str, Any]], metric: str, notes: list[str]) -> Entry:
    """Average a metric over seeds; its standard error is that of the mean of independent measurements."""
    failed = [cell for cell in cells if cell["status"] != "ok"]
    if failed:
        if failed[0]["reason"] not in notes:
            notes.append(failed[0]["reason"])
        return Entry(status=failed[0]["status"], note=1 + notes.index(failed[0]["reason"]))
    values = [cell["metrics"][metric] for cell in cells if metric in cell["metrics"]]
    if not values:
        return Entry()
    errors = [v["error"] for v in values if v["error"] is not None]
    error = math.sqrt(sum(e * e for e in errors)) / len(errors) if errors else None
    return Entry(mean_std([v["value"] for v in values])[0], error, len(values))


def _mark(columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Mark the best entry of every column that has a best."""
    for number, column in enumerate(columns):
        entries = [row.entries[number] for row in rows if row.entries[number].mean is not None]
        if column.better and entries:
            max(entries, key=lambda e: e.mean if e.mean is not None else -math.inf).mark = BEST
