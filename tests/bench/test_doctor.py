"""`make doctor`: a report for a valid configuration, the mistake for a wrong one, neither of which needs torch."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from sgoif.bench import doctor
from sgoif.bench.cli import main
from sgoif.bench.config import resolve_config
from sgoif.bench.execution.plan import Plan
from sgoif.utils.paths import ROOT
from tests.helpers.project_copy import MINI_CONFIG

SMALL = yaml.safe_load(MINI_CONFIG.read_text())
DIGITS = {"digits", "digits_id", "digits_near", "digits_aux", "photo_patches"}  # what SMALL reads


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """Torch as on a machine without a GPU, and no mirror; a test may change either."""
    cuda = SimpleNamespace(is_available=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.delenv("SGOIF_DATA", raising=False)
    return cuda


def report(folder: Path, **changes) -> dict[str, list[str]]:
    """The report on SMALL with changes and an empty data folder, as {heading: lines}."""
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({**SMALL, "data": {"root": str(folder / "data")}, **changes}))
    sections = [part.splitlines() for part in doctor.report(path).split("\n\n")]
    return {lines[0].split(" (")[0]: [line.strip() for line in lines[1:]] for lines in sections}


def test_a_valid_configuration_has_all_sections(tmp_path):
    sections = report(tmp_path)
    assert list(sections) == [f"Configuration {tmp_path / 'config.yaml'}", "Machine", "Packages", "Data"]
    cells = 5 * 2 * 2 + 2  # noisy: methods x settings x seeds; ood: methods
    assert next(iter(sections.values())) == [f"ok: run 'mini', {cells} cells"]


def test_the_machine_is_described(tmp_path):
    cores, disk, gpu = report(tmp_path)["Machine"]
    assert "cores" in cores and "GiB of memory" in cores
    assert "GiB free on this disk: " in disk
    assert gpu == "GPU: none; everything runs on the CPU"  # SMALL asks for the CPU, so nothing is slow


def test_a_full_disk_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda where: SimpleNamespace(free=2**29))
    assert "0.5 GiB free on this disk: TOO LITTLE" in report(tmp_path)["Machine"]


@pytest.mark.parametrize(
    ("device", "told"),
    [("cuda", "GPU: NONE, but execution.device asks for one; set it to auto or cpu"),
     ("auto", "GPU: none; everything runs on the CPU, real datasets slowly")],
)  # fmt: skip
def test_a_gpu_that_is_wanted_and_missing_is_told(tmp_path, device, told):
    assert report(tmp_path, execution={"device": device})["Machine"][-1] == told


def test_gpus_are_named(tmp_path, machine):
    machine.is_available, machine.device_count = lambda: True, lambda: 2
    machine.get_device_name = lambda i: f"card {i}"
    assert report(tmp_path)["Machine"][-1] == "GPU: card 0, card 1"


def test_without_torch_the_report_still_comes(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    sections = report(tmp_path)
    assert sections["Machine"][-1] == "GPU: unknown, torch is not installed" and sections["Data"]


def test_packages_have_their_versions_or_are_missing(tmp_path, monkeypatch):
    installed = importlib.metadata.version

    def version(name):
        if name == "timm":
            raise importlib.metadata.PackageNotFoundError(name)
        return installed(name)

    monkeypatch.setattr("importlib.metadata.version", version)
    lines = report(tmp_path)["Packages"]
    assert [line.split()[0].strip(":") for line in lines] == list(doctor.PACKAGES)
    assert f"numpy {installed('numpy')}" in lines
    assert [line for line in lines if "MISSING" in line] == [
        "timm: MISSING; run `make tables`, which installs the pins"
    ]


def test_every_dataset_is_told_apart(tmp_path):
    (tmp_path / "data" / "digits").mkdir(parents=True)
    (tmp_path / "data" / "digits" / "meta.json").write_text("{}")
    gap = {"task": "ood", "dataset": "imagenet_1k", "title": "ImageNet", "reason": "needs a licence"}
    lines = dict(line.split(": ", 1) for line in report(tmp_path, not_run=[gap])["Data"])
    assert lines.pop("imagenet_1k") == "not part of this run: needs a licence"
    assert lines.pop("digits") == "prepared"
    assert lines == dict.fromkeys(DIGITS - {"digits"}, "inside scikit-learn")


def test_needed_data_is_what_both_tasks_read():
    plan = Plan(resolve_config(SMALL))
    assert plan.needed_datasets() == DIGITS


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            yaml.safe_dump({**SMALL, "execution": {"threds": 2}}),
            "execution.threds: no such key; did you mean threads?",
        ),
        (yaml.safe_dump({**SMALL, "methods": {"noisy": ["lossy"], "ood": []}}), "no method 'lossy'; did you mean loss"),
        ("run: [", "is not valid YAML"),
        (None, "no configuration file"),
    ],
    ids=["key", "method", "yaml", "missing"],
)
def test_a_wrong_configuration_is_told_and_nothing_else(tmp_path, text, told):
    path = tmp_path / "wrong.yaml"
    if text is not None:
        path.write_text(text)
    first, second = doctor.report(path).splitlines()
    assert first == f"Configuration {path}" and second.startswith("  wrong: ") and told in second
    assert main(["doctor", "--config", str(path)]) == 2


def test_a_right_configuration_ends_well():
    assert main(["doctor", "--config", str(MINI_CONFIG)]) == 0


def test_importing_needs_no_torch():
    code = "import sys; sys.modules['torch'] = None; import sgoif.bench.doctor; print(sgoif.bench.doctor.PACKAGES[0])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "torch", done.stderr
