"""Which tests are nearest to a source file, in the order in which they are run.

First the test file of the same name, then those in the folder of the same name that import the module, then those of
the table below, then every other one that imports it.
A choice is a test file, or a test file and a word of its tests' names after a blank (`pytest -k`).
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

EXACT = "tests/method/test_exactness.py"
PARTS = "tests/method/test_parts.py"
PARAMS = "tests/contract/test_params.py"
INVARIANT = "tests/method/test_invariances.py"
METHOD = [EXACT, "tests/method/test_ground_truth.py", INVARIANT, PARTS, "tests/method/test_certificate.py",
          "tests/method/test_errors.py", "tests/method/test_ablations.py",
          "tests/method/test_check_history.py"]  # fmt: skip
EVALUATED = ["tests/bench/evaluation/test_evaluate.py", "tests/bench/tables/test_tables.py",
             "tests/bench/tables/test_summary.py", "tests/bench/tables/test_marks.py",
             "tests/bench/tables/test_ablation_table.py"]  # fmt: skip

TABLE = {  # a file or folder: its tests; the longest entry that fits is taken
    "sgoif/gradients": ["tests/gradients/test_layers.py", *METHOD, "tests/method/test_deep_cost.py"],
    "sgoif/curvature": ["tests/gradients/test_layers.py", *METHOD],
    "sgoif/solvers": ["tests/theory/test_solver_lemmas.py", "tests/theory/test_complexity_lemma.py", *METHOD],
    "sgoif/anchors": ["tests/theory/test_coverage_lemma.py", PARTS, *METHOD],
    "sgoif/scores": ["tests/theory/test_ranking_lemmas.py", PARTS, *METHOD, "tests/label_noise/test_suspicion.py"],
    "sgoif/label_noise": ["tests/label_noise/test_class_mixture.py", "tests/label_noise/test_suspicion.py", PARTS,
                          "tests/applications/test_applications.py", "tests/method/test_quality.py"],
    "sgoif/backend": ["tests/gradients/test_layers.py", "tests/theory/test_coverage_lemma.py",
                      "tests/theory/test_solver_lemmas.py", *METHOD],
    "sgoif/applications": ["tests/applications/test_applications.py", "tests/applications/test_shift_detection.py",
                           "tests/interop/test_loops.py"],
    "sgoif/scopes": METHOD,
    "sgoif/result.py": ["tests/label_noise/test_suspicion.py", *METHOD],
    "sgoif/influence.py": ["tests/method/test_interface.py", *METHOD],
    "sgoif/_engine.py": METHOD,
    "sgoif/bench/evaluation": ["tests/bench/evaluation/test_metrics.py", *EVALUATED],
    "sgoif/bench/evaluation/significance.py": ["tests/bench/evaluation/test_significance.py", *EVALUATED],
    "sgoif/bench/evaluation/detection_curves.py": ["tests/bench/evaluation/test_metrics.py", *EVALUATED],
    "sgoif/bench/data/noise": ["tests/bench/data/test_noise_matrix.py", "tests/bench/data/test_corrupt.py",
                               "tests/bench/data/test_noisy_labels.py"],
}  # fmt: skip
FAR = ("tests/mutants/", "tests/chaos/", "tests/cluster/", "tests/workflow/", "tests/test_", "tests/helpers/")


def nearest(root: Path, file: str) -> list[str]:
    """List the tests nearest to a source file, the nearest first.

    Args:
        root: The project.
        file: The source file's path in the project.
    """
    stem, folder = Path(file).stem, Path(file).parent
    mirrors = [Path("tests", *folder.parts[1:], f"test_{stem}.py"), Path("tests/parity", f"test_{stem}.py")]
    mirrors.append(Path("tests", *folder.parts[1:-1], f"test_{stem}.py"))
    importing = importers(root, file)
    fitting = [entry for entry in TABLE if file == entry or file.startswith(entry + "/")]
    beside = Path("tests", *folder.parts[1:]).as_posix() + "/"
    chosen = [path.as_posix() for path in mirrors] + [test for test in importing if test.startswith(beside)]
    if file.startswith("baselines/"):
        parity = [test for test in importing if test.startswith("tests/parity/")]
        contract = f"tests/contract/test_{folder.name}.py [{stem}]"
        chosen += [*parity[:1], PARAMS, *parity, *mentions(root, stem), contract, "tests/bench/tables/test_names.py"]
    elif fitting:
        chosen += TABLE[max(fitting, key=len)]
    existing = [choice for choice in [*chosen, *importing] if (root / choice.split(" ")[0]).is_file()]
    return list(dict.fromkeys(existing))


def importers(root: Path, file: str) -> list[str]:
    """List the test files that import a module, those with few imports of the project first."""
    module = file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    tests = [(len(names), test) for test, names in _imports(root).items() if module in names]
    return [test for _, test in sorted(tests)]


def mentions(root: Path, method: str) -> list[str]:
    """List the parity tests that load a method by its name."""
    tests = sorted((root / "tests/parity").glob("test_*.py"))
    return [test.relative_to(root).as_posix() for test in tests if f'"{method}"' in test.read_text()]


@cache
def _imports(root: Path) -> dict[str, set[str]]:
    """Map every test file that may be near to the modules of the project that it imports."""
    found = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        name = path.relative_to(root).as_posix()
        if not name.startswith(FAR):
            found[name] = {module for node in ast.walk(ast.parse(path.read_text())) for module in _modules(node)}
    return found


def _modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:
        names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    else:
        names = []
    return [name for name in names if name.split(".")[0] in ("sgoif", "baselines")]
