"""Reports what this machine can run and what is missing (`make doctor`)."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
from pathlib import Path
from typing import Any

from sgoif.bench.config import load_config
from sgoif.bench.data.availability import check_availability
from sgoif.bench.execution.plan import Plan
from sgoif.errors import UserError

PACKAGES = ("torch", "torchvision", "timm", "numpy", "scikit-learn", "snakemake", "mlflow", "matplotlib")
MIN_FREE_GIB = 2.0  # a run on the embedded data stays far below this


def report(path: Path) -> str:
    """Return the report on a configuration file as text: configuration, machine, packages and data."""
    return diagnose(path)[0]


def diagnose(path: Path) -> tuple[str, bool]:
    """Return the report on a configuration file, and whether the configuration is right."""
    lines = [f"Configuration {path}"]
    try:
        config = load_config(path)
    except UserError as e:
        return "\n".join([*lines, f"  wrong: {e}"]), False
    plan = Plan(config)
    pairs = [(task, dataset) for task in ("noisy", "ood") for dataset in plan.datasets(task)]
    n_cells = sum(plan.wanted(cell) for pair in pairs for cell in plan.expected_cells(*pair))
    lines.append(f"  ok: run {config['run']!r}, {n_cells} cells")
    whole = Plan(load_config(path, skip_missing=False))
    for section in (_machine(config), _packages(), _data(plan, whole.needed_datasets())):
        lines += ["", *section]
    return "\n".join(lines), True


def _machine(config: dict[str, Any]) -> list[str]:
    lines = ["Machine", f"  {os.cpu_count()} cores, {_memory_gb():.0f} GiB of memory, {platform.machine()}"]
    free = shutil.disk_usage(".").free / 2**30
    verdict = "ok" if free > MIN_FREE_GIB else "TOO LITTLE"
    lines.append(f"  {free:.1f} GiB free on this disk: {verdict}")
    wanted = config["execution"]["device"]
    try:
        import torch

        if torch.cuda.is_available():
            names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
            lines.append(f"  GPU: {', '.join(names)}")
        elif wanted == "cuda":
            lines.append("  GPU: NONE, but execution.device asks for one; set it to auto or cpu")
        else:
            lines.append(
                "  GPU: none; everything runs on the CPU" + ("" if wanted == "cpu" else ", real datasets slowly")
            )
    except ImportError:
        lines.append("  GPU: unknown, torch is not installed")
    return lines


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def _packages() -> list[str]:
    lines = ["Packages"]
    for name in PACKAGES:
        try:
            lines.append(f"  {name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            lines.append(f"  {name}: MISSING; run `make tables`, which installs the pins")
    return lines


def _data(plan: Plan, names: set[str]) -> list[str]:
    data = plan.config["data"]
    mirror = Path(data["mirror"]) if data["mirror"] else None
    lines = [f"Data (prepared in {data['root']}" + (f", mirror {mirror}" if mirror else "") + ")"]
    for name in sorted(names):
        lines.append(f"  {name}: {check_availability(name, Path(data['root']), mirror).description}")
    for gap in plan.config["not_run"]:
        lines.append(f"  {gap['dataset']}: not part of this run: {gap['reason']}")
    return lines
