"""Compares settings of attribution methods on images that the fidelity table does not draw from.

    python -m benchmarks.fidelity.tuning --data data --out results/fidelity-tuning.json

Every method has a few trials on the second pool of the digits, with other seeds than the table's. The table of
docs/lab-notebook/fidelity.md says what was chosen. Stopped, the same command goes on.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import run_command
from sgoif.bench.config.resolve import load_config
from sgoif.bench.fidelity.measure import lds
from sgoif.bench.fidelity.methods import attribute
from sgoif.bench.fidelity.problem import AttributionProblem, build_problem
from sgoif.bench.fidelity.truth import half_margins, random_halves
from sgoif.utils.files import atomic_write_json

SEEDS = (101, 102, 103)
HALVES = 192


def grid(**values: list[Any]) -> list[dict[str, Any]]:
    """Return all combinations of settings."""
    return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]


TRIALS: dict[str, list[dict[str, Any]]] = {
    "sgoif_all": grid(damping=[0.05, 0.1, 0.2, 0.4], window=[0.25, 0.5]) + grid(half_life=[0.5, 2.0]),
    "sgoif_head": grid(damping=[0.05, 0.1, 0.2, 0.4, 1.0]),
    "tracin": grid(checkpoints=[1, 2, 4, 10, 20]),
    "trak": grid(dimension=[128, 256, 512], regulariser=[0.0, 1.0, 10.0, 100.0]),
    "ekfac": grid(damping=[None, 1e-8, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1]),
}


def main() -> None:
    """Read the command line, run the trials, and print them, best first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="data", help="folder of the prepared datasets")
    parser.add_argument("--out", default="results/fidelity-tuning.json", help="file of the results")
    parser.add_argument("--methods", nargs="*", default=list(TRIALS), choices=list(TRIALS), help="methods to try")
    args = parser.parse_args()
    spec = load_config("configs/fidelity.yaml")["fidelity"]["digits"] | {"pool": "second"}
    path = Path(args.out)
    found: dict[str, float] = json.loads(path.read_text()) if path.is_file() else {}
    for seed in SEEDS:
        todo = [(m, t) for m in args.methods for t in TRIALS[m] if name(m, t, seed) not in found]
        if todo:
            problem = build_problem(args.data, spec, seed)
            masks = random_halves(problem, HALVES)
            margins = half_margins(problem, masks, 0)
            for method, trial in todo:
                found[name(method, trial, seed)] = score(problem, masks, margins, method, trial)
                atomic_write_json(path, found)
    for method in args.methods:
        means = {json.dumps(t): sum(found[name(method, t, s)] for s in SEEDS) / len(SEEDS) for t in TRIALS[method]}
        for trial in sorted(means, key=means.__getitem__, reverse=True):
            print(f"{method:12s} {means[trial]:.3f} {trial}", flush=True)


def name(method: str, trial: dict[str, Any], seed: int) -> str:
    """Return the name of one result in the file."""
    return f"{method} {json.dumps(trial, sort_keys=True)} seed {seed}"


def score(
    problem: AttributionProblem, masks: torch.Tensor, margins: torch.Tensor, method: str, trial: dict[str, Any]
) -> float:
    """Return the LDS of one prediction."""
    return lds(attribute(method, problem, trial).effects, masks, margins).value


if __name__ == "__main__":
    run_command(main)
