"""The summary record: one line of results/<run>/summary.json, one metric of one method, averaged over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict, Unpack

from sgoif.bench.evaluation.table_layout import TableLayout
from sgoif.utils.files import read_json
from sgoif.utils.packed_json import read_packed_json

PUBLISHED_SUMMARY = "summary.json.gz"


class SummaryFields(TypedDict, total=False):
    """The fields of a summary record besides its table; a field that is not set has the default of `summary_record`."""

    dataset: str
    setting: str
    method: str  # "": about the labels of the setting
    variant: str  # of the method's score; "" is the main one
    metric: str
    mean: float | None
    std: float | None  # sample standard deviation; None for one seed
    n_seeds: int
    status: str
    reason: str
    seconds: float | None  # mean duration of the method's cells
    seeds: list[int | None]
    values: list[float]
    layout: dict[str, Any]


class SummaryRecord(TypedDict):
    """One number of one table, as it stands in the file.

    A record with metric "layout" describes the table (`TableLayout`); one with metric "status" says why cells of a
    method are missing. Only records of numbers have `seeds` and `values`.
    """

    table: str
    dataset: str
    setting: str
    method: str
    variant: str
    metric: str
    mean: float | None
    std: float | None
    n_seeds: int
    status: str
    reason: str
    seconds: float | None
    seeds: NotRequired[list[int | None]]
    values: NotRequired[list[float]]
    layout: NotRequired[dict[str, Any]]


def summary_record(table: str, **fields: Unpack[SummaryFields]) -> SummaryRecord:
    """Make a record; fields that are not given are empty."""
    empty: SummaryRecord = {
        "table": table, "dataset": "", "setting": "", "method": "", "variant": "", "metric": "", "mean": None,
        "std": None, "n_seeds": 0, "status": "ok", "reason": "", "seconds": None,
    }  # fmt: skip
    return {**empty, **fields}


def layout_record(table: str, layout: TableLayout) -> SummaryRecord:
    """Make the record that describes a table."""
    return summary_record(table, metric="layout", status="layout", layout=layout.to_json())


def read_summary(run_dir: Path | str) -> list[SummaryRecord]:
    """Read results/<run>/summary.json."""
    records: list[SummaryRecord] = read_json(Path(run_dir) / "summary.json")
    return records


def read_published_summary(path: Path) -> list[dict[str, Any]]:
    """Read results/published/<run>/summary.json.gz: the records without single seeds and without empty keys."""
    records: list[dict[str, Any]] = read_packed_json(path, "`make published`")
    return records


def layouts(records: Iterable[Mapping[str, Any]]) -> dict[str, TableLayout]:
    """Return the layout of every table of a summary, by name and in its order."""
    return {r["table"]: TableLayout.from_json(r["layout"]) for r in records if r["metric"] == "layout"}
