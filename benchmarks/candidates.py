"""Evaluates every candidate score of the noisy-label methods on tuning noise: where `ranked_by` comes from.

Runs the methods on the tuning settings of a configuration (other noise than any table reports) through the same jobs as
the workflow, and writes AUC-PR by method, candidate and setting. The candidate with the best mean is the one that a
method should rank by. Results are added to those in `--out`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, rounded, run_command, temporary_folder, write_report
from benchmarks.processes import Processes, jobs_in_order, with_one_cell_a_job, write_labels
from sgoif.bench.config import resolve_config
from sgoif.bench.data.prepare import prepare
from sgoif.bench.evaluation.evaluate import evaluate
from sgoif.bench.methods import registry
from sgoif.errors import UserError

Scores = dict[str, dict[str, dict[str, float]]]  # method -> candidate -> setting -> mean AUC-PR over seeds


@dataclass(frozen=True)
class DatasetRun:
    """The cells of one task and dataset of a configuration, and where they are computed.

    Attributes:
        config: The resolved configuration; its `run` is the name of the command, after which the logs are called.
        task: "noisy" or "tuning".
        dataset: Name of the dataset.
        folder: Folder of the run.
    """

    config: dict[str, Any]
    task: str
    dataset: str
    folder: Path

    def run(
        self,
        methods: list[str],
        workers: int = 1,
        until: float = float("inf"),
        report: Callable[[], object] = lambda: None,
    ) -> int:
        """Prepare the dataset, write its labels and compute every cell of methods and of the shared runs they read.

        Args:
            methods: The methods, in the order in which they are begun.
            workers: Processes at a time.
            until: `time.monotonic()` at which nothing runs any more.
            report: Called about every minute, and at the end.

        Returns:
            How many jobs were not finished in time.

        Raises:
            UserError: If something outside the methods is wrong.
        """
        plan, data = with_one_cell_a_job(self.config), self.config["data"]
        prepare(self.dataset, Path(data["root"]), data["mirror"], data["download"])
        seeds = plan.seeds(self.task, self.dataset)
        entry = {"task": self.task, "dataset": self.dataset, "seeds": seeds, "methods": methods}
        jobs = jobs_in_order(plan, [entry])
        write_labels(plan, self.folder, jobs)
        processes = Processes(self.config["run"], plan, self.folder, jobs, until, report)
        processes.run(workers)
        report()
        for job, failure in processes.failed.items():
            raise UserError(f"{job.dataset} {job.method} {job.number}: {failure}; see {processes.logs}")
        return len(processes.undone)


def measure(config: dict[str, Any], dataset: str, methods: list[str], folder: Path) -> tuple[Scores, dict[str, str]]:
    """Run methods on the tuning settings of a dataset.

    Returns:
        The scores, and the reasons of the methods that failed.
    """
    cells = DatasetRun(config, "tuning", dataset, folder)
    cells.run(methods)
    return scores_of(cells, methods)


def scores_of(cells: DatasetRun, methods: list[str]) -> tuple[Scores, dict[str, str]]:
    """Evaluate the cells that are there.

    Returns:
        The scores, and the reasons of the methods that failed.
    """
    values, failed = values_of(cells)
    scores = {
        method: {
            candidate: {setting: sum(seeds.values()) / len(seeds) for setting, seeds in by_setting.items()}
            for candidate, by_setting in by_candidate.items()
        }
        for method, by_candidate in values.items()
    }
    return scores, {method: reason for method, reason in failed.items() if method in methods}


def values_of(cells: DatasetRun) -> tuple[dict[str, dict[str, dict[str, dict[int, float]]]], dict[str, str]]:
    """Evaluate the cells that are there.

    Returns:
        AUC-PR by method, candidate, setting and seed, and the reasons of the methods that failed.
    """
    values: dict[str, dict[str, dict[str, dict[int, float]]]] = {}
    failed = {}
    for record in evaluate(cells.folder, Path(cells.config["data"]["root"]), cells.task, cells.dataset, cells.config):
        method = record["method"]
        if record["metric"] == "auc_pr" and record["epoch"] is None:
            by_setting = values.setdefault(method, {}).setdefault(record["variant"] or own_score(cells, method), {})
            by_setting.setdefault(record["setting"], {})[record["seed"]] = record["value"]
        elif record["metric"] == "status" and record["status"] == "failed":
            failed[method] = record["reason"]
    return values, failed


def own_score(cells: DatasetRun, method: str) -> str:
    """Return the name of the score that a method or variant ranks by: the variant's `score`, or what is declared."""
    name, variant = registry.split_variant(method)
    params = cells.config.get("variants", {}).get(name, {}).get(variant, {})
    score: str = params.get("score", registry.declaration("noisy", name).ranked_by)
    return score


def means(scores: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return the mean over settings of every candidate."""
    return {name: sum(by_setting.values()) / len(by_setting) for name, by_setting in scores.items()}


def main(argv: list[str] | None = None) -> None:
    """Read the arguments and measure."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--config", default="embedded.yaml", help="file in configs/")
    arguments.add_argument("--dataset", default="digits")
    arguments.add_argument("--methods", nargs="+", help="default: all with candidates")
    arguments.add_argument("--seeds", nargs="+", type=int, help="default: the configuration's")
    arguments.add_argument("--out", type=Path)
    options = arguments.parse_args(argv)
    known = registry.available("noisy")
    methods = options.methods or [m for m in known if registry.declaration("noisy", m).candidates]
    dataset: dict[str, Any] = {"tuning_methods": methods, "retrain": False, "restrict": None}
    if options.seeds:
        dataset["tuning_seeds"] = options.seeds
    with temporary_folder() as folder:
        layer = {"run": "candidates", "extends": options.config, "data": {"root": f"{folder}/data"}}
        config = resolve_config({**layer, "noisy": {options.dataset: dataset}}, ROOT / "configs")
        scores, failed = measure(config, options.dataset, methods, folder / "run")
    for method, found in scores.items():
        best = max(means(found), key=means(found).__getitem__)
        print(f"{method}: best {best}; {json.dumps(rounded(means(found)))}")
    for method, reason in failed.items():
        print(f"{method} failed: {reason}")
    if options.out:
        spec = config["noisy"][options.dataset]
        about = {"config": options.config, "dataset": options.dataset, "metric": "auc_pr", "recipe": spec["recipe"]}
        _add_to(options.out, scores, {**about, "seeds": spec.get("tuning_seeds", spec["seeds"])})


def _add_to(path: Path, scores: Scores, parameters: dict[str, Any]) -> None:
    """Write the scores into a report, beside those of other methods that it holds already."""
    before = json.loads(path.read_text())["figures"] if path.is_file() else {}
    write_report(path, "candidates", parameters, dict(sorted({**before, **scores}.items())))


if __name__ == "__main__":
    run_command(main)
