"""What a run measured for a number of the paper: on the paper's own dataset, or on data that stands for it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sgoif.bench.paper.printed import DATASETS, Cell, Column, Row

WORDS = {
    "p_at_1": "P@1%", "auc_pr": "average precision", "test_accuracy": "test accuracy after cleaning",
    "recall_at_1": "Recall@1%", "recall_at_5": "Recall@5%", "recall_at_10": "Recall@10%",
    "tau_top1": "Kendall's τ of the top 1%", "extra:hvps_per_step": "HVPs per step",
    "overhead_standalone": "overhead, everything counted", "overhead_marginal": "overhead beside a shared plain run",
    "auroc:overall": "AUROC, mean over OOD sets", "auroc:near": "near-OOD AUROC", "auroc:far": "far-OOD AUROC",
    "aupr_out_ap:overall": "AUPR with OOD positive, mean over OOD sets", "id_accuracy": "classification accuracy",
}  # fmt: skip
OF_METHODS = ("noise_grid", "noise_sets", "ood")  # kinds of tables whose rows are methods, not variants of one
ENDS = {"%": (0.0, 100.0), "×": (0.0, math.inf), "": (-math.inf, math.inf)}  # values a quantity of this unit can have
SAME_NOISE = {"asymmetric": ("asymmetric", "superclass")}  # CIFAR-100's asymmetric noise stays inside superclasses


@dataclass(frozen=True)
class Measurement:
    """A mean over seeds in the paper's unit, or the reason why there is none."""

    what: str = ""  # which metric, and in the place of which dataset if it is a stand-in
    on: str = ""  # dataset and setting
    value: float | None = None
    interval: tuple[float, float] | None = None  # 95%, Student's t over seeds; none for one seed
    seeds: int = 0
    stand_in: bool = False
    reason: str = ""


class Measured:
    """Looks numbers up in the records of a summary, by dataset, noise, method and metric."""

    def __init__(self, records: Sequence[Mapping[str, Any]], config: Mapping[str, Any]):
        layouts = [r["layout"] for r in records if r["metric"] == "layout"]
        self.panels = [{**panel, "of": layout["kind"]} for layout in layouts for panel in layout["panels"]]
        self.absent = {n["dataset"]: n["reason"] for layout in layouts for n in layout["not_run"]}
        keys = ("dataset", "setting", "method", "metric")
        self.numbers = {tuple(r[k] for k in keys): r for r in records if not r["variant"] and r["metric"] != "layout"}
        self.variants = (config.get("variants") or {}).get("sgoif") or {}

    def of(self, cell: Cell, metric: str) -> Measurement:
        """The measurement of `metric` for a printed number."""
        panel, stand_in = self._panel(cell)
        if panel is None:
            return Measurement(reason=self._why_no_panel(cell.column))
        method = self._method(cell.row)
        if not method:
            return Measurement(reason=f"this run has no variant for {cell.row.variant!r}")
        where = (panel["dataset"], panel["setting"], method)
        found = self.numbers.get((*where, metric))
        if found is None or found["mean"] is None:
            status = self.numbers.get((*where, "status")) or found
            reason = (
                f"{status['status']}: {status['reason']}" if status else f"this run measured no {WORDS[metric]} here"
            )
            return Measurement(reason=reason)
        scale = 100.0 if cell.column.unit == "%" else 1.0
        mean, spread, seeds = scale * found["mean"], found["std"], found["n_seeds"]
        interval = None
        if spread is not None and seeds > 1:
            interval = _interval(mean, scale * spread, seeds, ENDS[cell.column.unit])
        words = f" (STAND-IN: {panel['title']} in the place of {cell.column.dataset})" if stand_in else ""
        return Measurement(f"{WORDS[metric]}{words}", _place(panel), mean, interval, seeds, stand_in)

    def _panel(self, cell: Cell) -> tuple[Mapping | None, bool]:
        """(panel, is it a stand-in): on the paper's dataset if there is one, else on data that stands for it."""
        column = cell.column
        there = [p for p in self.panels if p["task"] == column.task and (cell.row.variant or p["of"] in OF_METHODS)]
        fitting = [p for p in there if _same_noise(p, column)]
        for panel in fitting:
            if panel["dataset"] == DATASETS.get(column.dataset):
                return panel, False
        stated = column.kind and not column.assumes and not column.undefined  # else the paper names no noise to match
        for panel in [*fitting, *(() if stated else there)]:
            if re.match(rf"{re.escape(column.dataset)}(?![\w-])", panel["stands_for"] or ""):
                return panel, True
        return None, False

    def _why_no_panel(self, column: Column) -> str:
        dataset = DATASETS.get(column.dataset, "")
        noise = f" with {100 * column.noise:.0f}% noise" if column.noise is not None and column.task == "noisy" else ""
        return self.absent.get(dataset) or f"no table of this run has {column.dataset}{noise}"

    def _method(self, row: Row) -> str:
        """The method's name in this run; a variant is found by what it changes, not by its name."""
        if not row.variant:
            return row.method
        from sgoif import InfluenceConfig

        changes = InfluenceConfig.ablations()[row.variant]
        if not changes:
            return row.method
        return next((f"{row.method}@{name}" for name, params in self.variants.items() if params == changes), "")


def _same_noise(panel: Mapping, column: Column) -> bool:
    if column.task == "ood" or not column.kind:
        return True
    kinds = SAME_NOISE.get(column.kind, (column.kind,))
    sparsity = column.sparsity is None or panel["sparsity"] == column.sparsity
    return panel["kind"] in kinds and panel["noise"] == column.noise and sparsity


def _place(panel: Mapping) -> str:
    if panel["task"] == "noisy":
        return f"{panel['title']} {panel['setting']}"
    return f"{panel['title']} against {', '.join([*panel['near'], *panel['far']])}"


def _interval(mean: float, std: float, seeds: int, ends: tuple[float, float]) -> tuple[float, float]:
    """Student's 95% interval of the mean, cut where the quantity ends."""
    from scipy.stats import t

    half = float(t.ppf(0.975, seeds - 1)) * std / math.sqrt(seeds)
    return max(ends[0], mean - half), min(ends[1], mean + half)
