"""The wheel: the library works with torch and numpy alone, commands name what they lack, data files are inside."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from sgoif.utils.paths import ROOT

DATA_FILES = (
    "sgoif/py.typed",
    "sgoif/bench/config/config.schema.json",
    "sgoif/bench/report/page.html",
    "sgoif/bench/report/page.css",
    "sgoif/bench/report/page.js",
    "sgoif/scan/page/gallery.html",
    "sgoif/scan/page/gallery.css",
    "sgoif/scan/page/page.js",
    "sgoif/scan/page/sections.js",
)
LOOP = """
import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(96, 5), torch.arange(96) % 10
train, labels, epochs = y, y, 2
given = labels
model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 10))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = [(index, x[index], y[index]) for index in torch.arange(96).split(16)]
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built offline by the backend that pyproject.toml names, from a copy of the project."""
    assert Version(distribution("setuptools").version) >= Version("77"), "install requirements-test.lock (make test)"
    folder = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, folder)
    for name in ("sgoif", "baselines"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    code = "import sys, setuptools.build_meta as backend; print(backend.build_wheel(sys.argv[1]))"
    out = tmp_path_factory.mktemp("wheel")
    done = subprocess.run([sys.executable, "-c", code, out], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return out / done.stdout.split()[-1]


def closure(*names: str) -> set[str]:
    """These packages and all that they require here."""
    found: set[str] = set()
    todo = list(names)
    while todo:
        name = canonicalize_name(todo.pop())
        if name not in found:
            found.add(name)
            required = map(Requirement, distribution(name).requires or [])
            todo += [r.name for r in required if r.marker is None or r.marker.evaluate({"extra": ""})]
    return found


def installed(name: str) -> Iterator[Path]:
    """The folders and files of a package directly below site-packages."""
    package = distribution(name)
    tops = {file.parts[0] for file in package.files or [] if ".." not in file.parts}
    yield from (Path(str(package.locate_file(top))) for top in tops if top != "__pycache__")


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory) -> Path:
    """A site-packages with the wheel, torch, numpy and what those two require, and nothing else."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as z:
        z.extractall(folder)
    for name in closure("torch", "numpy"):
        for path in installed(name):
            if path.exists() and not (folder / path.name).exists():
                (folder / path.name).symlink_to(path)
    return folder


def python(site: Path, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run code in an isolated Python that sees the standard library and `site` alone."""
    start = f"import sys; sys.path.append({str(site)!r})\n"
    command = [sys.executable, "-I", "-S", "-c", start + code, *words]
    return subprocess.run(command, cwd=site, capture_output=True, text=True)


def readme_loop() -> str:
    """The README's training loop: its first Python block that creates an OnlineInfluence."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), flags=re.M | re.S)
    return next(block for block in blocks if "OnlineInfluence(" in block and "optimizer.step()" in block)


def test_the_training_loop_of_the_readme_runs_with_torch_and_numpy_alone(site):
    report = "print(tuple(result.score.shape), sorted({'timm', 'PIL', 'sklearn', 'scipy', 'yaml'} & set(sys.modules)))"
    done = python(site, f"{LOOP}\n{readme_loop()}\n{report}")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "(96,) []"


def test_the_site_has_no_other_package(site):
    code = "from importlib.util import find_spec\nprint([n for n in sys.argv[1:] if find_spec(n) is not None])"
    others = ("baselines", "tests", "PIL", "timm", "torchvision", "sklearn", "snakemake", "mlflow", "yaml")
    assert python(site, code, *others).stdout.strip() == "[]"
    assert python(site, code, "sgoif", "torch", "numpy").stdout.strip() == "['sgoif', 'torch', 'numpy']"


@pytest.mark.parametrize("command", [("scan", "digits"), ("explain", "digits/0001", "--scan", "nowhere")])
def test_a_command_without_its_packages_says_in_one_line_what_to_install(site, command):
    entry = "from importlib.metadata import entry_points\n"
    entry += "(command,) = entry_points(group='console_scripts', name='sgoif')\nsys.exit(command.load()())"
    done = python(site, entry, *command)
    assert done.returncode == 2, done.stderr[-2000:]
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("error: pillow, ")
    assert done.stderr.endswith('pip install "sgoif[scan]"\n')


def test_the_benchmark_without_a_checkout_says_in_one_line_what_to_do(site):
    done = python(site, "from sgoif.cli import main\nsys.exit(main(sys.argv[1:]))", "bench", "doctor")
    assert done.returncode == 2, done.stderr[-2000:]
    assert done.stderr.startswith("error: the benchmark needs a checkout of its repository, and the sgoif in ")
    assert len(done.stderr.splitlines()) == 1 and "`make tables`" in done.stderr


def test_the_wheel_holds_the_package_with_its_data_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as z:
        names = set(z.namelist())
    assert set(DATA_FILES) <= names
    printed = {p.relative_to(ROOT).as_posix() for p in (ROOT / "sgoif" / "bench" / "paper").glob("*.yaml")}
    assert printed and printed <= names
    source = {p.relative_to(ROOT).as_posix() for p in (ROOT / "sgoif").rglob("*") if p.is_file()}
    unpacked = {name for name in source if "__pycache__" not in name}
    assert {name for name in names if ".dist-info/" not in name} == unpacked


def test_the_scan_is_installed_without_the_benchmark():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [Requirement(r).name for r in (*project["dependencies"], *project["optional-dependencies"]["scan"])]
    assert "timm" in named and "torch" in closure(*named)
    assert not closure(*named) & {"snakemake", "mlflow", "sqlalchemy", "matplotlib", "cleanlab"}
