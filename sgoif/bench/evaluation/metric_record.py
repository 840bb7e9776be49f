"""The metric record: one line of results/<run>/metrics/<task>/<dataset>.json, one number about one cell."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from sgoif.utils.files import read_json

# setting, seed, method of a cell; of labels: method "", and seed None where they are the same for all seeds
Name = tuple[str, int | None, str]


class MetricRecord(TypedDict):
    """One number about a cell or about the labels of a setting, as it stands in the file.

    A record of a cell without numbers has the metric "status" and no value.
    """

    task: str
    dataset: str
    setting: str
    seed: int | None  # of labels: the seed that draws them, None if all seeds have the same
    method: str  # "": about the labels of the setting
    variant: str  # of the method's score; "" is the main one
    metric: str
    value: float | None
    status: str  # "ok", "failed", "skipped", "undefined" or "not run"
    reason: str
    epoch: int | None  # of values by epoch


@dataclass(frozen=True)
class Subject:
    """What records are about: a cell, or with method "" the labels of a setting (`Name`)."""

    task: str
    dataset: str
    setting: str
    seed: int | None
    method: str

    def record(
        self,
        metric: str,
        value: float | None = None,
        *,
        status: str = "ok",
        reason: str = "",
        variant: str = "",
        epoch: int | None = None,
    ) -> MetricRecord:
        """Make a record. A value that is not finite becomes None with the status "undefined"."""
        if value is not None and not math.isfinite(value):
            value = None
            status = "undefined"
            reason = reason or f"{metric} is not defined for these scores"
        return {
            "task": self.task, "dataset": self.dataset, "setting": self.setting, "seed": self.seed,
            "method": self.method, "variant": variant, "metric": metric, "value": value, "status": status,
            "reason": reason, "epoch": epoch,
        }  # fmt: skip


def is_metric_record(value: Any) -> bool:
    """Return whether a JSON value has the keys of a metric record, and a finite number or none as its value."""
    if not isinstance(value, dict) or set(value) != set(MetricRecord.__annotations__):
        return False
    number = value["value"]
    is_number = isinstance(number, (int, float)) and not isinstance(number, bool) and math.isfinite(number)
    return number is None or is_number


def metrics_file(run_dir: Path | str, task: str, dataset: str) -> Path:
    """Return the path of the metrics of one task and dataset."""
    return Path(run_dir) / "metrics" / task / f"{dataset}.json"


def read_metrics(path: Path) -> list[MetricRecord]:
    """Read a metrics file, in its order."""
    records: list[MetricRecord] = read_json(path)
    return records


def failed_numbers_in_words(run_dir: Path) -> list[str]:
    """Return a line for every method and reason with numbers that could not be computed from what a cell holds."""
    records = (r for path in sorted(run_dir.glob("metrics/*/*.json")) for r in read_metrics(path))
    found = Counter((r["method"], r["reason"]) for r in records if r["status"] == "failed" and r["metric"] != "status")
    return [
        f"Failed   {count} number{'s' * (count > 1)} of {method}: {reason}" for (method, reason), count in found.items()
    ]
