"""Cells and the truth in, flat records out: results/<run>/metrics/<task>/<dataset>.json.

The only code that reads both what a method said and what is true. A cell that failed becomes a record with its reason;
a cell whose files do not fit together is an error, because a table must not be made from it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sgoif.bench.data import load
from sgoif.bench.data.holdout import held_out_file
from sgoif.bench.evaluation import metrics
from sgoif.bench.evaluation.overhead import cost_records
from sgoif.bench.execution.plan import allowed, restriction
from sgoif.bench.execution.validate import damaged_cell, entries, misshapen, odd_array
from sgoif.bench.methods.registry import FOLDS, PLAIN, task_kind
from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_json, load_npz, read_json, sha256_file

DETECTION = ("p_at_1", "auc_pr", "auroc")  # what is said to be undefined where no label can be judged
NO_TRUTH = (
    "nobody has checked the labels of these training images one by one, so which are wrong is not known and detection "
    "cannot be scored; test accuracy is on the validation images, which people labelled"
)
NOT_RUN = "the configuration asks for it, but no batch of this run holds it; run the workflow again"
Name = tuple[str, int | None, str]  # setting, seed, method


@dataclass(frozen=True)
class Cell:
    """One measurement as it lies on disk."""

    directory: Path
    result: dict[str, Any]
    batch: Path

    @property
    def name(self) -> tuple[str, int, str]:
        cell = self.result["cell"]
        return cell["setting"], cell["seed"], cell["method"]

    def fits(self, entry: Mapping[str, Any]) -> bool:
        """Is this the result that an entry of a batch file speaks of?"""
        return all(entry.get(k) == self.result.get(k) for k in ("key", "status", "arrays_sha256"))

    def damaged(self, what: str) -> UserError:
        return damaged_cell(self.directory, self.batch, what)

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays that are evaluated, after checking that the file is the one the result speaks of."""
        path = self.directory / "arrays.npz"
        if not path.is_file():
            raise self.damaged("arrays.npz is missing")
        if sha256_file(path) != self.result.get("arrays_sha256"):
            raise self.damaged("arrays.npz is not the file its result.json was written for (sha256 differs)")
        try:
            arrays = load_npz(path, without=("margins", "features"))  # a plain run's, large and not needed
        except UserError as e:
            raise self.damaged(f"arrays.npz cannot be read ({e})") from None
        if wrong := odd_array(arrays):
            raise self.damaged(f"arrays.npz is not what a method writes: {wrong}")
        return arrays


def read_cell(directory: Path, batch: Path) -> Cell:
    """The cell in a folder, belonging to a batch; refused unless its result.json is whole and of the right form."""
    try:
        result = read_json(directory / "result.json")
    except (FileNotFoundError, UserError) as e:
        what = "is missing" if isinstance(e, FileNotFoundError) else "is damaged"
        raise Cell(directory, {}, batch).damaged(f"result.json {what}") from None
    if wrong := misshapen(result):
        raise Cell(directory, {}, batch).damaged(f"result.json is not a cell's result: {wrong}")
    return Cell(directory, result, batch)


def read_cells(run_dir: Path | str, task: str, dataset: str, methods: Collection[str] | None = None) -> list[Cell]:
    """The cells that the batch files of this task and dataset list, each once; of `methods` alone if given."""
    run_dir, cells, stale = Path(run_dir), {}, {}
    for batch in sorted((run_dir / "batches" / task / dataset).glob("*/*.json")):
        if methods is not None and batch.parent.name not in methods:
            continue
        for entry in entries(batch):
            cell = read_cell(run_dir / entry["path"], batch)
            (cells if cell.fits(entry) else stale)[cell.name] = cell
    for name, cell in stale.items():  # an old batch file beside a newer one that fits is harmless
        if name not in cells:
            raise cell.damaged("result.json is not the one its batch file speaks of (key, status or sha256 differs)")
    return [cells[name] for name in sorted(cells)]


def evaluate(
    run_dir: Path | str, data_root: Path | str, task: str, dataset: str, config: Mapping
) -> list[dict[str, Any]]:
    """Evaluates every cell of one task and dataset, and those that should be there; writes and returns the records.

    `task` is noisy, tuning (the noisy settings that choices may be made on) or ood.
    """
    run_dir, data_root = Path(run_dir), Path(data_root)
    spec = config[task_kind(task)][dataset]
    wanted = _expected(task, spec)
    settings, methods = {name[0] for name in wanted}, {name[2] for name in wanted}
    there = read_cells(run_dir, task, dataset, {PLAIN, FOLDS, *methods})
    judge = Judge(run_dir, data_root, task, dataset, spec, [c for c in there if c.name[0] in settings])
    records = arranged(task, dataset, spec, {name: judge.records(name) for name in judge.names()})
    path = run_dir / "metrics" / task / f"{dataset}.json"
    atomic_write_json(path, records, seal=True)
    path.touch()  # Snakemake compares times, so an unchanged file must look new too
    return records


