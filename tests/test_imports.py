"""Who may import whom (docs/architecture.md), and what is not imported before it is needed."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from sgoif.utils.paths import ROOT

METHOD = [
    p
    for p in (ROOT / "sgoif").rglob("*.py")
    if not {"bench", "scan", "interop", "training", "utils", "cli.py", "__main__.py"} & set(p.relative_to(ROOT).parts)
]
BENCH = list((ROOT / "sgoif" / "bench").rglob("*.py"))
SCAN = list((ROOT / "sgoif" / "scan").rglob("*.py"))
BASELINES = [p for p in (ROOT / "baselines").rglob("*.py") if p.stem != "__init__"]


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def roots(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imported(path)}


@pytest.mark.parametrize("path", METHOD, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_the_method_needs_torch_alone(path):
    assert roots(path) <= set(sys.stdlib_module_names) | {"torch", "numpy", "sgoif"}
    assert not any(name.startswith(("sgoif.bench", "sgoif.scan", "baselines")) for name in imported(path))


@pytest.mark.parametrize("path", BENCH, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_the_bench_knows_neither_the_baselines_nor_the_scan(path):
    assert "baselines" not in roots(path)
    assert not any(name.startswith("sgoif.scan") for name in imported(path))


@pytest.mark.parametrize("path", SCAN, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_the_scan_knows_neither_the_baselines_nor_the_bench(path):
    assert "baselines" not in roots(path)
    assert not any(name.startswith("sgoif.bench") for name in imported(path))


@pytest.mark.parametrize("path", BASELINES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_baselines_do_not_import_each_other(path):
    assert "baselines" not in roots(path)
    if path.stem != "sgoif":
        inside = {name for name in imported(path) if name.startswith("sgoif.")}
        allowed = ("sgoif.bench", "sgoif.errors", "sgoif.interop", "sgoif.training", "sgoif.utils")
        assert all(name.startswith(allowed) for name in inside)


def test_bridges_load_no_other_library_before_it_is_used():
    names = [f"sgoif.interop.{p.stem}" for p in (ROOT / "sgoif" / "interop").glob("*.py") if p.stem != "__init__"]
    code = (
        f"import sys, importlib; [importlib.import_module(name) for name in {names}];"
        "early = {'cleanlab', 'pandas', 'datasets', 'pytorch_ood'} & set(sys.modules);"
        "sys.exit(f'imported too early: {early}' if early else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_planning_needs_neither_torch_nor_sklearn():
    code = (
        "import sys, sgoif.cli, sgoif.scan.pipeline;"
        "import sgoif.bench.cli, sgoif.bench.execution.plan, sgoif.bench.config, sgoif.bench.doctor;"
        "heavy = {'torch', 'sklearn', 'mlflow', 'matplotlib', 'timm'} & set(sys.modules);"
        "sys.exit(f'imported too early: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
