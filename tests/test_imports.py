"""Who may import whom (docs/architecture.md), and what is not imported before it is needed.

Every import of a file counts: at its top, inside a function, or for type checking alone.
"""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from sgoif.utils.paths import ROOT

spec = importlib.util.spec_from_file_location("package_graph", ROOT / "docs" / "scripts" / "package_graph.py")
package_graph = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package_graph)

PACKAGES = package_graph.package_graph()
METHOD = {  # needs torch and numpy, and knows nothing of who uses it
    "__init__", "_engine", "_parts", "_readings", "anchors", "applications", "backend", "check_history", "config",
    "curvature", "errors", "features", "gradients", "influence", "label_noise", "result", "scopes", "scores", "solvers",
}  # fmt: skip
FACE = {  # what the rest may use of the method: what it exports, its applications, and what runs on several devices
    "sgoif", "sgoif.applications", "sgoif.backend", "sgoif.check_history", "sgoif.config", "sgoif.errors",
    "sgoif.features", "sgoif.influence", "sgoif.label_noise", "sgoif.result",
    "sgoif.curvature", "sgoif.gradients.parameter_space",  # a finished scan loads the curvature it stored
}  # fmt: skip
FILES = {path.relative_to(ROOT).as_posix(): path for path in sorted((ROOT / "sgoif").rglob("*.py"))}
BASELINES = [p for p in sorted((ROOT / "baselines").rglob("*.py")) if p.stem != "__init__"]


def imported(path: Path) -> set[str]:
    """Every name that a file imports, with the module it is taken from."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def roots(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imported(path)}


def within(names: set[str], *packages: str) -> set[str]:
    """The names that lie in one of the packages."""
    return {n for n in names if any(n == p or n.startswith(p + ".") for p in packages)}


def files_of(*packages: str) -> dict[str, Path]:
    """The files of these packages, or modules beside them, of `sgoif`."""
    return {name: path for name, path in FILES.items() if Path(name).with_suffix("").parts[1] in packages}


def test_no_module_imports_itself_through_others():
    assert package_graph.cycle(package_graph.module_graph()) == []


def test_no_package_imports_itself_through_others():
    assert package_graph.cycle(PACKAGES) == []


def test_a_cycle_is_found():
    assert package_graph.cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


def test_the_picture_of_the_packages_is_current():
    text = (ROOT / "docs" / "architecture.md").read_text()
    assert package_graph.page(text) == text, "docs/architecture.md is behind the imports: make docs"


def test_the_picture_shows_every_package():
    drawn = package_graph.reduced(PACKAGES)
    assert set(drawn) | set().union(*drawn.values()) >= set(PACKAGES)
    assert all(package_graph.reachable(drawn, node) == package_graph.reachable(PACKAGES, node) for node in PACKAGES)


@pytest.mark.parametrize("name", files_of(*METHOD))
def test_the_method_needs_torch_and_numpy_alone(name):
    names = imported(FILES[name])
    assert roots(FILES[name]) <= set(sys.stdlib_module_names) | {"torch", "numpy", "sgoif"}
    assert not within(names, "sgoif.bench", "sgoif.scan", "sgoif.training", "sgoif.utils", "sgoif.interop")


@pytest.mark.parametrize("name", files_of("training", "utils"))
def test_training_knows_neither_the_benchmark_nor_the_scan(name):
    assert not within(imported(FILES[name]), "sgoif.bench", "sgoif.scan", "sgoif.interop", "baselines")


@pytest.mark.parametrize("name", files_of("scan"))
def test_the_scan_knows_neither_the_benchmark_nor_the_baselines(name):
    assert not within(imported(FILES[name]), "sgoif.bench", "baselines")


@pytest.mark.parametrize("name", files_of("bench"))
def test_the_benchmark_knows_neither_the_baselines_nor_the_scan(name):
    assert not within(imported(FILES[name]), "sgoif.scan", "baselines")


@pytest.mark.parametrize("name", files_of("bench", "scan", "training", "interop"))
def test_the_method_is_used_through_its_public_face(name):
    method = within(imported(FILES[name]), *(f"sgoif.{package}" for package in METHOD), "sgoif")
    others = within(method, "sgoif.bench", "sgoif.scan", "sgoif.training", "sgoif.utils", "sgoif.interop")
    assert within(method - others, *(FACE - {"sgoif"})) | {"sgoif"} >= method - others


@pytest.mark.parametrize("path", BASELINES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_baselines_do_not_import_each_other(path):
    names = imported(path)
    assert not within(names, "baselines")
    if path.stem != "sgoif":
        allowed = within(names, "sgoif.bench", "sgoif.training", "sgoif.utils", "sgoif.interop", "sgoif.errors")
        assert within(names, "sgoif") == allowed


def test_no_folder_holds_more_than_sixteen_modules():
    folders: dict[str, int] = {}
    for path in FILES.values():
        folder = path.parent.relative_to(ROOT).as_posix()
        folders[folder] = folders.get(folder, 0) + (path.name != "__init__.py")
    assert {folder: n for folder, n in folders.items() if n > 16} == {}


def test_every_package_says_what_it_is_for():
    silent = [name for name, path in FILES.items() if not ast.get_docstring(ast.parse(path.read_text()))]
    assert [name for name in silent if name.endswith("__init__.py")] == []


def test_no_two_classes_have_the_same_name():
    homes: dict[str, list[str]] = {}
    for name, path in FILES.items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(name)
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


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


def test_a_folder_can_be_surveyed():
    """At most 16 modules in a folder: what belongs together gets a folder of its own."""
    folders = [folder for top in ("sgoif", "benchmarks") for folder in (ROOT / top, *(ROOT / top).rglob("*/"))]
    sizes = {str(f.relative_to(ROOT)): sum(p.stem != "__init__" for p in f.glob("*.py")) for f in folders}
    assert len(sizes) > 40 and not {name: n for name, n in sizes.items() if n > 16}
