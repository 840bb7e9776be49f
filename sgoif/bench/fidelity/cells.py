"""Files of a fidelity measurement: results/<run>/fidelity/<name>/seed<seed>/{truth.npz, <method>.json, cells.json}.

Truth and methods are kept as long as their part of the configuration and their code stay the same. A method that fails
is written with `status: failed` and the reason, and tried again by the next run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sgoif.bench.config.values import digest
from sgoif.bench.execution.fingerprint import source_hash
from sgoif.bench.fidelity.certificate import measure_certificate
from sgoif.bench.fidelity.measure import ceiling, measure
from sgoif.bench.fidelity.methods import METHODS, attribute
from sgoif.bench.fidelity.problem import AttributionProblem, build_problem
from sgoif.bench.fidelity.residual import measure_residuals
from sgoif.bench.fidelity.truth import compute_truth
from sgoif.errors import UserError
from sgoif.utils.device import pick_device
from sgoif.utils.files import atomic_write_json, load_npz, read_json, save_npz

DRAWN = (
    "dataset", "classes", "examples", "targets", "noise", "hidden", "epochs", "batch_size", "lr", "weight_decay",
    "subsets", "repeats", "leave_one_out", "pool", "model", "width", "shift", "flip", "precision",
)  # fmt: skip  # what the truth depends on
FOLDER = "fidelity"
AS_IT_IS = "as above"  # title of the measurement's own problem among those of the certificate


def folder(run_dir: Path | str, name: str, seed: int) -> Path:
    """Return the folder of one measurement and seed."""
    return Path(run_dir) / FOLDER / name / f"seed{seed}"


def measure_cells(
    run_dir: Path | str,
    root: Path | str,
    name: str,
    spec: dict[str, Any],
    seed: int,
    device: str,
    log: Callable[[str], None],
) -> Path:
    """Compute truth and methods of one seed, as far as they are not there, and write what table and figure read.

    Args:
        run_dir: Folder of the run.
        root: Folder of the prepared datasets.
        name: Name of the measurement.
        spec: Its part of the configuration.
        seed: Seed of everything that is drawn.
        device: "cpu", "cuda" or "auto".
        log: Is given a line for each thing done.

    Returns:
        The file that lists all methods of the seed.
    """
    device = pick_device(device, "execution.device", "see `make doctor`").type
    place = folder(run_dir, name, seed)
    problem = build_problem(root, spec, seed, device)
    truth = _truth(place, problem, spec, log)
    cells = {method: _cell(place, method, problem, truth, spec, log) for method in spec["methods"]}
    facts: dict[str, Any] = {"ceiling": ceiling(torch.tensor(truth["margins"]))}
    if problem.images:
        facts["residuals"] = _residuals(place, problem, spec, log)
    else:  # the exact answer of a convolutional network is not computed
        facts["certificates"] = _certificates(place, root, spec, seed, device, log)
    path = place / "cells.json"
    atomic_write_json(path, {"facts": facts, "cells": cells}, seal=True)
    path.touch()  # Snakemake compares times
    return path


def truth_key(spec: Mapping[str, Any], seed: int) -> str:
    """Return a hash of everything that the truth of one seed depends on."""
    return digest([{k: spec[k] for k in DRAWN}, seed, source_hash("sgoif.bench.fidelity.truth")])


def _truth(
    place: Path, problem: AttributionProblem, spec: dict[str, Any], log: Callable[[str], None]
) -> dict[str, np.ndarray]:
    """Return what retraining says, from its file if that is of the same configuration and code."""
    key = truth_key(spec, problem.seed)
    path = place / "truth.npz"
    if path.is_file():
        found = load_npz(path)
        if str(found.pop("key", "")) == key:
            return found
    log(f"retraining {spec['repeats']} x {spec['subsets']} networks")
    found = compute_truth(problem, spec, place / f"halves-{key}")
    save_npz(path, key=np.array(key), **found)
    return found


def _certificates(
    place: Path, root: Path | str, spec: dict[str, Any], seed: int, device: str, log: Callable[[str], None]
) -> dict[str, Any]:
    """Return what the certificate is worth on the measurement's problem and on its variations, by their titles."""
    code = source_hash("sgoif.bench.fidelity.certificate")
    drawn = {k: spec[k] for k in DRAWN if k not in ("subsets", "repeats", "leave_one_out")}
    key = digest([drawn, spec["certificates"], seed, code])
    path = place / "certificates.json"
    if path.is_file():
        found: dict[str, Any] = read_json(path)
        if found["key"] == key:
            return dict(found["problems"])
    log(f"certificate of {1 + len(spec['certificates'])} problems")
    changes = {AS_IT_IS: {}, **spec["certificates"]}
    few = {**spec, "targets": 2}  # the certificate asks for none
    problems = {title: build_problem(root, {**few, **change}, seed, device) for title, change in changes.items()}
    found = {"key": key, "problems": {title: measure_certificate(problem) for title, problem in problems.items()}}
    atomic_write_json(path, found, seal=True)
    return dict(found["problems"])


def _residuals(
    place: Path, problem: AttributionProblem, spec: dict[str, Any], log: Callable[[str], None]
) -> dict[str, Any]:
    """Return the residuals of each scope, from their file if that is of the same configuration and code."""
    key = digest([truth_key(spec, problem.seed), source_hash("sgoif.bench.fidelity.residual")])
    path = place / "residuals.json"
    if path.is_file():
        found: dict[str, Any] = read_json(path)
        if found["key"] == key:
            return dict(found["scopes"])
    log("residuals")
    found = {"key": key, "scopes": measure_residuals(problem)}
    atomic_write_json(path, found, seal=True)
    return dict(found["scopes"])


def _cell(
    place: Path,
    method: str,
    problem: AttributionProblem,
    truth: Mapping[str, np.ndarray],
    spec: dict[str, Any],
    log: Callable[[str], None],
) -> dict[str, Any]:
    """Return the result of one method, from its file if that is of the same configuration and code."""
    used = {k: v for k, v in spec.items() if k not in ("methods", "seeds", "title", "settings")}
    used["settings"] = spec["settings"].get(method, {})
    key = digest([used, problem.seed, method, source_hash("sgoif.bench.fidelity.measure")])
    path = place / f"{method}.json"
    if path.is_file():
        found: dict[str, Any] = read_json(path)
        if found["key"] == key and found["status"] == "ok":
            return found
    log(method)
    result: dict[str, Any] = {"key": key, "status": "ok", "reason": "", "metrics": {}}
    try:
        settings = spec["settings"].get(method, {})
        attribution = attribute(method, problem, settings)
        has_convex = METHODS[method].per_target and not problem.images
        convex = attribute(method, problem.convex(), settings) if has_convex else None
        result["metrics"] = {k: asdict(v) for k, v in measure(attribution, convex, problem, truth, spec).items()}
    except UserError as e:
        result |= {"status": "failed", "reason": str(e)}
        log(f"{method} failed: {e}")
    atomic_write_json(path, result, seal=True)
    return result
