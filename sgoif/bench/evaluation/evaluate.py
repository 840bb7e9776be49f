"""Evaluates cells against the truth: results/<run>/metrics/<task>/<dataset>.json, a flat list of metric records.

Besides `detection_curves` this is the only code that reads both what a method found and what is true. A cell that
failed becomes a record with its reason; a cell whose files do not fit together is an error, because a table must not
be made from it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sgoif.bench.config.shares import allowed, restriction
from sgoif.bench.data import load
from sgoif.bench.data.holdout import held_out_file
from sgoif.bench.data.noisy_labels import draw_of_seed, is_drawn, setting_files
from sgoif.bench.evaluation import metrics
from sgoif.bench.evaluation.cell_result import CellResult, read_cells
from sgoif.bench.evaluation.metric_record import MetricRecord, Name, Subject, metrics_file
from sgoif.bench.evaluation.ood_quality import Quality, ood_quality
from sgoif.bench.evaluation.overhead import costs
from sgoif.bench.execution.plan import Plan
from sgoif.bench.methods.registry import SHARED
from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_json, load_npz

DETECTION = ("p_at_1", "auc_pr", "auroc")  # undefined where no label can be judged or is wrong
NO_TRUTH = (
    "nobody has checked the labels of these training images one by one, so which are wrong is not known and detection "
    "cannot be scored; test accuracy is on the validation images, which people labelled"
)
NONE_WRONG = "none of these labels is wrong, so there is nothing to find"
NOT_RUN = "the configuration asks for it, but no batch of this run holds it; run the workflow again"


def evaluate(
    run_dir: Path | str, data_root: Path | str, task: str, dataset: str, config: dict[str, Any]
) -> list[MetricRecord]:
    """Evaluate every cell of one task and dataset, and write the metrics file.

    Args:
        run_dir: Folder of the run.
        data_root: Folder of the prepared datasets.
        task: "noisy", "tuning" (the noisy settings that choices may be made on) or "ood".
        dataset: Name of the dataset.
        config: The resolved configuration.

    Returns:
        The records of the file, with a "not run" record for every cell that the configuration asks for and that does
        not exist.

    Raises:
        UserError: If the files of a cell are damaged or do not fit together.
    """
    plan = Plan(config)
    settings = plan.settings(task, dataset)
    cells = read_cells(run_dir, task, dataset, {*SHARED, *plan.methods(task, dataset)})
    wanted = [cell for cell in cells if cell.name[0] in settings]
    evaluator = CellEvaluator(Path(run_dir), Path(data_root), task, dataset, plan.spec(task, dataset), wanted)
    records = arrange_records(plan, task, dataset, {name: evaluator.records(name) for name in evaluator.names()})
    path = metrics_file(run_dir, task, dataset)
    atomic_write_json(path, records, seal=True)
    path.touch()  # Snakemake compares times, so an unchanged file must look new too
    return records


def arrange_records(
    plan: Plan, task: str, dataset: str, found: Mapping[Name, list[MetricRecord]], why_missing: str = NOT_RUN
) -> list[MetricRecord]:
    """Put the records of a metrics file in order and add those of cells that are missing.

    Args:
        plan: What the configuration asks for.
        task: "noisy", "tuning" or "ood".
        dataset: Name of the dataset.
        found: Records by what they are about (`CellEvaluator.names`).
        why_missing: The reason for cells that the configuration asks for and that are not there.

    Returns:
        The records about the labels, then those of the cells that the configuration asks for, "not run" with the reason
        where there are none, then those of all other cells.
    """
    expected: list[Name] = [(c.setting, c.seed, c.method) for c in plan.expected_cells(task, dataset)]
    labels = sorted((n for n in found if not n[2]), key=lambda n: (n[0], -1 if n[1] is None else n[1]))
    others = sorted(found.keys() - set(expected) - set(labels))
    records: list[MetricRecord] = []
    for name in [*labels, *expected, *others]:
        records += found[name] if name in found else [_not_run(plan, Subject(task, dataset, *name), why_missing)]
    return records


def _not_run(plan: Plan, missing: Subject, why: str) -> MetricRecord:
    limits = restriction(plan.spec(missing.task, missing.dataset), missing.method)
    is_allowed = allowed(limits, missing.setting, missing.seed)
    return missing.record("status", status="not run", reason=why if is_allowed else limits["reason"])


class CellEvaluator:
    """Makes the records of single cells of one task and dataset.

    It may be sent to other processes, which read the truth anew.

    Args:
        run_dir: Folder of the run.
        data_root: Folder of the prepared datasets.
        task: "noisy", "tuning" or "ood".
        dataset: Name of the dataset.
        spec: The configuration of the dataset.
        cells: The cells, shared runs included.
    """

    def __init__(
        self,
        run_dir: Path,
        data_root: Path,
        task: str,
        dataset: str,
        spec: Mapping[str, Any],
        cells: Iterable[CellResult],
    ):
        self.task = task
        self.dataset = dataset
        self.spec = spec
        self.cells: dict[Name, CellResult] = {cell.name: cell for cell in cells}
        settings = {} if task == "ood" else spec["settings" if task == "noisy" else "tuning"]
        self._truth = _Truth(run_dir, data_root, dataset, settings)

    def names(self) -> list[Name]:
        """Return what there are records about: labels and every cell.

        Labels that a seed draws are (setting, seed, ""), those that are the same for all seeds (setting, None, "").
        """
        if self.task == "ood":
            return list(self.cells)
        settings = self._truth.settings
        labels = ((s, seed if is_drawn(settings[s]) else None, "") for s, seed, _ in self.cells)
        return [*dict.fromkeys(labels), *self.cells]

    def records(self, name: Name) -> list[MetricRecord]:
        """Return the records about one of `names`.

        Raises:
            UserError: If the files of a cell are damaged or do not fit together.
        """
        subject = Subject(self.task, self.dataset, *name)
        cell = self.cells.get(name)
        if cell is None:
            facts = _label_facts(self._truth.noisy(subject.setting, subject.seed))
            return [subject.record(metric, value) for metric, value in facts.items()]
        if cell.result.status != "ok":
            reason = cell.result.reason or "no reason given"
            return [subject.record("status", status=cell.result.status, reason=reason)]
        arrays = self._evaluated_arrays(cell)
        try:
            records = self._quality_records(subject, arrays)
        except UserError as e:  # scores that cannot be ranked are the method's failure, not the table's
            return [subject.record("status", status="failed", reason=str(e))]
        for metric, value, status, reason in costs(self.task, cell, self.cells, arrays):
            records.append(subject.record(metric, value, status=status, reason=reason))
        return records

    def _evaluated_arrays(self, cell: CellResult) -> dict[str, np.ndarray]:
        """Load a cell's arrays, check that they belong to the truth, and drop test images that do not count."""
        arrays = cell.arrays()
        tested = self._truth.tested
        others = [key for key in arrays if key.startswith("variant:") and key.endswith(":id_test")]
        for key in ("test_logits", "test_logits_same", "id_logits", "id_test", *others):
            if key in arrays:
                if len(arrays[key]) != len(tested):
                    raise cell.damaged(f"`{key}` has {len(arrays[key])} rows for {len(tested)} test images")
                arrays[key] = arrays[key][tested]
        if self.task != "ood":
            setting, seed, _ = cell.name
            check_identity(cell, arrays, self._truth.noisy(setting, seed)["ids"])
        return arrays

    def _quality_records(self, subject: Subject, arrays: Mapping[str, np.ndarray]) -> list[MetricRecord]:
        test_labels = self._truth.test_labels[self._truth.tested]
        if self.task == "ood":
            return [_quality_record(subject, *found) for found in ood_quality(arrays, test_labels, self.spec)]
        truth = self._truth.noisy(subject.setting, subject.seed)
        reason = NONE_WRONG if truth.get("known", np.ones(1, bool)).any() else NO_TRUTH
        records = [_quality_record(subject, *found, reason) for found in _noisy_quality(arrays, truth, test_labels)]
        return [*records, *_epoch_records(subject, arrays, truth)]