class Judge:
    """Cells of one task and dataset beside the truth. It may be sent to other processes, which read the truth anew."""

    def __init__(self, run_dir: Path, data_root: Path, task: str, dataset: str, spec: Mapping, cells: Iterable[Cell]):
        self.task, self.dataset, self.spec = task, dataset, spec
        self.cells = {cell.name: cell for cell in cells}
        self._truth = _Truth(run_dir, data_root, dataset)

    def names(self) -> list[Name]:
        """What there are records of: the labels of each setting, as (setting, None, ""), and every cell."""
        settings = [] if self.task == "ood" else dict.fromkeys(setting for setting, _, _ in self.cells)
        return [*((setting, None, "") for setting in settings), *self.cells]

    def records(self, name: Name) -> list[dict[str, Any]]:
        """The records of one of `names`; a cell whose files do not fit together is an error."""
        if name not in self.cells:
            facts = _label_facts(self._truth.noisy(name[0]))
            return [_record(self.task, self.dataset, name, metric, value) for metric, value in facts.items()]
        return _cell_records(self.task, self.dataset, self.cells[name], self.cells, self._truth, self.spec)


def arranged(
    task: str, dataset: str, spec: Mapping, found: Mapping[Name, list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """The records of a metrics file: of the labels, of what the configuration asks for, then of all other cells.

    What it asks for and `found` does not have is "not run", with the reason.
    """
    wanted = _expected(task, spec)
    labels = sorted(name for name in found if not name[2])
    others = sorted(found.keys() - set(wanted) - set(labels))
    records = []
    for name in [*labels, *wanted, *others]:
        if name in found:
            records += found[name]
        else:
            share = restriction(spec, name[2])
            reason = NOT_RUN if allowed(share, *name[:2]) else share["reason"]
            records.append(_record(task, dataset, name, "status", status="not run", reason=reason))
    return records


def _expected(task: str, spec: Mapping) -> list[tuple[str, int, str]]:
    """(setting, seed, method) of every cell the configuration asks for, in its order."""
    settings, methods, seeds = spec.get("settings"), spec["methods"], spec["seeds"]
    if task == "ood":
        settings = ["clean"]
    elif task == "tuning":
        settings = spec["tuning"]
        methods, seeds = spec.get("tuning_methods", methods), spec.get("tuning_seeds", seeds)
    return [(s, seed, m) for s in settings for m in methods for seed in seeds]


class _Truth:
    """The truth, read when first asked for."""

    def __init__(self, run_dir: Path, data_root: Path, dataset: str):
        self.folder, self.data_root, self.dataset = run_dir / "truth" / dataset, data_root, dataset
        self.held_out = held_out_file(run_dir, dataset)
        self.cache: dict[str, dict[str, np.ndarray]] = {}

    def noisy(self, setting: str) -> dict[str, np.ndarray]:
        if setting not in self.cache:
            self.cache[setting] = load_npz(self.folder / f"{setting}.npz")
        return self.cache[setting]

    @functools.cached_property
    def test_labels(self) -> np.ndarray:
        return load.true_labels(self.data_root, self.dataset, "test")

    @functools.cached_property
    def tested(self) -> np.ndarray:
        """Which test images count: not those that were set aside with their labels, which methods may have seen."""
        tested = np.ones(len(self.test_labels), dtype=bool)
        tested[load_npz(self.held_out)["index"]] = False
        return tested


def _record(task, dataset, name, metric, value=None, status="ok", reason="", variant="", epoch=None) -> dict[str, Any]:
    setting, seed, method = name
    if value is not None and not math.isfinite(value):
        value, status, reason = None, "undefined", reason or f"{metric} is not defined for these scores"
    return {
        "task": task, "dataset": dataset, "setting": setting, "seed": seed, "method": method, "variant": variant,
        "metric": metric, "value": value, "status": status, "reason": reason, "epoch": epoch,
    }  # fmt: skip


def _cell_records(task, dataset, cell, cells, truth, spec) -> list[dict[str, Any]]:
    result, name = cell.result, cell.name
    if result["status"] != "ok":
        reason = result.get("reason") or "no reason given"
        return [_record(task, dataset, name, "status", status=result["status"], reason=reason)]
    arrays, labels = cell.arrays(), truth.test_labels[truth.tested]
    for key in ("test_logits", "id_logits", "id_test"):
        if key in arrays:
            if len(arrays[key]) != len(truth.tested):
                raise cell.damaged(f"`{key}` has {len(arrays[key])} rows for {len(truth.tested)} test images")
            arrays[key] = arrays[key][truth.tested]
    if task == "ood":
        quality = _ood_quality(arrays, labels, spec)
    else:
        known = truth.noisy(name[0])
        check_identity(cell, arrays, known["ids"])
        quality = _noisy_quality(arrays, known, labels)
    try:
        records = [
            _record(task, dataset, name, metric, value, variant=v, **_undefined(value)) for v, metric, value in quality
        ]
        if task != "ood" and "epoch_scores" in arrays and known["wrong"].any():
            judged = known.get("known", slice(None))
            by_epoch = metrics.by_epoch(arrays["epoch_scores"][:, judged], known["wrong"][judged])
            for metric, values in by_epoch.items():
                known_values = [(e, v) for e, v in enumerate(values) if not math.isnan(v)]
                records += [_record(task, dataset, name, f"epoch:{metric}", v, epoch=e) for e, v in known_values]
    except UserError as e:  # scores that cannot be ranked are the method's failure, not the table's
        return [_record(task, dataset, name, "status", status="failed", reason=str(e))]
    return records + list(cost_records(functools.partial(_record, task, dataset, name), task, cell, cells, arrays))


def check_identity(cell: Cell, arrays: Mapping[str, np.ndarray], known: np.ndarray) -> None:
    """Scores belong to examples by identity, not by luck of order. (A plain run has no scores, hence no ids.)"""
    ids = arrays.get("ids")
    if ids is None:
        if "scores" in arrays or "remove" in arrays:
            raise cell.damaged("arrays.npz has scores but no `ids` that say of which examples")
    elif ids.shape != known.shape or not np.array_equal(ids, known):
        apart = "the number of examples" if ids.shape != known.shape else f"{int((ids != known).sum())} of {ids.size}"
        raise cell.damaged(f"its `ids` are not those of the truth ({apart} differ): other examples or another order")


def _label_facts(truth: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Share and number of the labels that can be judged; of how many, where the truth is known for some alone."""
    wrong = truth["wrong"]
    if "known" not in truth:
        return {"base_rate": float(wrong.mean()), "n_examples": float(wrong.size)}
    facts, known = {"n_train": float(wrong.size)}, truth["known"]
    if known.any():
        facts |= {"base_rate": float(wrong[known].mean()), "n_examples": float(known.sum())}
    return facts


def _undefined(value: float | None) -> dict[str, str]:
    return {"status": "undefined", "reason": NO_TRUTH} if value is None else {}


def _noisy_quality(
    arrays: Mapping[str, np.ndarray], truth: Mapping[str, np.ndarray], test_labels: np.ndarray
) -> Iterator[tuple]:
    """(variant, metric, value) of a noisy-label cell; where no label is wrong there is nothing to detect.

    Where the truth is known for some examples alone, those are ranked among themselves; where it is known for none,
    the value is None: not defined.
    """
    known = truth.get("known", slice(None))
    wrong = truth["wrong"][known]
    if not wrong.size:
        yield from (("", m, None) for m in DETECTION if "scores" in arrays)
    elif wrong.any():
        for key in sorted(k for k in arrays if k == "scores" or k.startswith("variant:")):
            variant = key.removeprefix("scores").removeprefix("variant:")
            yield from ((variant, m, v) for m, v in metrics.detection(arrays[key][known], wrong, key).items())
        if "remove" in arrays:
            yield from (("", m, v) for m, v in metrics.removal(arrays["remove"][known], wrong).items())
    if "epoch_scores" in arrays:
        yield "", "tau_top1", metrics.top_tau(arrays["epoch_scores"])
    if "test_logits" in arrays:
        yield "", "test_accuracy", metrics.accuracy(arrays["test_logits"], test_labels)


def _ood_quality(arrays: Mapping[str, np.ndarray], test_labels: np.ndarray, spec: Mapping) -> Iterator[tuple]:
    """(variant, metric, value) of an OOD cell: per set, near, far, overall; and the ID accuracy."""
    if "id_test" in arrays:
        yield "", "n_id", float(arrays["id_test"].size)
        per_set = {}
        for ood_set in [*spec["near"], *spec["far"]]:
            if f"ood:{ood_set}" not in arrays:
                raise UserError(f"no scores for the OOD set {ood_set}")
            per_set[ood_set] = metrics.ood(arrays["id_test"], arrays[f"ood:{ood_set}"], f"ood:{ood_set}")
            yield "", f"n_ood:{ood_set}", float(arrays[f"ood:{ood_set}"].size)
        for group, values in (per_set | metrics.ood_means(per_set, spec["near"], spec["far"])).items():
            yield from (("", f"{m}:{group}", v) for m, v in values.items())
    logits = "id_logits" if "id_logits" in arrays else "test_logits"
    if logits in arrays:
        yield "", "id_accuracy", metrics.accuracy(arrays[logits], test_labels, logits)
