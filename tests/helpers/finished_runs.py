"""A finished run of one setting whose cells were written by hand, with real data, labels, seals and a small store."""

from __future__ import annotations

import base64
import contextlib
import sqlite3
from pathlib import Path

import numpy as np
import yaml

from sgoif.bench.config import load_config
from sgoif.bench.data.holdout import hold_out
from sgoif.bench.data.noisy_labels import write_setting
from sgoif.bench.data.prepare import prepare
from sgoif.bench.execution import results
from sgoif.bench.execution.integrity.run_files import batch_files, noise_draws, result_files
from sgoif.bench.execution.plan import Plan
from sgoif.bench.execution.records import BatchEntry
from sgoif.utils.files import atomic_write_bytes, atomic_write_json, npz_bytes
from tests.helpers.project_copy import MINI_CONFIG

FIGURES = ("table1_detection.svg", "table1_detection.png")


def write_config(folder: Path) -> Path:
    """Write the mini configuration without OOD detection to mini.yaml."""
    raw = yaml.safe_load(MINI_CONFIG.read_text())
    raw |= {"ood": {}, "methods": {"noisy": ["random", "loss", "mixup"], "ood": ["msp"]}}
    raw["tables"].pop("table3")
    path = folder / "mini.yaml"
    path.write_text(yaml.safe_dump(raw))
    return path


def finished_run(folder: Path) -> tuple[Plan, Path]:
    """Write the run to `folder`/results/mini and its data to `folder`/data; no training takes place."""
    plan = Plan(load_config(write_config(folder)))
    run_dir = folder / "results" / "mini"
    for name in sorted(plan.needed_datasets()):
        prepare(name, folder / "data")
    for dataset, setting, draw in noise_draws(plan):
        write_setting(folder / "data", run_dir, dataset, setting, plan.noise(dataset, setting, draw), draw)
        hold_out(folder / "data", run_dir, dataset, plan.held_out(dataset))
    atomic_write_json(run_dir / "config.json", plan.config)
    for path, cells in batch_files(plan, run_dir).items():
        entries = [BatchEntry.of(write_cell(run_dir, cell, plan.cell_config(cell))).to_json() for cell in cells]
        atomic_write_json(path, {"cells": entries}, seal=True)
    for path in [*result_files(plan, run_dir, FIGURES), run_dir / "records.parquet"]:
        data = b"[]\n" if "metrics" in path.parts else b'"content"\n'
        data = npz_bytes(images=np.zeros(3)) if path.suffix == ".npz" else data
        atomic_write_bytes(path, data, seal=True)
    write_store(run_dir)
    write_records(folder)
    return plan, run_dir


def write_records(folder: Path) -> None:
    """Write a record of Snakemake for every file of the run."""
    records = folder / ".snakemake" / "metadata"
    records.mkdir(parents=True)
    for path in folder.glob("results/mini/**/*"):
        if path.is_file():
            name = base64.urlsafe_b64encode(str(path.relative_to(folder)).encode()).decode()
            (records / name).write_text("{}")


def write_cell(run_dir: Path, cell, config: dict) -> results.ResultRecord:
    """Write a cell: a plain run has a checkpoint, mixup failed with seed 0, the plain run and what reads it with 1."""
    failed = (cell.method, cell.seed) in {("mixup", 0), ("plain", 1), ("loss", 1)} and cell.setting == "n20_s0"
    if failed:
        reason = "SharedRunFailed: its plain run failed" if cell.method == "loss" else "ValueError: no luck"
        return results.write(run_dir, cell, "key", "failed", reason, config=config)
    if cell.method == "plain":
        atomic_write_bytes(run_dir / cell.folder / "checkpoints" / "5.pt", b"weights", seal=True)
    arrays = {"scores": np.arange(50.0), "ids": np.arange(50)}
    return results.write(run_dir, cell, "key", "ok", arrays=arrays, config=config)


def write_store(run_dir: Path) -> None:
    """Write as much of MLflow's tables as tells which runs there are."""
    folder = run_dir / "mlflow"
    folder.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as database:
        database.execute("CREATE TABLE experiments (experiment_id INTEGER, name TEXT)")
        database.execute("CREATE TABLE runs (run_uuid TEXT, name TEXT, experiment_id INTEGER, lifecycle_stage TEXT)")
        database.execute("INSERT INTO experiments VALUES (1, 'mini/noisy/digits')")
        for n in range(200):
            database.execute("INSERT INTO runs VALUES (?, ?, 1, 'active')", (f"{n:032}", "a run" * 20))
        database.commit()
    atomic_write_json(folder / "imported.json", {"experiments": ["mini/noisy/digits"], "runs": 200})
