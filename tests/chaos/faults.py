"""The faults: what is struck, at which moment, and what has to be made again for anybody to notice."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.project import RUN, Moment

PLAIN, LOSS, TRACIN = (f"cells/noisy/digits/n20_s0/seed0/{m}" for m in ("plain", "loss", "tracin"))
BATCH = {m: f"batches/noisy/digits/{m}/0.json" for m in ("plain", "loss", "tracin")}


def _writes(path: str, act: str = "kill", skip: int = 0) -> Moment:
    """Just before a file written by us gets its name."""
    return Moment("os.rename", path, act, skip)


# In the order of the pipeline: each run is killed a little further on, in the same folder. (moment, target of the run)
VAL, TABLE, SVG = "labels/digits/val.npz", "tables/table1.md", "figures/table1_detection.svg"
MADE, IMPORTED = "mlflow/created", "mlflow/imported.json"
METRICS, SUMMARY = "metrics/noisy/digits.json", "summary.json"
KILLS = {
    "preparing data: an array half there": (Moment("open", r"data/digits/\.train_labels"), TABLE),
    "preparing data: nothing vouches for the arrays": (_writes(r"data/digits/meta\.json", "kill all"), TABLE),
    "holding labels out": (_writes(r"labels/digits/val\.npz"), VAL),
    "corrupting labels: before the truth": (_writes(r"truth/digits/n20_s0\.npz"), TABLE),
    "corrupting labels: truth written, labels not": (_writes(r"labels/digits/n20_s0\.npz", "kill all"), TABLE),
    "training: before the first state is saved": (Moment("open", rf"{PLAIN}/work/\.train\.pt"), TABLE),
    "training: saving the second epoch": (_writes(rf"{PLAIN}/work/train\.pt", "kill all", skip=1), TABLE),
    "training: state saved, times not": (_writes(rf"{PLAIN}/work/times\.npz"), TABLE),
    "training: keeping a checkpoint": (_writes(rf"{PLAIN}/checkpoints/epoch3\.pt"), TABLE),
    "writing results: before the arrays": (_writes(rf"{PLAIN}/arrays\.npz", "kill all"), TABLE),
    "writing results: arrays there, result not": (Moment("open", rf"{PLAIN}/\.result\.json\."), TABLE),
    "writing results: sealed, not yet named": (_writes(rf"{PLAIN}/result\.json"), TABLE),
    "clearing up after the result": (Moment("shutil.rmtree", rf"{PLAIN}/work"), TABLE),
    "writing the batch file": (_writes(BATCH["plain"], "kill all"), TABLE),
    "a method that reads scores: writing its result": (_writes(rf"{LOSS}/result\.json"), BATCH["loss"]),
    "retraining: saving its state": (_writes(rf"{TRACIN}/work/retrain\.pt", "kill all", skip=1), BATCH["tracin"]),
    "a method that reads checkpoints: writing its scores": (_writes(rf"{TRACIN}/arrays\.npz"), BATCH["tracin"]),
    "evaluating: writing the metrics": (_writes(r"metrics/noisy/digits\.json"), TABLE),
    "assembling: before the summary": (_writes(r"chaos/\.summary\.json\.sha256", "kill all"), TABLE),
    "assembling: summary sealed, not yet named": (_writes(r"chaos/summary\.json"), TABLE),
    "assembling tables: Markdown written, LaTeX not": (_writes(r"tables/table1\.tex"), TABLE),
    "assembling tables: the last of four": (_writes(r"tables/table1\.json", "kill all"), TABLE),
    "drawing figures": (_writes(r"figures/table1_detection\.svg"), SVG),
    "making the MLflow store: not yet named": (_writes(r"mlflow/mlflow\.db", "kill all"), MADE),
    "making the MLflow store: among its tables": (Moment("sqlite3.connect", r"mlflow\.db", skip=1, seconds=0.8), MADE),
    "importing to MLflow: the first run": (Moment("open", r"mlflow/artifacts/.*result\.json"), IMPORTED),
    "importing to MLflow: the third run": (Moment("open", r"mlflow/artifacts/.*result\.json", "kill all", 2), IMPORTED),
    "importing to MLflow: the tables": (Moment("open", r"mlflow/artifacts/.*summary\.json"), IMPORTED),
    "importing to MLflow: all in, not yet said": (_writes(r"mlflow/imported\.json", "kill all"), IMPORTED),
}


def _unsynced(path: str, skip: int = 0) -> Moment:
    """The power goes after a file got its name and before its folder is on the disk: the name is lost."""
    return Moment("sync folder", rf"{path}$", "power", skip, lose=rf"{path}$")


def _later(path: str, lose: str = ".") -> Moment:
    """The power goes just before a file gets its name; of earlier names those not on the disk are lost."""
    return Moment("os.rename", rf"{path}$", "power", lose=lose)


POWER = {
    "not yet on the disk: what vouches for prepared data": (_unsynced(r"data/digits/meta\.json"), TABLE),
    "not yet on the disk: labels": (_unsynced(r"labels/digits/n20_s0\.npz"), TABLE),
    "not yet on the disk: the second saved state": (_unsynced(rf"{PLAIN}/work/train\.pt", 1), TABLE),
    "not yet on the disk: scores": (_unsynced(rf"{PLAIN}/arrays\.npz"), TABLE),
    "not yet on the disk: a result": (_unsynced(rf"{PLAIN}/result\.json"), TABLE),
    "not yet on the disk: a batch file": (_unsynced(BATCH["plain"]), TABLE),
    "before the metrics, scores if not on the disk": (_later(METRICS, rf"{LOSS}/arrays\.npz$"), TABLE),
    "before the metrics, all that is not on the disk": (_later(METRICS), TABLE),
    "not yet on the disk: the seal of the summary": (_unsynced(r"chaos/\.summary\.json\.sha256"), TABLE),
    "not yet on the disk: a table": (_unsynced(r"tables/table1\.tex"), TABLE),
}

# What to delete so that a job runs again: Snakemake makes what is missing only where something below it is missing too.
AFTER = {"summary": (TABLE,), "metrics": (SUMMARY, TABLE), "cells": (METRICS, SUMMARY, TABLE)}
AGAIN = {m: (BATCH[m], f"cells/noisy/digits/n20_s0/seed0/{m}", *AFTER["cells"]) for m in ("loss", "tracin")}

STARVED = {  # the disk is full when this file is opened; what is deleted before
    "saving a training state": (Moment("open", rf"{TRACIN}/work/\.retrain\.pt", "full"), AGAIN["tracin"]),
    "writing scores": (Moment("open", rf"{LOSS}/\.arrays\.npz", "full"), AGAIN["loss"]),
    "writing a batch file": (Moment("open", r"loss/\.0\.json", "full"), AGAIN["loss"]),
    "writing metrics": (Moment("open", r"metrics/noisy/\.digits", "full"), AFTER["cells"]),
    "writing a table": (Moment("open", r"tables/\.table1\.md", "full"), AFTER["summary"]),
    "drawing a figure": (Moment("open", r"figures/\.table1_detection\.svg", "full"), (SVG,)),
    "importing to MLflow": (Moment("open", r"mlflow/artifacts/", "full"), ("mlflow/mlflow.db", IMPORTED)),
}


@dataclass(frozen=True)
class Damage:
    """A file is damaged after the run; `redo` is deleted so that somebody has to read it."""

    path: str  # below the run's folder, or below data/ or .snakemake/
    how: str
    redo: tuple[str, ...] = ()
    target: str = "tables/table1.md"

    def place(self) -> Path:
        return Path(self.path) if self.path.startswith(("data/", ".snakemake/")) else RUN / self.path


def _damages() -> list[Damage]:
    found = [Damage(f"{PLAIN}/arrays.npz", how, AGAIN["loss"]) for how in ("cut", "bit", "gone")]
    found += [Damage(f"{PLAIN}/checkpoints/epoch3.pt", how, AGAIN["tracin"]) for how in ("cut", "bit", "rubbish")]
    found += [Damage(f"{PLAIN}/result.json", how, AFTER["cells"]) for how in ("cut", "digit")]
    found += [Damage(f"{LOSS}/arrays.npz", how, AFTER["cells"]) for how in ("cut", "bit", "gone")]
    found += [Damage(f"{LOSS}/result.json", how, AFTER["cells"]) for how in ("empty", "digit", "gone")]
    found += [Damage(BATCH["loss"], how, AFTER["cells"]) for how in ("cut", "digit")]
    found += [Damage(BATCH["plain"], "digit", AGAIN["loss"])]
    found += [Damage(METRICS, how, AFTER["metrics"]) for how in ("cut", "digit")]
    found += [Damage(SUMMARY, how, AFTER["summary"]) for how in ("cut", "digit")]
    found += [Damage(TABLE, how) for how in ("cut", "digit")]
    found += [Damage("labels/digits/n20_s0.npz", how, AGAIN["loss"]) for how in ("cut", "bit")]
    found += [Damage("labels/digits/val.npz", "cut", AGAIN["tracin"])]
    found += [Damage("truth/digits/n20_s0.npz", "bit", AFTER["cells"])]
    found += [Damage("data/digits/train_images.npy", how, AGAIN["loss"]) for how in ("cut", "bit", "gone")]
    found += [Damage("data/digits/test_labels.npy", "bit", AFTER["cells"])]
    found += [Damage("data/digits/meta.json", how, AGAIN["loss"]) for how in ("cut", "gone")]
    found += [
        Damage("mlflow/mlflow.db", how, (IMPORTED,), IMPORTED) for how in ("rubbish", "cut", "page", "empty", "gone")
    ]
    found += [Damage("config.json", "cut", AFTER["cells"]), Damage(".snakemake/metadata", "rubbish", AFTER["cells"])]
    return found


DAMAGES = _damages()
WORKING = [  # a half-trained cell whose saved state is damaged before it goes on
    Damage(f"{PLAIN}/work/{name}", how)
    for name, ways in (("train.pt", ("cut", "bit", "rubbish")), ("times.npz", ("cut",)), ("key", ("empty",)))
    for how in ways
]


def damage(path: Path, how: str, seed: int = 0) -> None:
    """Damages a file (or one file of a folder) in one of the ways disks and people do."""
    if path.is_dir():
        path = sorted(p for p in path.iterdir() if p.is_file())[0]
    data, rng = bytearray(path.read_bytes()), random.Random(seed)
    if how == "gone":
        path.unlink()
        return
    if how == "cut":
        data = data[: len(data) // 2]
    elif how == "empty":
        data = bytearray()
    elif how == "rubbish":
        data = bytearray(rng.randbytes(len(data)))
    elif how == "bit":
        data[2 * len(data) // 3] ^= 1 << rng.randrange(8)
    elif how == "digit":  # still valid JSON or text, and wrong
        at = rng.choice([i for i, c in enumerate(data) if chr(c) in "12345678" and chr(data[i - 1]) in "0123456789."])
        data[at] += 1
    elif how == "page":  # of a database
        data[4096 * 3 : 4096 * 6] = rng.randbytes(4096 * 3)
    path.write_bytes(data)
