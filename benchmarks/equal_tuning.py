"""Gives SG-OIF and its strongest rivals ten trials each on the same tuning noise, and reports what was chosen.

Every trial of `benchmarks.trials` runs on the tuning settings of a configuration through the same jobs as the workflow.
Of each method the trial and the declared score with the best mean AUC-PR are chosen. With `--report` the chosen ones,
the defaults and an untuned SG-OIF then run on the settings that the configuration reports.
`--out` holds every trial with its result and is written about once a minute; a start with the same `--folder` goes on
where the last one stopped. After `--limit` seconds nothing runs any more.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from benchmarks.candidates import DatasetRun, own_score, values_of
from benchmarks.common import ROOT, run_command, temporary_folder, write_report
from benchmarks.trials import TRIALS, UNTUNED, names, variants
from sgoif.bench.config import resolve_config
from sgoif.bench.methods import registry

Values = dict[str, dict[str, dict[str, dict[int, float]]]]  # method -> score -> setting -> seed -> AUC-PR
OURS = ["sgoif", "sgoif@untuned", "sgoif@paper"]


def mean_of(by_setting: dict[str, dict[int, float]]) -> float:
    """Return the mean over settings of the mean over seeds."""
    by_seed = [sum(seeds.values()) / len(seeds) for seeds in by_setting.values()]
    return sum(by_seed) / len(by_seed)


def trial_results(family: str, values: Values, cells: int) -> list[dict[str, Any]]:
    """Return the trials of a family with the results of those that have all their cells.

    Args:
        family: Key of `TRIALS`.
        values: AUC-PR of what was run.
        cells: Settings times seeds.
    """
    found = []
    for name, (method, params) in zip(names(family), TRIALS[family], strict=True):
        allowed = registry.declaration("noisy", method).candidates or {"": ""}
        scores = {
            score: by_setting
            for score, by_setting in values.get(name, {}).items()
            if score in allowed and sum(map(len, by_setting.values())) == cells
        }
        found.append({"method": method, "params": params, "auc_pr": scores})
    return found


def choose(trials: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the trial and score with the best mean, beside the mean of the default; None if nothing has run."""
    options = [
        (mean_of(by_setting), number, score)
        for number, trial in enumerate(trials)
        for score, by_setting in trial["auc_pr"].items()
    ]
    if not options:
        return None
    best, number, score = max(options, key=lambda option: (option[0], -option[1]))
    method, params = trials[number]["method"], dict(trials[number]["params"])
    default = trials[0]["auc_pr"].get(registry.declaration("noisy", trials[0]["method"]).ranked_by)
    return {
        "method": method,
        "params": {**params, "score": score} if score else params,
        "mean": best,
        "default_mean": None if default is None else mean_of(default),
        "trials": sum(bool(trial["auc_pr"]) for trial in trials),
    }


def tuning_run(options: argparse.Namespace, folder: Path) -> DatasetRun:
    """Return the cells of all trials; the first trials of all methods come before the second ones."""
    methods = [name for row in zip(*(names(family) for family in options.methods), strict=True) for name in row]
    dataset = {"tuning_methods": methods, "tuning_seeds": options.seeds, "methods": ["sgoif"], "extra_methods": []}
    return _dataset_run(options, folder, "tuning", dataset, variants(options.methods))


def report_run(options: argparse.Namespace, folder: Path, chosen: dict[str, Any]) -> DatasetRun:
    """Return the cells of the chosen trials, the defaults and an untuned SG-OIF on the reported settings."""
    tuned = {family: found for family, found in chosen.items() if found and family != "sgoif"}
    wanted: dict[str, Any] = {"sgoif": {"untuned": UNTUNED}}
    for family, found in tuned.items():
        wanted.setdefault(found["method"], {})[f"tuned_{family}"] = found["params"]
    rows = [name for family, found in tuned.items() for name in (family, f"{found['method']}@tuned_{family}")]
    return _dataset_run(options, folder, "noisy", {"methods": [*OURS, *rows], "extra_methods": []}, wanted)


def _dataset_run(options: argparse.Namespace, folder: Path, task: str, dataset: dict, wanted: dict) -> DatasetRun:
    layer = {
        "run": "equal_tuning",
        "extends": options.config,
        "data": {"root": str(options.data or folder / "data"), "download": options.data is None},
        "variants": wanted,
        "noisy": {options.dataset: {**dataset, "retrain": False, "restrict": None}},
        "tables": {"replace": True, "all": {"kind": "noise_sets", "dataset": options.dataset}},
    }
    config = resolve_config(layer, ROOT / "configs")
    return DatasetRun(config, task, options.dataset, folder / "run")


