"""Turns a configuration into cells and batches: what there is to compute, and when it counts as changed.

A cell is one measurement: a method on a dataset with a noise setting and a seed. A batch is a group of cells of one
method that one Snakemake job computes.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sgoif.bench.config.ood_sets import other_sets
from sgoif.bench.config.shares import allowed, restriction
from sgoif.bench.config.values import digest
from sgoif.bench.data import noisy_labels
from sgoif.bench.execution.fingerprint import source_hash
from sgoif.bench.methods import registry
from sgoif.bench.methods.registry import FOLDS, PLAIN, SHARED, task_kind
from sgoif.errors import UserError

NOISY_TASKS = ("noisy", "tuning")  # tuning: the same jobs on the settings that choices may be made on
TASKS = (*NOISY_TASKS, "ood")
CLEAN = "clean"


def _require_known(name: str, known: Collection[str], what: str) -> None:
    if name not in known:
        raise UserError(f"this run has no {what} {name!r}; there are: {', '.join(known)}")


def shared_module(name: str) -> str:
    """Return the dotted name of the module that computes a shared run."""
    return {PLAIN: "sgoif.bench.methods.plain_training", FOLDS: "sgoif.bench.methods.cross_validation"}[name]


@dataclass(frozen=True)
class Cell:
    """One measurement.

    Attributes:
        task: "noisy", "tuning" or "ood".
        dataset: Name of the dataset.
        setting: Name of the noise setting, "clean" for OOD detection.
        seed: Seed of the run.
        method: Name of the method or shared run, with its variant: sgoif@no_gate.
    """

    task: str
    dataset: str
    setting: str
    seed: int
    method: str

    @property
    def folder(self) -> Path:
        """The cell's folder, relative to the run's folder."""
        return Path("cells") / self.task / self.dataset / self.setting / f"seed{self.seed}" / self.method

    def __str__(self) -> str:
        return f"{self.task}/{self.dataset}/{self.setting}/seed{self.seed}/{self.method}"


class Plan:
    """The cells of a resolved configuration.

    Args:
        config: The resolved configuration.
    """

    def __init__(self, config: dict[str, Any]):
        self.config = config

    def datasets(self, task: str) -> list[str]:
        """Return the datasets of a task."""
        if task == "tuning":
            return [d for d, spec in self.config["noisy"].items() if spec.get("tuning")]
        return list(self.config[task])

    def require(self, task: str, dataset: str, method: str | None = None, number: int = 0) -> None:
        """Check that the run has a task, dataset, method and batch.

        Raises:
            UserError: If it does not have one of them.
        """
        _require_known(task, TASKS, "task")
        _require_known(dataset, self.datasets(task), f"dataset of {task}")
        if method is not None:
            _require_known(method, [*SHARED, *self.methods(task, dataset)], f"method of {task}/{dataset}")
        if not 0 <= number < self.n_batches(task, dataset):
            raise UserError(f"batch {number}: {task}/{dataset} has {self.n_batches(task, dataset)}, counted from 0")

    def spec(self, task: str, dataset: str) -> dict[str, Any]:
        """Return the configuration of a dataset."""
        return self.config[task_kind(task)][dataset]

    def settings(self, task: str, dataset: str) -> dict[str, dict[str, Any]]:
        """Return the noise specifications of a dataset by name of the setting."""
        if task == "ood":
            return {CLEAN: {"kind": "clean"}}
        return self.spec(task, dataset)["settings" if task == "noisy" else "tuning"]

    def noise(self, dataset: str, setting: str, draw: int = 0) -> dict[str, Any]:
        """Return noise and images of a draw of any setting, reported, tuning or clean; not how it is trained on."""
        if setting == CLEAN:
            return {"kind": "clean"}
        _require_known(dataset, self.config["noisy"], "dataset of noisy")
        spec = self.config["noisy"][dataset]
        settings: dict[str, dict[str, Any]] = {**spec["settings"], **spec.get("tuning", {})}
        _require_known(setting, settings, f"setting of {dataset}")
        kept = {k: v for k, v in settings[setting].items() if k not in noisy_labels.TRAINING_KEYS}
        return noisy_labels.drawn(kept, draw)

    def draw(self, cell: Cell) -> int:
        """Return which draw of the noise a cell reads: that of its seed, or the only one."""
        return noisy_labels.draw_of_seed(self.settings(cell.task, cell.dataset)[cell.setting], cell.seed)

    def draws(self, task: str, dataset: str, setting: str) -> list[int]:
        """Return the draws of a setting that the seeds of its dataset need."""
        noise = self.settings(task, dataset)[setting]
        return sorted({noisy_labels.draw_of_seed(noise, seed) for seed in self.seeds(task, dataset)})

    def recipe(self, task: str, dataset: str, setting: str) -> dict[str, Any]:
        """Return the training recipe of a setting: that of its dataset, with the fields that the setting changes."""
        changed = {} if task == "ood" else self.settings(task, dataset)[setting].get("recipe", {})
        return {**self.spec(task, dataset)["recipe"], **changed}

    def start(self, cell: Cell) -> str | None:
        """Return the name of the weights that the networks of a cell start from; None for random ones."""
        start = self.recipe(cell.task, cell.dataset, cell.setting).get("start")
        return start["weights"] if start else None

    def starts(self, task: str, dataset: str) -> list[str]:
        """Return the names of all weights that networks of a dataset start from."""
        found = {self.start(cell) for cell in self.cells(task, dataset, PLAIN)}
        return sorted(name for name in found if name)

    def needed_datasets(self) -> set[str]:
        """Return the names of all datasets that the run reads: its own, behind noisy labels, weights, and OOD sets."""
        names: set[str] = set()
        for dataset, spec in self.config["noisy"].items():
            for noise in {**spec["settings"], **spec.get("tuning", {})}.values():
                names.update(noisy_labels.required_datasets(dataset, noise))
        for task in NOISY_TASKS:
            for dataset in self.datasets(task):
                names.update(self.starts(task, dataset))
        for dataset, spec in self.config["ood"].items():
            names.update([dataset, *other_sets(spec)])
        return names

    def held_out(self, dataset: str) -> int:
        """Return how many test images are set aside with their labels."""
        tasks = [task for task in ("noisy", "ood") if dataset in self.config[task]]
        of_whole_run = self.config.get("select", {}).get("val", {}).get(dataset, 0)
        return max(of_whole_run, *(self.config[task][dataset]["val"] for task in tasks))

    def seeds(self, task: str, dataset: str) -> list[int]:
        """Return the seeds of a dataset."""
        spec = self.spec(task, dataset)
        return spec.get("tuning_seeds", spec["seeds"]) if task == "tuning" else spec["seeds"]

    def methods(self, task: str, dataset: str) -> list[str]:
        """Return the methods of a dataset, variants included, shared runs not."""
        spec = self.spec(task, dataset)
        return spec.get("tuning_methods", spec["methods"]) if task == "tuning" else spec["methods"]

    def cells(self, task: str, dataset: str, method: str) -> list[Cell]:
        """Return the cells of a method by seed, then setting: the order of its batches."""
        settings, seeds = self.settings(task, dataset), self.seeds(task, dataset)
        return [Cell(task, dataset, setting, seed, method) for seed in seeds for setting in settings]

    def expected_cells(self, task: str, dataset: str) -> list[Cell]:
        """Return the cells of all methods by setting, then method, then seed: the order of a metrics file."""
        cells = [cell for method in self.methods(task, dataset) for cell in self.cells(task, dataset, method)]
        settings = list(self.settings(task, dataset))
        return sorted(cells, key=lambda cell: settings.index(cell.setting))

    def n_batches(self, task: str, dataset: str) -> int:
        """Return how many batches each method of a dataset has."""
        per_job = self.cells_per_job(task, dataset)
        n = len(self.settings(task, dataset)) * len(self.seeds(task, dataset))
        return math.ceil(n / per_job) if per_job else 1

    def batch_slots(self, task: str, dataset: str, method: str, number: int) -> list[Cell]:
        """Return the cells of a batch, those that `restrict` excludes included."""
        cells = self.cells(task, dataset, method)
        size = self.cells_per_job(task, dataset) or len(cells)
        return cells[number * size : (number + 1) * size]

    def batch(self, task: str, dataset: str, method: str, number: int) -> list[Cell]:
        """Return the cells of a batch that its method computes."""
        return [c for c in self.batch_slots(task, dataset, method, number) if self.wanted(c)]

    def wanted(self, cell: Cell) -> bool:
        """Return whether the cell is computed, which `restrict` in the configuration may exclude."""
        return allowed(restriction(self.spec(cell.task, cell.dataset), cell.method), cell.setting, cell.seed)

    def retrains(self, cell: Cell) -> bool:
        """Return whether the network is trained again without the examples that the cell's method removes."""
        return self._chosen(self.spec(cell.task, cell.dataset).get("retrain", True), cell)

    def retrains_same(self, cell: Cell) -> bool:
        """Return whether the network is trained again without the number of examples that all methods remove."""
        if cell.task == "ood" or cell.method in SHARED:
            return False
        return self._chosen(self.spec(cell.task, cell.dataset).get("retrain_same", False), cell)

    @staticmethod
    def _chosen(chosen: Any, cell: Cell) -> bool:
        """Return whether `retrain` or `retrain_same` of the configuration includes a cell."""
        if isinstance(chosen, dict):
            return cell.method in chosen and allowed(chosen[cell.method], cell.setting, cell.seed)
        return chosen if isinstance(chosen, bool) else cell.method in chosen

    def params(self, method: str) -> dict[str, Any]:
        """Return the hyper-parameters that the configuration sets for a method or variant."""
        name, variant = registry.split_variant(method)
        changed = self.config["variants"].get(name, {}).get(variant, {}) if variant else {}
        return {**self.config["params"].get(name, {}), **changed}

    def cell_config(self, cell: Cell) -> dict[str, Any]:
        """Return everything in the configuration that the cell's result depends on."""
        spec = self.spec(cell.task, cell.dataset)
        others = () if cell.method in SHARED else ("near", "far", "auxiliary", "validation")
        keys = ("recipe", "val", *others)
        used = {k: spec[k] for k in keys if k in spec}
        if spec.get("openood_lists") and cell.method not in SHARED:
            used["openood_lists"] = True
        if cell.task != "ood" and cell.method not in SHARED:
            used["retrain"] = self.retrains(cell)
        if self.retrains_same(cell):
            used["retrain_same"] = True
        used["recipe"] = self.recipe(cell.task, cell.dataset, cell.setting)
        noise = {"kind": "clean"} if cell.task == "ood" else self.noise(cell.dataset, cell.setting, self.draw(cell))
        return {"cell": asdict(cell), "noise": noise, "params": self.params(cell.method), **used}

    def cells_per_job(self, task: str, dataset: str) -> int:
        """Return how many cells one job computes: what the dataset says, else the whole run; 0 for all."""
        return self.spec(task, dataset).get("cells_per_job", self.config["execution"]["cells_per_job"])

    def processes(self, task: str, dataset: str, method: str) -> int:
        """Return how many processes compute a cell of this method together, if the machine has as many GPUs."""
        name, _ = registry.split_variant(method)
        together = name in SHARED
        if not together:
            declared, params = registry.declaration(task_kind(task), name), self.params(method)
            together = declared.distributes and not any(params.get(k) == v for k, v in declared.alone_with.items())
        asked: int = self.spec(task, dataset).get("processes", self.config["execution"]["processes"])
        return asked if together else 1

    def code(self, task: str, method: str) -> str:
        """Return the hash of the code that a cell of this method runs."""
        name, _ = registry.split_variant(method)
        return source_hash(
            "sgoif.bench.execution.run_batch",
            shared_module(name) if name in SHARED else f"baselines.{task_kind(task)}.{name}",
        )

    def fingerprint(self, task: str, dataset: str, method: str, number: int) -> str:
        """Return a hash that changes exactly when a batch has to be computed again."""
        cells = self.batch(task, dataset, method, number)
        return digest([self.code(task, method), [self.cell_config(c) for c in cells]])
