"""A small run directory written by hand: no training, but real files in the formats of docs/architecture.md."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sgoif.bench.data.checksums import describe
from sgoif.bench.data.noisy_labels import setting_files
from sgoif.utils.files import atomic_write_json, read_json, save_npy, save_npz, sha256_file

N, M, HELD_OUT, CLASSES = 400, 66, 6, 4
GRID = {
    f"n{n}s{s}": {"kind": "class_conditional", "noise": n / 100, "sparsity": s / 10} for n in (20, 40) for s in (0, 4)
}
SKILL = {"random": 0.0, "loss": 1.0, "aum": 1.6, "sgoif": 1.7, "mixup": 0.7, "incv": 1.2, "confident_learning": 1.4}


def config(**changes) -> dict:
    """A resolved configuration with every kind of table."""
    methods = ["random", "loss", "aum", "incv", "mixup", "confident_learning", "sgoif", "sgoif@no_gate", "newcomer"]
    base = {
        "noisy": {
            "digits": {
                "title": "digits", "stands_for": "CIFAR-10", "settings": dict(GRID), "seeds": [0, 1, 2],
                "tuning": {"tune30": {"kind": "symmetric", "rate": 0.3}}, "methods": methods,
            },
        },
        "ood": {
            "digits7": {"title": "digits 0-6", "stands_for": "MNIST", "near": ["digits789"], "far": ["photos", "noise"],
                        "seeds": [0, 1, 2], "methods": ["msp", "ebo", "knn", "cutpaste", "udg", "sgoif"]},
        },
        "variants": {"sgoif": {"no_gate": {"gate": "none"}}},
        "tables": {
            "table1": {"kind": "noise_grid", "dataset": "digits"},
            "table2": {"kind": "noise_sets", "title": "Table 2. Other noisy sets",
                       "sets": [{"dataset": "digits", "setting": "n20s0"}, {"dataset": "webvision"}]},
            "table3": {"kind": "ood", "title": "Table 3. OOD detection"},
            "ablation": {"kind": "ablation", "dataset": "digits", "settings": ["n20s0"], "title": "Ablation",
                         "extended": True, "ood": "digits7"},
            "cost": {"kind": "cost", "title": "Cost"},
        },
        "not_run": [
            {"task": "noisy", "dataset": "webvision", "title": "WebVision", "reason": "data not found: 16 GB"},
            {"task": "ood", "dataset": "imagenet", "title": "ImageNet", "reason": "data not found: needs a licence"},
        ],
    }  # fmt: skip
    return {**base, **changes}


class Run:
    """Writes data, truth, cells and batches below `root`."""

    def __init__(self, root: Path, seed: int = 0):
        self.root, self.data, self.rng = root / "run", root / "data", np.random.default_rng(seed)
        self.labels = {}

    def test_labels(self, dataset: str) -> np.ndarray:
        if dataset not in self.labels:
            self.labels[dataset] = self.rng.integers(0, CLASSES, M)
            save_npy(self.data / dataset / "test_labels.npy", self.labels[dataset])
            atomic_write_json(
                self.data / dataset / "meta.json", {"arrays": {"test_labels": describe(self.labels[dataset])}}
            )
            save_npz(self.root / "labels" / dataset / "val.npz", index=np.arange(HELD_OUT))
        return self.labels[dataset]

    def truth(self, dataset: str, setting: str, rate: float) -> tuple[np.ndarray, np.ndarray]:
        """Write the truth of the draws of eight seeds, all alike."""
        wrong, ids = self.rng.random(N) < rate, np.array([f"id{i:05d}" for i in range(N)])
        true_labels = self.rng.integers(0, CLASSES, N)
        for draw in range(8):
            path = setting_files(self.root, dataset, setting, draw).truth
            save_npz(path, wrong=wrong, true_labels=true_labels, ids=ids)
        return wrong, ids

    def cell(
        self, task, dataset, setting, seed, method, arrays=None, *, status="ok", reason="", key="k", batch="0", **more
    ):
        """Write one cell and enter it in its batch file."""
        path = f"cells/{task}/{dataset}/{setting}/seed{seed}/{method}"
        folder = self.root / path
        sha = None
        if status == "ok":
            save_npz(folder / "arrays.npz", **(arrays or {}))
            sha = sha256_file(folder / "arrays.npz")
        cell = {"task": task, "dataset": dataset, "setting": setting, "seed": seed, "method": method}
        result = {
            "cell": cell, "key": key, "status": status, "reason": reason, "arrays_sha256": sha, "peak_memory_mb": 300.0,
            "cpu_seconds": {"train": 4.0}, "seconds": {"train": 2.0}, "extras": {}, "shared": [], "commit": "abc1234",
            "config": {"params": {}}, "hardware": {"cpus": 2}, "versions": {"torch": "2.10.0"},
            "created": "2025-01-02T03:04:05+00:00",
        }  # fmt: skip
        atomic_write_json(folder / "result.json", {**result, **more})
        name = self.root / "batches" / task / dataset / method / f"{batch}.json"
        cells = read_json(name)["cells"] if name.is_file() else []
        cells = [c for c in cells if c["path"] != path]
        entry = {"cell": cell, "path": path, "key": key, "status": status, "reason": reason, "arrays_sha256": sha}
        atomic_write_json(name, {"cells": [*cells, entry]})
        return folder

    def logits(self, dataset: str, accuracy: float) -> np.ndarray:
        labels = self.test_labels(dataset)
        said = np.where(self.rng.random(M) < accuracy, labels, (labels + 1) % CLASSES)
        return np.eye(CLASSES)[said]

    def fill_noisy(self, dataset="digits", settings=GRID, seeds=(0, 1, 2), methods=SKILL) -> None:
        """Every cell of `methods`, plain runs, one ablation variant; `newcomer` fails in various ways or is missing."""
        for setting, spec in settings.items():
            wrong, ids = self.truth(dataset, setting, spec["noise"])
            for seed in seeds:
                plain = {"test_logits": self.logits(dataset, 0.8)}
                self.cell("noisy", dataset, setting, seed, "plain", plain, seconds={"train": 2.0, "record": 0.5},
                          network_passes={"train": 10**6}, curves={"loss": [1.0, 0.5, 0.3]})  # fmt: skip
                for method, skill in {**methods, "sgoif@no_gate": 1.0}.items():
                    scores = self.rng.normal(size=N) + skill * wrong
                    arrays = {"scores": scores, "ids": ids, "variant:early": scores + self.rng.normal(size=N)}
                    arrays |= {"test_logits": self.logits(dataset, 0.8 + skill / 20), "remove": scores > 1}
                    arrays["epoch_scores"] = scores + 0.1 * self.rng.normal(size=(3, N))
                    own_training = method in ("mixup", "incv", "sgoif", "sgoif@no_gate")
                    seconds = {"train": 3.0 + skill} if own_training else {"score": 0.1, "retrain": 1.5}
                    self.cell("noisy", dataset, setting, seed, method, arrays, seconds=seconds,
                              shared=[] if own_training else ["plain"],
                              network_passes={"train": 3 * 10**6} if own_training else {},
                              extras={"hvps_per_step": 2.5} if "sgoif" in method else {})  # fmt: skip
            reason = "the loss became NaN in epoch 3"
            if setting != "n40s4":
                self.cell("noisy", dataset, setting, 0, "newcomer", status="failed", reason=reason)
            if setting in ("n20s0", "n20s4"):
                arrays = {"scores": self.rng.normal(size=N) + wrong, "ids": ids}
                self.cell("noisy", dataset, setting, 1, "newcomer", arrays, shared=["plain"])

    def fill_ood(self, dataset="digits7", sets=("digits789", "photos", "noise"), methods=None) -> None:
        for seed in (0, 1, 2):
            plain = {"id_logits": self.logits(dataset, 0.9)}
            self.cell("ood", dataset, "clean", seed, "plain", plain, seconds={"train": 4.0, "record": 1.0},
                      network_passes={"train": 10**6})  # fmt: skip
            for method, skill in (methods or {"msp": 1.0, "ebo": 1.3, "knn": 2.0, "udg": 0.5, "sgoif": 2.05}).items():
                arrays = {"id_test": self.rng.normal(size=M), "id_logits": self.logits(dataset, 0.9)}
                for i, name in enumerate(sets):
                    arrays[f"ood:{name}"] = self.rng.normal(size=40 + 20 * i) + skill * (1 + i)
                if method == "sgoif":  # a score that does not rank: the first in reverse
                    arrays |= {f"variant:kinship:{k}": -v for k, v in arrays.items() if k != "id_logits"}
                seconds = {"train": 6.0, "score": 0.02} if method == "udg" else {"fit": 0.3, "score": 0.02}
                self.cell("ood", dataset, "clean", seed, method, arrays, seconds=seconds,
                          network_passes={"train": 2 * 10**6} if method == "udg" else {},
                          shared=[] if method == "udg" else ["plain"])  # fmt: skip
            reason = "ran past its time limit of 60 s"
            self.cell("ood", dataset, "clean", seed, "cutpaste", status="failed", reason=reason)
