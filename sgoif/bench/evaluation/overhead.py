"""What a cell cost: its seconds by account, memory, and every overhead over the plain run beside it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from sgoif.bench.methods.registry import PLAIN

if TYPE_CHECKING:
    from sgoif.bench.evaluation.evaluate import Cell

SHARED_GPU = "several jobs shared the GPU (execution.jobs_per_gpu), so that their seconds cannot be compared"
# Overhead is what a method costs to give its answer. Retraining on the cleaned labels is a use of a detector's answer,
# and scoring test images has a column of its own (seconds per image); the first network of a process is compiled for
# all that follow. All are recorded, none is in the overhead.
COMPILE = "compile"
NOT_OVERHEAD = ("retrain", "accuracy", COMPILE)
NOT_OVERHEAD_OOD = ("score", "accuracy", COMPILE)


def cost_records(record: Callable[..., dict], task: str, cell: Cell, cells: Mapping, arrays: Mapping) -> Iterator[dict]:
    """Seconds, memory and every overhead over the plain run of the same dataset, setting and seed.

    The plain run's seconds are its training alone; what it writes down for others is part of what they share.
    marginal = own / plain: the shared run is there anyway. stand-alone = (own + shared) / plain: it is not.
    `record(metric, value, status, reason)` makes a record of the cell.
    """
    result = cell.result
    seconds, extras = result.get("seconds") or {}, result.get("extras") or {}

    for account, value in seconds.items():
        yield record(f"seconds_{account}", value)
    yield record("seconds_total", _total(seconds))
    apart = NOT_OVERHEAD_OOD if task == "ood" else NOT_OVERHEAD
    own = _total(seconds, apart)
    yield record("seconds_own", own)
    yield record("cpu_seconds_total", _total(result.get("cpu_seconds") or {}))
    if result.get("peak_memory_mb") is not None:
        yield record("peak_memory_mb", result["peak_memory_mb"])
    for extra, value in extras.items():
        yield record(f"extra:{extra}", value)
    if task == "ood" and "id_test" in arrays:
        images = sum(a.size for k, a in arrays.items() if k == "id_test" or k.startswith("ood:"))
        per_image = extras.get("seconds_per_image", seconds.get("score", 0.0) / images)
        yield record("seconds_per_image", per_image)

    plain = cells.get((*cell.name[:2], PLAIN))
    if plain is None or plain.result["status"] != "ok":
        reason = f"no plain run to compare with: {plain.result['reason']}" if plain else "no plain run to compare with"
        status = "failed" if plain else "not run"
        for metric in ("overhead_marginal", "overhead_standalone"):
            yield record(metric, status=status, reason=reason)
        return
    base = plain.result["seconds"].get("train") or _total(plain.result["seconds"])
    shared_runs = [_shared(cell, run, cells).result for run in result.get("shared") or []]
    shared = sum(_total(run["seconds"], (COMPILE,)) for run in shared_runs)
    own = base if cell is plain else own
    crowded = any(run.get("shared_gpu") for run in (result, plain.result, *shared_runs))
    if crowded:
        for metric in ("overhead_marginal", "overhead_standalone"):
            yield record(metric, status="undefined", reason=SHARED_GPU)
    else:
        yield record("overhead_marginal", own / base)
        yield record("overhead_standalone", (own + shared) / base)
        if seconds.get("retrain"):
            yield record("overhead_cleaned", (own + shared + seconds["retrain"]) / base)
    cpu, plain_cpu = result.get("cpu_seconds") or {}, plain.result.get("cpu_seconds") or {}
    if plain_cpu.get("train") and not crowded:  # does not grow when other jobs share the cores, as wall-clock does
        own_cpu = plain_cpu["train"] if cell is plain else _total(cpu, apart)
        shared_cpu = sum(_total(run.get("cpu_seconds") or {}) for run in shared_runs)
        yield record("overhead_cpu", (own_cpu + shared_cpu) / plain_cpu["train"])
    if result.get("peak_memory_mb") and plain.result.get("peak_memory_mb"):
        yield record("overhead_memory", result["peak_memory_mb"] / plain.result["peak_memory_mb"])
    passes, plain_passes = result.get("network_passes") or {}, plain.result.get("network_passes") or {}
    if plain_passes.get("train"):
        own_passes = plain_passes["train"] if cell is plain else _total(passes, apart)
        shared_passes = sum(_total(run.get("network_passes") or {}) for run in shared_runs)
        yield record("overhead_passes", (own_passes + shared_passes) / plain_passes["train"])


def _shared(cell: Cell, run: str, cells: Mapping[tuple, Cell]) -> Cell:
    """A run that `cell` read: of this method (plain, folds), same setting and seed."""
    if (*cell.name[:2], run) not in cells:
        raise cell.damaged(f"it was computed from the {run} run, which no batch of this run holds")
    return cells[*cell.name[:2], run]


def _total(seconds: Mapping[str, float], without: Collection[str] = ()) -> float:
    return float(sum(v for account, v in seconds.items() if account not in without))