class _Truth:
    """The truth about one dataset, read when it is first needed."""

    def __init__(self, run_dir: Path, data_root: Path, dataset: str, settings: Mapping[str, Mapping[str, Any]]):
        self.run_dir = run_dir
        self.data_root = data_root
        self.dataset = dataset
        self.settings = settings
        self.held_out = held_out_file(run_dir, dataset)
        self.cache: dict[Path, dict[str, np.ndarray]] = {}

    def noisy(self, setting: str, seed: int | None) -> dict[str, np.ndarray]:
        """Return the truth of the labels that a seed sees; seed None: of labels that are the same for all seeds."""
        draw = draw_of_seed(self.settings[setting], seed or 0)
        path = setting_files(self.run_dir, self.dataset, setting, draw).truth
        if path not in self.cache:
            self.cache[path] = load_npz(path)
        return self.cache[path]

    @functools.cached_property
    def test_labels(self) -> np.ndarray:
        return load.true_labels(self.data_root, self.dataset, "test")

    @functools.cached_property
    def tested(self) -> np.ndarray:
        """Mask of the test images that count: not those set aside with their labels, which methods may have seen."""
        tested = np.ones(len(self.test_labels), dtype=bool)
        tested[load_npz(self.held_out)["index"]] = False
        return tested


def check_identity(cell: CellResult, arrays: Mapping[str, np.ndarray], true_ids: np.ndarray) -> None:
    """Check that the scores of a cell belong to the examples of the truth, in the same order.

    A plain run has no scores, hence it needs no ids.

    Args:
        cell: The cell, for the error.
        arrays: Its arrays.
        true_ids: Identities of the training examples, shape [n].

    Raises:
        UserError: If the ids are missing or differ.
    """
    ids = arrays.get("ids")
    if ids is None:
        if "scores" in arrays or "remove" in arrays:
            raise cell.damaged("arrays.npz has scores but no `ids` that say of which examples")
        return
    if ids.shape != true_ids.shape:
        difference = "the number of examples"
    elif not np.array_equal(ids, true_ids):
        difference = f"{int((ids != true_ids).sum())} of {ids.size}"
    else:
        return
    raise cell.damaged(f"its `ids` are not those of the truth ({difference} differ): other examples or another order")


