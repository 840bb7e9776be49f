"""A pytest plugin that writes each test's outcome into a file at once, so that a killed run is known up to its end.

One JSON list a line: outcome (`started`, `passed`, `skipped`, `failed`), the test, its seconds, a line of its error.
"""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest

RECORD = "SGOIF_MUTANT_RECORD"


def pytest_configure(config) -> None:
    """Refuse to run tests on another copy of the project than the one in the current folder."""
    spec = importlib.util.find_spec("sgoif")
    if spec is None or not Path(spec.origin).resolve().is_relative_to(Path.cwd().resolve()):
        raise pytest.UsageError(f"mutants: sgoif is imported from {spec and spec.origin}, not from {Path.cwd()}")


def pytest_runtest_logstart(nodeid: str) -> None:
    _write("started", nodeid, 0.0, "")


def pytest_runtest_logreport(report) -> None:
    if report.when == "call" or report.outcome != "passed":
        _write(report.outcome, report.nodeid, report.duration, _reason(report))


def pytest_collectreport(report) -> None:
    if report.failed:
        _write("failed", report.nodeid, 0.0, _reason(report))


def _reason(report) -> str:
    if not report.failed:
        return ""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash else str(report.longrepr)).strip().splitlines() or [""]
    return (lines[0] if crash else lines[-1])[:200]


def _write(*fields: object) -> None:
    with open(os.environ[RECORD], "a") as file:
        file.write(json.dumps(fields) + "\n")
