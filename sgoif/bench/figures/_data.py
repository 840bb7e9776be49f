"""What figures draw: the summary, the metrics by seed and epoch, and the curves. Whatever is missing is empty."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sgoif.bench.evaluation.detection_curves import example_setting
from sgoif.bench.evaluation.metric_record import metrics_file, read_metrics
from sgoif.bench.evaluation.regime_words import describe_regime, without_shared_words
from sgoif.bench.evaluation.resolve_layout import resolve_layout
from sgoif.bench.evaluation.summary_record import layouts, read_summary
from sgoif.bench.evaluation.table_layout import Panel, TableLayout
from sgoif.bench.methods.registry import OURS, PLAIN, has_row, split_variant
from sgoif.bench.tables.captions import describe_noise
from sgoif.bench.tables.names import is_ranked
from sgoif.utils.files import load_npz, read_json

GATES = {"stability": "stability gate", "moving_average": "moving-average gate", "none": "no gate"}
# Kinds of noise, in the order of figures.
KINDS = ("class_conditional", "symmetric", "asymmetric", "superclass", "human", "published")
REGIME = {"balance", "size", "recipe"}  # what a setting may say besides its noise
RANDOM = "random"  # a ranking by chance, whose quality is the share of wrong labels
SEEDS = "Where methods lack seeds, what is shown is over the seeds that all of them have."
Numbers = dict[tuple[str, str, str], Mapping[str, Any]]  # (dataset, setting, method) -> record of the summary


def tables_of(config: Mapping[str, Any], *kinds: str) -> list[str]:
    """Return the names of the tables of these kinds that show every method."""
    return [name for name, spec in config["tables"].items() if spec["kind"] in kinds and "methods" not in spec]


def planned_panels(config: Mapping[str, Any], table: str) -> list[Panel]:
    """Return the panels of a table by the configuration alone."""
    return resolve_layout(table, config["tables"][table], config).panels


def sgoif_datasets(config: Mapping[str, Any], n_settings: int = 1) -> list[str]:
    """Return the noisy datasets that SG-OIF runs on in at least so many settings."""
    found = [name for name, spec in config["noisy"].items() if OURS in spec.get("methods", ())]
    return [name for name in found if len(config["noisy"][name]["settings"]) >= n_settings]


class FigureData:
    """Reads what figures draw from the folder of a run.

    Args:
        run_dir: Folder of the run; it needs summary.json, everything else may be missing.
        config: The run's resolved configuration.
    """

    def __init__(self, run_dir: Path, config: Mapping[str, Any]):
        self.run_dir = run_dir
        self.config = config
        self.records = read_summary(run_dir)
        self.layouts = layouts(self.records)

    def layout(self, table: str) -> TableLayout:
        """Return the layout of a table: its panels (dataset x setting) with their titles."""
        return self.layouts.get(table) or TableLayout(kind="", task="noisy", title=table)

    def numbers(self, table: str, metric: str) -> Numbers:
        """Return (dataset, setting, method) -> record of a metric that has a value, without variants of the score."""
        return {
            (r.get("dataset", ""), r["setting"], r["method"]): r
            for r in self.records
            if (r["table"], r["metric"], r.get("variant", "")) == (table, metric, "") and r["mean"] is not None
        }

    def compared(self, table: str, metric: str) -> Numbers:
        """Return the same over the seeds that all methods of a setting have: each seed draws its own noise.

        Where methods share no seed, they keep what they have.
        """
        found = {key: r for key, r in self.numbers(table, metric).items() if key[2] not in ("", PLAIN, RANDOM)}
        seeds: dict[tuple[str, str], set[int]] = {}
        for (dataset, setting, _), record in found.items():
            place = (dataset, setting)
            seeds[place] = seeds.get(place, set(record["seeds"])) & set(record["seeds"])
        return {key: _of_seeds(record, seeds[key[:2]]) for key, record in found.items()}

    def tried(self, table: str) -> set[str]:
        """Return the methods of a table of which some cell was run, whether it failed or not."""
        own = [r for r in self.records if r["table"] == table and r["metric"] != "layout"]
        return {r["method"] for r in own if r["metric"] != "status" or r["status"] != "not run"}

    @functools.cache  # noqa: B019 - the object lives as long as its process draws
    def curves(self, dataset: str) -> dict[str, Any]:
        """Return the curves of a noisy dataset: {grid, detectors, traces, reliability}."""
        path = self.run_dir / "curves" / "noisy" / f"{dataset}.json"
        empty: dict[str, Any] = {"grid": [], "detectors": [], "traces": [], "reliability": []}
        return empty | (read_json(path) if path.is_file() else {})

    def gallery(self, dataset: str) -> dict[str, np.ndarray]:
        """Return the most suspicious images of a noisy dataset with their labels, one array per name."""
        path = self.run_dir / "curves" / "noisy" / f"{dataset}_gallery.npz"
        return load_npz(path) if path.is_file() else {}

    @functools.cache  # noqa: B019
    def measured(self, dataset: str) -> dict[tuple[str, str, str, str], dict[tuple[int | None, int | None], float]]:
        """Return (setting, method, variant, metric) -> {(seed, epoch): value} of a noisy dataset.

        Epoch None is the whole run; method "" and seed None are the labels of the setting.
        """
        path = metrics_file(self.run_dir, "noisy", dataset)
        found: dict[tuple[str, str, str, str], dict[tuple[int | None, int | None], float]] = defaultdict(dict)
        for r in read_metrics(path) if path.is_file() else []:
            if r["value"] is not None:
                key = (r["setting"], r["method"], r["variant"], r["metric"])
                found[key][r["seed"], r.get("epoch")] = r["value"]
        return found

    def by_epoch(self, dataset: str, setting: str, method: str, metric: str = "auc_pr") -> np.ndarray:
        """Return a metric by epoch, shape [seeds, epochs]; empty where a method has no scores by epoch."""
        found = self.measured(dataset).get((setting, method, "", f"epoch:{metric}"), {})
        seeds = sorted({seed for seed, _ in found if seed is not None})
        epochs = sorted({epoch for _, epoch in found if epoch is not None})
        rows = [[found.get((s, e), np.nan) for e in epochs] for s in seeds]
        return np.array(rows, dtype=np.float64).reshape(len(seeds), len(epochs))

    def by_seed(
        self, dataset: str, setting: str, method: str, metric: str = "auc_pr", variant: str = ""
    ) -> dict[int, float]:
        """Return seed -> value of a metric."""
        found = self.measured(dataset).get((setting, method, variant, metric), {})
        return {seed: value for (seed, _), value in found.items() if seed is not None}

    def base_rate(self, dataset: str, setting: str) -> float | None:
        """Return the share of wrong labels, mean over the draws, None where it is not known."""
        rates = self.measured(dataset).get((setting, "", "", "base_rate"), {}).values()
        return float(np.mean(list(rates))) if rates else None

    def rivals(self, dataset: str, metric: str) -> list[str]:
        """Return the other methods of a dataset that compete and have a value of the metric in some setting.

        Variants are among them where they are rows of every table, but none of SG-OIF.
        """
        there = {method for _, method, variant, m in self.measured(dataset) if (variant, m) == ("", metric)}
        methods = self.config["noisy"][dataset]["methods"]
        rows = [m for m in methods if has_row("noisy", m) and split_variant(m)[0] not in (OURS, PLAIN, RANDOM)]
        return [m for m in rows if m in there and is_ranked("noisy", m)]

    def traces(self, dataset: str, setting: str, method: str, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return a trace by check, cut to the shortest seed and infinite where it diverged.

        Returns:
            Epochs, shape [checks], and values, shape [seeds, checks].
        """
        found = [t for t in self.curves(dataset)["traces"] if (t["setting"], t["method"]) == (setting, method)]
        found = [t for t in found if t.get(name)]
        n = min((len(t["epoch"]) for t in found), default=0)
        values = [[np.inf if v is None else v for v in t[name][:n]] for t in found]
        epochs = np.array(found[0]["epoch"][:n] if found else [])
        return epochs, np.array(values, dtype=np.float64).reshape(len(found), n)

    def gate_methods(self, dataset: str) -> dict[str, str]:
        """Return gate -> the method of this dataset that is SG-OIF with that gate and otherwise unchanged."""
        usual = self.config.get("params", {}).get(OURS, {}).get("gate", "stability")
        found = {usual: OURS}
        for name, changed in self.config.get("variants", {}).get(OURS, {}).items():
            if set(changed) == {"gate"} and f"{OURS}@{name}" in self.config["noisy"][dataset]["methods"]:
                found.setdefault(changed["gate"], f"{OURS}@{name}")
        return {gate: found[gate] for gate in GATES if gate in found}

    def gate_traces(self, dataset: str, setting: str, name: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return gate -> a trace by check of SG-OIF with that gate, see `traces`; a gate without one is left out."""
        found = {g: self.traces(dataset, setting, m, name) for g, m in self.gate_methods(dataset).items()}
        return {gate: trace for gate, trace in found.items() if trace[1].size}

    def comparison_setting(self, dataset: str) -> str:
        """Return the setting to compare gates in: where most of them have numbers, else the usual example."""
        settings = list(self.config["noisy"][dataset]["settings"])
        methods = list(self.gate_methods(dataset).values())
        there = {s: sum(bool(self.by_seed(dataset, s, m)) for m in methods) for s in settings}
        first = example_setting(self.config["noisy"][dataset]["settings"])
        return max(settings, key=lambda s: (there[s], s == first))

    def title(self, dataset: str) -> str:
        """Return the title of a noisy dataset, with what it stands in for and what all its regimes share."""
        spec = self.config["noisy"][dataset]
        place = f", in the place of {spec['stands_for']}" if spec.get("stands_for") else ""
        shared = self._regimes(dataset)[0]
        return f"{spec.get('title', dataset)}{place}{', ' + shared if shared else ''}"

    @functools.cache  # noqa: B019
    def _regimes(self, dataset: str) -> tuple[str, dict[str, str]]:
        """What all settings of a dataset share in words, and setting -> the rest; empty unless all are regimes."""
        settings = self.config["noisy"][dataset]["settings"]
        if len(settings) < 2 or not all(REGIME & noise.keys() for noise in settings.values()):
            return "", {}
        titles = [describe_regime("", noise).removeprefix(", ") for noise in settings.values()]
        shared, rests = without_shared_words(titles)
        return shared, dict(zip(settings, rests, strict=True))

    def setting_title(self, dataset: str, setting: str) -> str:
        """Return a setting in words, such as "symmetric 20%"."""
        noise = self.config["noisy"][dataset]["settings"][setting]
        if REGIME & noise.keys():
            return self._regimes(dataset)[1].get(setting) or describe_regime("", noise).removeprefix(", ")
        rate = noise.get("noise", noise.get("rate"))
        if noise["kind"] == "class_conditional":
            return f"{100 * rate:.0f}%, sparsity {noise.get('sparsity', 0):.1f}"
        return describe_noise(Panel("noisy", dataset, setting, "", kind=noise["kind"], noise=rate))

    def settings(self, dataset: str) -> list[str]:
        """Return the settings of a dataset, those of one kind of noise together, by noise rate and sparsity."""

        def place(item: tuple[str, Mapping[str, Any]]) -> tuple[int, str, float, float]:
            _, noise = item
            kind = noise["kind"]
            rank = KINDS.index(kind) if kind in KINDS else len(KINDS)
            return rank, kind, noise.get("noise", noise.get("rate", 0.0)), noise.get("sparsity", 0.0)

        return [name for name, _ in sorted(self.config["noisy"][dataset]["settings"].items(), key=place)]


def _of_seeds(record: Mapping[str, Any], seeds: Collection[int]) -> Mapping[str, Any]:
    """Return a record of the summary over some of its seeds; unchanged if it has none of them."""
    kept = {seed: v for seed, v in zip(record["seeds"], record["values"], strict=True) if seed in seeds}
    if not kept or len(kept) == len(record["seeds"]):
        return record
    values = list(kept.values())
    return {**record, "mean": float(np.mean(values)), "n_seeds": len(values), "seeds": list(kept), "values": values}