def _label_facts(truth: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return the share of wrong labels and how many can be judged; `n_train` only where not all can."""
    wrong = truth["wrong"]
    if "known" not in truth:
        return {"base_rate": float(wrong.mean()), "n_examples": float(wrong.size)}
    known = truth["known"]
    facts = {"n_train": float(wrong.size)}
    if known.any():
        facts |= {"base_rate": float(wrong[known].mean()), "n_examples": float(known.sum())}
    return facts


def _quality_record(subject: Subject, variant: str, metric: str, value: float | None, reason: str = "") -> MetricRecord:
    if value is None:
        return subject.record(metric, variant=variant, status="undefined", reason=reason)
    return subject.record(metric, value, variant=variant)


def _noisy_quality(
    arrays: Mapping[str, np.ndarray], truth: Mapping[str, np.ndarray], test_labels: np.ndarray
) -> Quality:
    """Yield the metrics of a noisy-label cell.

    Where the truth is known for some examples alone, those are ranked among themselves; where it is known for none, or
    no label is wrong, the value is None: not defined.
    """
    known = truth.get("known", slice(None))
    wrong = truth["wrong"][known]
    if not wrong.any():
        yield from (("", metric, None) for metric in DETECTION if "scores" in arrays)
    else:
        for key in sorted(k for k in arrays if k == "scores" or k.startswith("variant:")):
            variant = key.removeprefix("scores").removeprefix("variant:")
            yield from ((variant, m, v) for m, v in metrics.detection(arrays[key][known], wrong, key).items())
        if "remove" in arrays:
            yield from (("", m, v) for m, v in metrics.removal(arrays["remove"][known], wrong).items())
        if "remove_same" in arrays:
            found = metrics.removal(arrays["remove_same"][known], wrong, "remove_same")
            yield from (("", m.replace("removal_", "same_"), v) for m, v in found.items())
    if "epoch_scores" in arrays:
        yield "", "tau_top1", metrics.top_tau(arrays["epoch_scores"])
    if "test_logits" in arrays:
        yield "", "test_accuracy", metrics.accuracy(arrays["test_logits"], test_labels)
    if "test_logits_same" in arrays:
        yield "", "test_accuracy_same", metrics.accuracy(arrays["test_logits_same"], test_labels, "test_logits_same")


def _epoch_records(
    subject: Subject, arrays: Mapping[str, np.ndarray], truth: Mapping[str, np.ndarray]
) -> Iterator[MetricRecord]:
    """Yield the metrics of each epoch's own scores, where a method has them and some label is wrong."""
    if "epoch_scores" not in arrays or not truth["wrong"].any():
        return
    known = truth.get("known", slice(None))
    by_epoch = metrics.by_epoch(arrays["epoch_scores"][:, known], truth["wrong"][known])
    for metric, values in by_epoch.items():
        for epoch, value in enumerate(values):
            if not math.isnan(value):
                yield subject.record(f"epoch:{metric}", value, epoch=epoch)