def report_values(cells: DatasetRun) -> dict[str, Any]:
    """Return AUC-PR by method, setting and seed of each method's own score, and the parameters behind the names."""
    values, failed = values_of(cells)
    found: dict[str, Any] = {}
    for method in cells.config["noisy"][cells.dataset]["methods"]:
        name, variant = registry.split_variant(method)
        params = cells.config["variants"].get(name, {}).get(variant, {})
        found[method] = {"params": params, "auc_pr": values.get(method, {}).get(own_score(cells, method), {})}
        if method in failed:
            found[method]["failed"] = failed[method]
    return found


class Report:
    """The file of results."""

    def __init__(self, options: argparse.Namespace, trial_settings: list[str]) -> None:
        self.path: Path | None = options.out
        self.about = {
            **{key: getattr(options, key) for key in ("config", "dataset", "seeds")},
            "settings": trial_settings,
            "metric": "auc_pr",
        }
        self.trials: dict[str, list[dict[str, Any]]] = {}
        self.chosen: dict[str, Any] = {}
        self.reported: dict[str, Any] = {}

    def add_trials(self, cells: DatasetRun, families: list[str]) -> None:
        """Evaluate the trials that have run, and write."""
        values, failed = values_of(cells)
        count = len(self.about["settings"]) * len(self.about["seeds"])
        self.trials = {family: trial_results(family, values, count) for family in families}
        self.chosen = {family: choose(trials) for family, trials in self.trials.items()}
        for method, reason in failed.items():
            print(f"{method} failed: {reason}")
        self.write()

    def write(self) -> None:
        """Write all that is known so far."""
        if self.path is not None:
            figures = {"chosen": self.chosen, "trials": self.trials, "reported": self.reported}
            write_report(self.path, "equal_tuning", self.about, figures)


def measure(options: argparse.Namespace, folder: Path) -> Report:
    """Run the trials and, if it is asked for, what was chosen."""
    trials = tuning_run(options, folder)
    report = Report(options, list(trials.config["noisy"][options.dataset]["tuning"]))
    missed = 0
    if options.trials:
        figures = json.loads(options.trials.read_text())["figures"]
        report.trials, report.chosen = figures["trials"], figures["chosen"]
    else:
        methods = trials.config["noisy"][options.dataset]["tuning_methods"]
        missed += trials.run(
            methods, options.workers, options.until, lambda: report.add_trials(trials, options.methods)
        )
    if options.report:
        last = report_run(options, folder, report.chosen)

        def add() -> None:
            report.reported = report_values(last)
            report.write()

        missed += last.run(last.config["noisy"][options.dataset]["methods"], options.workers, options.until, add)
    if missed:
        print(f"{missed} cells were not finished within {options.limit} s; start again with the same --folder to go on")
    return report


def main(argv: list[str] | None = None) -> None:
    """Read the arguments and measure."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--config", default="embedded.yaml", help="file in configs/")
    arguments.add_argument("--dataset", default="digits")
    arguments.add_argument("--methods", nargs="+", default=list(TRIALS), choices=list(TRIALS))
    arguments.add_argument("--seeds", nargs="+", type=int, default=[100, 101], help="of the trials")
    arguments.add_argument("--report", action="store_true", help="run what was chosen on the reported settings")
    arguments.add_argument(
        "--trials", type=Path, help="an earlier --out whose trials are taken instead of running them"
    )
    arguments.add_argument("--data", type=Path, help="folder of prepared datasets; default: prepare in --folder")
    arguments.add_argument("--folder", type=Path, help="cells, to go on from; default: a temporary folder")
    arguments.add_argument("--workers", type=int, default=1, help="processes at a time")
    arguments.add_argument("--limit", type=float, default=float("inf"), help="seconds after which nothing runs")
    arguments.add_argument("--out", type=Path)
    options = arguments.parse_args(argv)
    options.until = time.monotonic() + options.limit
    with temporary_folder() as temporary:
        report = measure(options, options.folder or temporary)
    for family, found in report.chosen.items():
        if found:
            before = found["default_mean"]
            print(f"{family}: {found['mean']:.4f}, default {before if before is None else round(before, 4)}; {found}")


if __name__ == "__main__":
    run_command(main)
