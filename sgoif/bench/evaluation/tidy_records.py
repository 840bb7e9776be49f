"""Writes all metrics of a run as one table for other programs: results/<run>/records.csv and records.parquet.

One row is one record, one number about one cell or about the labels of a setting; `COLUMNS` says what the columns mean.
Nothing is averaged: summary.json has the means over seeds. Settings for tuning are left out, as they are everywhere.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sgoif.bench.evaluation.metric_record import metrics_file, read_metrics
from sgoif.bench.execution.integrity.damage import delete
from sgoif.bench.methods.registry import split_variant
from sgoif.utils.files import atomic_replace, atomic_write_text

COLUMNS = {
    "run": "name of the run",
    "task": "noisy (wrong labels) or ood (out-of-distribution detection)",
    "dataset": "name of the dataset",
    "setting": "name of the noise setting; clean for ood",
    "method": "name of the method, plain for ordinary training; empty: about the labels of the setting",
    "variant": "variant of the method, the part of its name after @; empty: the method itself",
    "score": "which of the method's scores; empty: the main one",
    "seed": "seed of the training and of the noise; empty: about labels that are the same for all seeds",
    "epoch": "epoch from 0, for values by epoch; empty: of the whole run",
    "metric": "what was measured: auc_pr, p_at_1, test_accuracy, auroc:<set>, seconds_total, extra:<name>, …",
    "value": "the number; shares and areas are between 0 and 1; empty: there is none",
    "status": "ok, failed, skipped, undefined or not run",
    "reason": "why there is no number",
}
WHOLE_NUMBERS = ("seed", "epoch")
NO_PARQUET = "note: no records.parquet, since pyarrow is not installed (`pip install pyarrow`); records.csv has it all"


def write_records(run_dir: Path | str, config: Mapping[str, Any]) -> list[Path]:
    """Write records.csv and, where pyarrow is installed, records.parquet from the metrics of a run.

    Args:
        run_dir: Folder of the run.
        config: Its resolved configuration.

    Returns:
        The files that were written.
    """
    rows = list(tidy_rows(run_dir, config))
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: repr(v) if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    table = Path(run_dir) / "records.csv"
    atomic_write_text(table, text.getvalue(), seal=True)
    table.touch()  # Snakemake compares times
    return [table, *_write_parquet(table.with_suffix(".parquet"), rows)]


def tidy_rows(run_dir: Path | str, config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield one row for each record of the reported tasks, by task and dataset in the order of the metrics files."""
    for task in ("noisy", "ood"):
        for dataset in config[task]:
            for record in read_metrics(metrics_file(run_dir, task, dataset)):
                method, variant = split_variant(record["method"])
                row = {**record, "run": config["run"], "method": method, "variant": variant, "score": record["variant"]}
                yield {column: row[column] for column in COLUMNS}


def _write_parquet(path: Path, rows: list[dict[str, Any]]) -> list[Path]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        print(NO_PARQUET, file=sys.stderr)
        delete(path)  # one of an earlier run would not fit
        return []
    types = {column: pyarrow.int64() if column in WHOLE_NUMBERS else pyarrow.string() for column in COLUMNS}
    schema = pyarrow.schema({**types, "value": pyarrow.float64()})
    with atomic_replace(path, seal=True) as temporary:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), temporary)
    return [path]
