"""Describes the machine, the package versions and the commit that a result is computed with."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

# What git compares: all but what the code writes. The scripts in docs/scripts are code.
WRITTEN = ("results/published", *(f"docs/**/*.{suffix}" for suffix in ("md", "json", "png", "svg")))
CODE = (":(top)", *(f":(top,exclude,glob){pattern}" for pattern in WRITTEN))
DIRTY = "-dirty"  # end of a commit with changed files


@functools.cache
def environment() -> dict[str, Any]:
    """Return `versions`, `hardware` and `commit` of this process, as result.json records them."""
    import torch

    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    hardware: dict[str, Any] = {"machine": platform.machine(), "cpus": os.cpu_count(), "cpu": cpu_name()}
    if torch.cuda.is_available():
        hardware["gpu"] = torch.cuda.get_device_name()
    return {"versions": versions, "hardware": hardware, "commit": commit()}


def cpu_name() -> str:
    """Return the processor's model name, or what Python knows about it where the system does not list it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


@functools.cache
def commit(folder: Path = Path(__file__).parent) -> str:
    """Return the commit of the checkout around a folder; empty outside a checkout.

    It ends in "-dirty" if a tracked file has uncommitted changes. Published results and the pages of docs/ do not
    count: they are written from the code of the commit, before they are committed themselves.
    """
    try:
        described = _git(folder, "rev-parse", "--short=12", "HEAD")
        changed = _git(folder, "diff", "--quiet", "HEAD", "--", *CODE).returncode == 1
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return described.stdout.strip() + (DIRTY if changed else "")


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10)
