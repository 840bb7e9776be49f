"""Measures fidelity in convolutional networks on one GPU, in several processes and within a time limit.

    python -m benchmarks.fidelity.gpu --config configs/fidelity-cifar.yaml --seconds 400 --processes 4

It writes what `make tables CONFIG=configs/fidelity-cifar.yaml` writes, but needs neither Snakemake nor MLflow, and the
processes share the retrainings. Stopped or out of time, the same command goes on. The datasets must be prepared.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import run_command
from sgoif.bench.fidelity.cells import folder, measure_cells, truth_key
from sgoif.bench.fidelity.problem import build_problem
from sgoif.bench.fidelity.residual import measure_residuals
from sgoif.bench.fidelity.table import write_fidelity_table
from sgoif.bench.fidelity.truth import missing_files, train_halves
from sgoif.utils.files import atomic_write_json

Spec = dict[str, Any]


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="configs/fidelity-cifar.yaml", help="configuration with `fidelity`")
    parser.add_argument("--data", default="data", help="folder of the prepared datasets")
    parser.add_argument("--out", default="results/fidelity-cifar", help="folder of the run")
    parser.add_argument("--seconds", type=float, default=400, help="start nothing new after so many seconds")
    parser.add_argument("--processes", type=int, default=4, help="processes that train halves")
    parser.add_argument("--device", default="cuda", help="cuda or cpu")
    parser.add_argument("--only", nargs="*", help="names of measurements, if not all")
    parser.add_argument("--residuals", nargs="*", default=[], help="measurements whose residuals are also measured at "
                        "the width and with the recipe of configs/cifar.yaml")  # fmt: skip
    args = parser.parse_args()
    end = time.time() + args.seconds
    specs = read_specs(Path(args.config))
    specs = {name: spec for name, spec in specs.items() if not args.only or name in args.only}
    for name in args.residuals:
        write_residuals(args, name, specs[name])
    finished = {}
    for name, spec in specs.items():
        done = [measure(args, name, spec, seed, end) for seed in spec["seeds"]]
        if all(done):
            shared = [method for method in spec["methods"] if all(method in methods for methods in done)]
            finished[name] = {**spec, "methods": shared}
    if finished:
        print(write_fidelity_table(args.out, {"fidelity": finished})[0].read_text(), flush=True)


def read_specs(path: Path) -> dict[str, Spec]:
    """Return the measurements of a configuration, or of a JSON file of them where no package reads configurations."""
    if path.suffix == ".json":
        return dict(json.loads(path.read_text()))
    from sgoif.bench.config.resolve import load_config

    return dict(load_config(path)["fidelity"])


def write_residuals(args: argparse.Namespace, name: str, spec: Spec) -> None:
    """Measure the residuals of each scope with the whole ResNet-9 and 20% wrong labels, unless that is done."""
    path = Path(args.out) / f"residuals-{name}.json"
    if path.is_file():
        return
    start = time.time()
    changed = {**spec, "width": 64, "batch_size": 512, "lr": 0.4, "noise": 0.2}
    found = measure_residuals(build_problem(args.data, changed, spec["seeds"][0], args.device))
    atomic_write_json(path, {"measured": found, "with": changed})
    print(f"{name}: residuals {found}, {time.time() - start:.0f} s", flush=True)


def measure(args: argparse.Namespace, name: str, spec: Spec, seed: int, end: float) -> list[str]:
    """Measure one seed as far as time allows, and return the methods that are done."""
    start = time.time()
    kept = folder(args.out, name, seed) / f"halves-{truth_key(spec, seed)}"
    complete = train_in_processes(args, spec, seed, kept, end)
    print(f"{name} seed {seed}: halves {'done' if complete else 'not done'}, {time.time() - start:.0f} s", flush=True)
    done: list[str] = []
    for method in spec["methods"] if complete else []:
        if time.time() > end:
            print(f"{name} seed {seed}: out of time before {method}", flush=True)
            break
        done.append(method)
        start = time.time()
        measure_cells(args.out, args.data, name, {**spec, "methods": done}, seed, args.device, print)
        print(f"{name} seed {seed}: {method}, {time.time() - start:.0f} s", flush=True)
    if len(done) == len(spec["methods"]):
        shutil.rmtree(kept)
    return done


def train_in_processes(args: argparse.Namespace, spec: Spec, seed: int, kept: Path, end: float) -> bool:
    """Train on the halves in several processes, and return whether all of them are done."""
    if (kept.parent / "truth.npz").is_file():
        return True
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=work, args=(args, spec, seed, kept, end, number)) for number in range(args.processes)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    failed = [worker.exitcode for worker in workers if worker.exitcode]
    if failed:
        raise SystemExit(f"{len(failed)} of {len(workers)} processes failed; see above")
    return not missing_files(spec, kept)


def work(args: argparse.Namespace, spec: Spec, seed: int, kept: Path, end: float, number: int) -> None:
    """Train this process's share of the halves."""
    torch.set_num_threads(1)
    problem = build_problem(args.data, spec, seed, args.device)
    train_halves(problem, spec, kept, number, args.processes, lambda: time.time() < end)


if __name__ == "__main__":
    run_command(main)
