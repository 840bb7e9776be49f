"""Finds what a run measured for a number of the paper: on the paper's own dataset, or on data that stands in for it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sgoif.bench.data.catalogue.ood_sets import STAND_IN_SETS
from sgoif.bench.paper.printed import DATASETS, PrintedColumn, PrintedNumber, PrintedRow

METRIC_TITLES = {
    "p_at_1": "P@1%", "auc_pr": "average precision", "test_accuracy": "test accuracy after cleaning",
    "recall_at_1": "Recall@1%", "recall_at_5": "Recall@5%", "recall_at_10": "Recall@10%",
    "tau_top1": "Kendall's τ of the top 1%", "extra:hvps_per_step": "HVPs per step",
    "overhead_standalone": "overhead, everything counted", "overhead_marginal": "overhead beside a shared plain run",
    "auroc:overall": "AUROC, mean over OOD sets", "auroc:near": "near-OOD AUROC", "auroc:far": "far-OOD AUROC",
    "aupr_out_ap:overall": "AUPR with OOD positive, mean over OOD sets", "id_accuracy": "classification accuracy",
}  # fmt: skip
OOD_METRICS = ("auroc:", "aupr_out_ap:")  # of these the OOD sets are part of what is measured
METHOD_TABLES = ("noise_grid", "noise_sets", "ood")  # kinds of tables whose rows are methods, not variants of one
UNIT_RANGES = {"%": (0.0, 100.0), "×": (0.0, math.inf), "": (-math.inf, math.inf)}
STAND_IN_OOD = frozenset(dataset.name for dataset in STAND_IN_SETS)
SAME_NOISE = {"asymmetric": ("asymmetric", "superclass")}  # CIFAR-100's asymmetric noise stays inside superclasses


@dataclass(frozen=True)
class Measurement:
    """A mean over seeds in the paper's unit, or the reason why there is none.

    Attributes:
        what: Title of the metric; of a stand-in also which data stand in for which dataset.
        on: Dataset and setting.
        value: The mean, or None.
        interval: 95% interval (Student's t over seeds), or None for one seed.
        seeds: Number of seeds.
        stand_in: What was measured in the place of the paper's data, in words, or "".
        reason: Why there is no value.
    """

    what: str = ""
    on: str = ""
    value: float | None = None
    interval: tuple[float, float] | None = None
    seeds: int = 0
    stand_in: str = ""
    reason: str = ""


class MeasuredValues:
    """Looks up measurements in the records of a summary, by dataset, noise, method and metric.

    Args:
        records: Records of summary.json.
        config: The run's resolved configuration, for its variants of SG-OIF.
    """

    def __init__(self, records: Sequence[Mapping[str, Any]], config: Mapping[str, Any]):
        layouts = [r["layout"] for r in records if r["metric"] == "layout"]
        self.panels = [{**panel, "of": layout["kind"]} for layout in layouts for panel in layout["panels"]]
        self.absent = {(n["task"], n["dataset"]): n["reason"] for n in config.get("not_run") or []}
        self.absent |= {(of["task"], n["dataset"]): n["reason"] for of in layouts for n in of["not_run"]}
        self.why_no_variants = next((table["reason"] for table in config.get("tables_not_run") or []), "")
        self.numbers: dict[tuple[str, str, str, str], Mapping[str, Any]] = {
            (r["dataset"], r["setting"], r["method"], r["metric"]): r
            for r in records
            if not r["variant"] and r["metric"] != "layout"
        }
        self.variants = (config.get("variants") or {}).get("sgoif") or {}

    def of(self, number: PrintedNumber, metric: str) -> Measurement:
        """Return the measurement of `metric` for a printed number, or the reason why there is none."""
        panel, stand_in = self.panel(number)
        if panel is None:
            return Measurement(reason=self._why_no_panel(number.column))
        method = self._method(number.row)
        if not method:
            return Measurement(reason=f"this run has no variant for {number.row.variant!r}")
        where = (panel["dataset"], panel["setting"], method)
        found = self.numbers.get((*where, metric))
        if found is None or found["mean"] is None:
            status = self.numbers.get((*where, "status")) or found
            if status:
                return Measurement(reason=f"{status['status']}: {status['reason']}")
            why = self.why_no_variants if number.row.variant else ""
            return Measurement(reason=why or f"this run measured no {METRIC_TITLES[metric]} here")
        unit = number.column.unit
        scale = 100.0 if unit == "%" else 1.0
        mean = scale * found["mean"]
        interval = None
        if found["std"] is not None and found["n_seeds"] > 1:
            interval = _interval(mean, scale * found["std"], found["n_seeds"], UNIT_RANGES[unit])
        words = (
            f"{panel['title']} in the place of {number.column.dataset}" if stand_in else _stand_in_ood(panel, metric)
        )
        what = f"{METRIC_TITLES[metric]} (STAND-IN: {words})" if words else METRIC_TITLES[metric]
        return Measurement(what, _dataset_and_setting(panel), mean, interval, found["n_seeds"], words)

    def panel(self, number: PrintedNumber) -> tuple[Mapping[str, Any] | None, bool]:
        """Find the panel of the run's tables that measures what a printed number names.

        Returns:
            The panel on the paper's dataset if there is one, else on data that stand in for it, else None; and whether
            it is a stand-in.
        """
        column = number.column
        candidates = [
            p for p in self.panels if p["task"] == column.task and (number.row.variant or p["of"] in METHOD_TABLES)
        ]
        fitting = [p for p in candidates if _same_noise(p, column)]
        for panel in fitting:
            if panel["dataset"] == DATASETS.get(column.dataset):
                return panel, False
        noise_is_stated = column.kind and not column.assumes and not column.undefined
        for panel in fitting if noise_is_stated else [*fitting, *candidates]:
            if re.match(rf"{re.escape(column.dataset)}(?![\w-])", panel["stands_for"] or ""):
                return panel, True
        return None, False

    def _why_no_panel(self, column: PrintedColumn) -> str:
        dataset = DATASETS.get(column.dataset, "")
        noise = f" with {100 * column.noise:.0f}% noise" if column.noise is not None and column.task == "noisy" else ""
        return self.absent.get((column.task, dataset)) or f"no table of this run has {column.dataset}{noise}"

    def _method(self, row: PrintedRow) -> str:
        """The method's name in this run; a variant is found by what it changes, not by its name."""
        if not row.variant:
            return row.method
        from sgoif import InfluenceConfig

        changes = InfluenceConfig.ablations()[row.variant]
        if not changes:
            return row.method
        return next((f"{row.method}@{name}" for name, params in self.variants.items() if params == changes), "")


def _same_noise(panel: Mapping[str, Any], column: PrintedColumn) -> bool:
    if column.task == "ood" or not column.kind:
        return True
    kinds = SAME_NOISE.get(column.kind, (column.kind,))
    same_sparsity = column.sparsity is None or panel["sparsity"] == column.sparsity
    return panel["kind"] in kinds and panel["noise"] == column.noise and same_sparsity


def _stand_in_ood(panel: Mapping[str, Any], metric: str) -> str:
    """The OOD sets of a metric that replace official ones, in words; "" if there are none."""
    if not metric.startswith(OOD_METRICS):
        return ""
    group = metric.partition(":")[2]
    sets = [*(panel["near"] if group != "far" else ()), *(panel["far"] if group != "near" else ())]
    found = [name for name in sets if name in STAND_IN_OOD]
    return f"the OOD sets {', '.join(found)}" if found else ""


def _dataset_and_setting(panel: Mapping[str, Any]) -> str:
    if panel["task"] == "noisy":
        return f"{panel['title']} {panel['setting']}"
    return f"{panel['title']} against {', '.join([*panel['near'], *panel['far']])}"


def _interval(mean: float, std: float, seeds: int, limits: tuple[float, float]) -> tuple[float, float]:
    """Student's 95% interval of the mean, cut to the values that the quantity can have."""
    from scipy.stats import t

    half_width = float(t.ppf(0.975, seeds - 1)) * std / math.sqrt(seeds)
    return max(limits[0], mean - half_width), min(limits[1], mean + half_width)
