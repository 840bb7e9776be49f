"""Loads what the cells of a batch read, once in a process: images, noisy labels, shared runs.

Training labels come from results/<run>/labels; test labels and the truth are not read here at all.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from sgoif.bench.config.ood_sets import other_sets
from sgoif.bench.config.values import digest
from sgoif.bench.data import catalogue, load
from sgoif.bench.data.holdout import held_out_file
from sgoif.bench.data.noise.spec import is_symmetric, known_rate
from sgoif.bench.data.noise.subset import is_subset
from sgoif.bench.data.noisy_labels import read_kept, read_labels, setting_files
from sgoif.bench.data.openood_lists import kept_images
from sgoif.bench.execution.plan import Cell, Plan
from sgoif.bench.execution.records import BatchEntry, read_batch
from sgoif.bench.execution.results import files_problem
from sgoif.bench.execution.validate import damaged_cell
from sgoif.bench.methods import registry
from sgoif.bench.methods.confident_joint import count_wrong
from sgoif.bench.methods.declaration import MethodDeclaration
from sgoif.bench.methods.plain_run import PlainRun
from sgoif.bench.methods.registry import FOLDS, PLAIN, SHARED
from sgoif.bench.methods.tasks import NoiseFacts, NoisyTask, OODTask
from sgoif.errors import UserError
from sgoif.training.images import ImageSet, ImageSource
from sgoif.training.recipe import Recipe
from sgoif.training.session import Session
from sgoif.training.streaming import ImageFiles, StreamedSet, UnreadableImages, decode_all
from sgoif.utils.files import load_npz, sha256_file

VALIDATION_DRAW = 0  # seed of the OOD validation images: the same ones for every method and seed


class Inputs:
    """The inputs of the cells of one task and dataset.

    Args:
        plan: The cells of the run.
        run_dir: Folder of the run.
        task: "noisy", "tuning" or "ood".
        dataset: Name of the dataset.
        device: Where images and labels are put.
    """

    def __init__(self, plan: Plan, run_dir: Path, task: str, dataset: str, device: torch.device):
        self.plan = plan
        self.run_dir = run_dir
        self.task = task
        self.dataset = dataset
        self.device = device
        self.root = Path(plan.config["data"]["root"])
        self.spec = plan.spec(task, dataset)
        self.facts = catalogue.get(dataset)
        self._labels: dict[tuple[str, int], tuple[np.ndarray | None, np.ndarray]] = {}  # by setting and draw
        self.unreadable = UnreadableImages()  # images that could not be decoded while they were used

    # --- images and labels ------------------------------------------------------------------------------------------

    def _images(self, name: str, part: str) -> ImageSource:
        """Return a dataset's images with the size and channels of the ID set.

        A folder of image files is streamed if the ID set is one itself, else it is decoded once.
        """
        if load.image_folder(self.root, name) is not None:
            streamed = self._streamed(name, part)
            if load.image_folder(self.root, self.dataset) is not None:
                return streamed
            pixels = decode_all(streamed)
        else:
            pixels = load.images(self.root, name, part)
            if name != self.dataset:
                pixels = load.convert_images(pixels, self.facts.channels, self.facts.image_size)
        return ImageSet(np.asarray(pixels), self.facts.mean, self.facts.std, self.device)

    def _streamed(self, name: str, part: str) -> StreamedSet:
        folder = load.image_folder(self.root, name)
        if folder is None:
            raise UserError(f"{name} is not a folder of image files")
        files = ImageFiles(
            folder,
            load.paths(self.root, name, part),
            self.facts.image_size,
            self.facts.channels,
            self.facts.margin,
        )
        workers = self.plan.config["execution"]["threads"]
        return StreamedSet(files, self.facts.mean, self.facts.std, self.device, workers, self.unreadable)

    def recipe(self, setting: str) -> Recipe:
        """Return how networks are trained on a setting, with the file of the weights that they start from."""
        recipe = Recipe.from_dict(self.plan.recipe(self.task, self.dataset, setting))
        if recipe.start is None:
            return recipe
        return replace(recipe, start=recipe.start.at(load.weights_file(self.root, recipe.start.weights)))

    @functools.cached_property
    def _all_train(self) -> ImageSource:
        return self._images(self.dataset, "train")

    def train(self, cell: Cell) -> ImageSource:
        """Return the training images of a cell: all, or the part that its setting keeps."""
        kept, _ = self._given(cell)
        return self._all_train if kept is None else self._all_train.subset(kept)

    def train_ids(self, cell: Cell) -> np.ndarray:
        """Return the identities of the training images of a cell, shape [n]."""
        ids = np.asarray(load.ids(self.root, self.dataset, "train"))
        kept, _ = self._given(cell)
        return ids if kept is None else ids[kept]

    @functools.cached_property
    def test(self) -> ImageSource:
        """The test images."""
        return self._images(self.dataset, "test")

    @functools.cached_property
    def val(self) -> tuple[ImageSource, torch.Tensor]:
        """The test images that were set aside, and their labels."""
        held = load_npz(held_out_file(self.run_dir, self.dataset))
        return self.test.subset(held["index"]), torch.from_numpy(held["labels"]).to(self.device)

    def labels(self, cell: Cell) -> torch.Tensor:
        """Return the noisy training labels of a cell, shape [n]: those that its seed draws."""
        return torch.from_numpy(self._given(cell)[1]).to(self.device)

    def _labels_file(self, cell: Cell) -> Path:
        return setting_files(self.run_dir, self.dataset, cell.setting, self.plan.draw(cell)).labels

    def _given(self, cell: Cell) -> tuple[np.ndarray | None, np.ndarray]:
        """Return the positions of the images that a cell's setting keeps, None for all, and their noisy labels."""
        key = cell.setting, self.plan.draw(cell)
        if key not in self._labels:
            self._labels[key] = self._read_given(cell.setting, self._labels_file(cell))
        return self._labels[key]

    def _read_given(self, setting: str, path: Path) -> tuple[np.ndarray | None, np.ndarray]:
        if self.task != "ood" and is_subset(self.plan.noise(self.dataset, setting)):
            return read_kept(path, self.root, self.dataset)
        return None, read_labels(path, self.root, self.dataset)

    def ood_sets(self) -> dict[str, ImageSource]:
        """Return the near and far OOD sets by name of their array, "ood:<set>"."""
        return {f"ood:{name}": self._ood_set(name) for name in self.spec["near"] + self.spec["far"]}

    def _ood_set(self, name: str) -> ImageSource:
        images = self._images(name, "test")
        tested, _ = self._divided(name, len(images))
        return images if len(tested) == len(images) else images.subset(tested)

    def _divided(self, name: str, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of an OOD set's n images that are tested on, and of those for validation."""
        kept = kept_images(name, self.dataset, n) if self.spec.get("openood_lists") else None
        positions = np.arange(n) if kept is None else kept
        validation = self.spec.get("validation")
        if validation is None or validation["set"] != name:
            return positions, positions[:0]
        if len(positions) <= validation["images"]:
            raise UserError(
                f"ood.{self.dataset}.validation: {validation['images']} of the {len(positions)} images of {name} leave "
                "none to test on"
            )
        drawn = np.random.default_rng(VALIDATION_DRAW).permutation(len(positions))[: validation["images"]]
        return np.delete(positions, drawn), positions[np.sort(drawn)]

    def _ood_val(self) -> ImageSource | None:
        """Return the OOD validation images, which no method is tested on."""
        if (validation := self.spec.get("validation")) is None:
            return None
        name: str = validation["set"]
        is_tested = name in self.spec["near"] + self.spec["far"]
        images = self._images(name, "test") if is_tested else self._other_images(name)
        return images.subset(self._divided(name, len(images))[1])

    def _auxiliary(self) -> ImageSource | None:
        name = self.spec.get("auxiliary")
        return None if name is None else self._other_images(name)

    def _other_images(self, name: str) -> ImageSource:
        """Return the images of a set that is not tested on: those for training, if it has any."""
        return self._images(name, "train" if "train" in catalogue.get(name).parts else "test")

    # --- shared runs ------------------------------------------------------------------------------------------------

    def _shared_entry(self, cell: Cell, run: str) -> tuple[BatchEntry, Path] | None:
        """Return the entry and the batch file of the shared run of the same setting and seed, if there is one."""
        folder = self.run_dir / "batches" / cell.task / cell.dataset / run
        for batch in sorted(folder.glob("*.json")):
            for entry in read_batch(batch):
                if (entry.cell.setting, entry.cell.seed) == (cell.setting, cell.seed):
                    return entry, batch
        return None

    def _require_shared_entry(self, cell: Cell, run: str) -> tuple[BatchEntry, Path]:
        found = self._shared_entry(cell, run)
        if found is None:
            raise UserError(f"{cell} reads the {run} run, which does not exist; run it through Snakemake")
        return found

    def _shared_folder(self, cell: Cell, run: str) -> Path:
        """Return the folder of a shared run that a cell reads, after checking that every file in it is intact."""
        entry, batch = self._require_shared_entry(cell, run)
        folder = self.run_dir / entry.path
        if wrong := files_problem(folder, entry.arrays_sha256):
            raise damaged_cell(folder, batch, wrong)
        return folder

    def _declaration(self, cell: Cell) -> MethodDeclaration | None:
        if cell.method in SHARED:
            return None
        return registry.declaration(registry.task_kind(cell.task), registry.split_variant(cell.method)[0])

    def _uses_trusted(self, cell: Cell) -> bool:
        declared = self._declaration(cell)
        return declared is not None and declared.uses_trusted

    def shared_runs(self, cell: Cell) -> list[str]:
        """Return the names of the shared runs that a cell reads."""
        declared = self._declaration(cell)
        return declared.shared_runs if declared else []

    def shared_failure(self, cell: Cell) -> str:
        """Says which shared run that a cell reads has failed and why; empty if none has.

        Raises:
            UserError: If such a run does not exist.
        """
        failed = ""
        for run in self.shared_runs(cell):
            entry, _ = self._require_shared_entry(cell, run)
            if entry.status != "ok":
                failed = f"its {run} run failed: {entry.reason}"
        return failed

    def key(self, cell: Cell, code: str) -> str:
        """Return the hash of all that a cell depends on.

        Args:
            cell: The cell.
            code: Hash of the code that it runs.
        """
        parts = [code, self.plan.cell_config(cell), load.meta(self.root, self.dataset)["content_hash"]]
        parts.append(sha256_file(self._labels_file(cell)))
        if start := self.plan.start(cell):
            parts.append(load.meta(self.root, start)["content_hash"])
        if cell.task == "ood" or self._uses_trusted(cell):
            parts.append(sha256_file(held_out_file(self.run_dir, self.dataset)))
        counted = [FOLDS] if self.plan.retrains_same(cell) else []
        for run in dict.fromkeys([*self.shared_runs(cell), *counted]):
            found = self._shared_entry(cell, run)
            parts.append(found[0].key if found else None)
        if cell.task == "ood" and cell.method not in SHARED:
            parts += [load.meta(self.root, name)["content_hash"] for name in other_sets(self.spec)]
        return digest(parts)

    def _plain(self, cell: Cell) -> PlainRun | None:
        if PLAIN not in self.shared_runs(cell):
            return None
        folder = self._shared_folder(cell, PLAIN)
        size, channels = self.facts.image_size, self.facts.channels
        return PlainRun(folder, self.recipe(cell.setting), len(self.facts.classes), channels, size, self.device)

    def _folds(self, cell: Cell) -> np.ndarray | None:
        if FOLDS not in self.shared_runs(cell):
            return None
        return load_npz(self._shared_folder(cell, FOLDS) / "arrays.npz")["probabilities"]

    def common_count(self, cell: Cell) -> int | None:
        """Return how many examples every method removes in a cell that is retrained with the same number.

        It is what confident learning counts from the folds of the same setting and seed; no method is told. None if
        the cell is not retrained so, or if its folds failed or were not run.
        """
        if not self.plan.retrains_same(cell):
            return None
        found = self._shared_entry(cell, FOLDS)
        if found is None or found[0].status != "ok":
            print(f"{cell}: no folds to count by, so it is not trained again with the same number", file=sys.stderr)
            return None
        probabilities = load_npz(self._shared_folder(cell, FOLDS) / "arrays.npz")["probabilities"]
        return count_wrong(probabilities.astype(np.float64), self._given(cell)[1])

    def _noise(self, cell: Cell) -> NoiseFacts | None:
        """Return what the experimenter knows of the noise, for methods that are told; no label is compared for it."""
        declared = self._declaration(cell)
        if declared is None or not declared.told_noise:
            return None
        spec = self.plan.settings(cell.task, cell.dataset)[cell.setting]
        rate = known_rate(spec, len(self.facts.classes), self.facts.superclasses)
        return None if rate is None else NoiseFacts(rate, "symmetric" if is_symmetric(spec) else "asymmetric")

    # --- tasks ------------------------------------------------------------------------------------------------------

    def noisy_task(self, cell: Cell, session: Session) -> NoisyTask:
        """Return what the method of a noisy-label cell gets."""
        return NoisyTask(
            train=self.train(cell),
            labels=self.labels(cell),
            test=self.test,
            n_classes=len(self.facts.classes),
            seed=cell.seed,
            recipe=self.recipe(cell.setting),
            session=session,
            plain=self._plain(cell),
            folds=self._folds(cell),
            trusted=self.val if self._uses_trusted(cell) else None,
            noise=self._noise(cell),
        )

    def ood_task(self, cell: Cell, session: Session) -> OODTask:
        """Return what the method of an OOD cell gets."""
        declared = self._declaration(cell)
        return OODTask(
            train=self.train(cell),
            labels=self.labels(cell),
            val=self.val[0],
            n_classes=len(self.facts.classes),
            seed=cell.seed,
            recipe=self.recipe(cell.setting),
            session=session,
            plain=self._plain(cell),
            auxiliary=self._auxiliary() if declared and declared.uses_auxiliary else None,
            ood_val=self._ood_val() if declared else None,
        )
