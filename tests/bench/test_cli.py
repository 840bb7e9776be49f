"""A user's mistake on the command line is one line and exit status 2, never a traceback."""

import json
import sys
import tomllib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement

from sgoif.bench.cli import PACKAGES, main
from sgoif.bench.config import resolve_config
from sgoif.cli import main as sgoif
from sgoif.utils.paths import ROOT
from tests.helpers.project_copy import MINI_CONFIG


@pytest.fixture
def run_config(tmp_path) -> Path:
    raw = yaml.safe_load(MINI_CONFIG.read_text())
    config = resolve_config(raw)
    config["data"]["root"] = str(tmp_path / "data")
    path = tmp_path / "results" / "mini" / "config.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(config))
    return path


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            "batch --config {c} --task noisy --dataset digits --method nope --batch 0",
            "no method of noisy/digits 'nope'",
        ),
        ("batch --config {c} --task noisy --dataset nope --method loss --batch 0", "no dataset of noisy 'nope'"),
        ("batch --config {c} --task nope --dataset digits --method loss --batch 0", "no task 'nope'"),
        ("batch --config {c} --task noisy --dataset digits --method loss --batch 7", "batch 7"),
        ("evaluate --config {c} --task noisy --dataset nope", "no dataset of noisy 'nope'"),
        ("corrupt --config {c} --dataset digits --setting nope", "no setting of digits 'nope'"),
        ("corrupt --config {c} --dataset digits --setting n20_s0", "is not prepared"),
        ("prepare --root data --dataset digitz", "no dataset is called 'digitz'; did you mean"),
        ("summarise --config nowhere.json", "no configuration nowhere.json"),
        ("tables --config {c}", "summary.json"),
        ("publish --config {c}", "make tables"),
        ("run -- --configfile nowhere.yaml", "no configuration file nowhere.yaml"),
    ],
)
def test_mistakes(words, told, run_config, capsys, monkeypatch):
    monkeypatch.chdir(run_config.parents[2])
    assert main([w.replace("{c}", str(run_config)) for w in words.split()]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and told in error and len(error.strip().splitlines()) == 1


def test_a_package_that_is_not_installed_is_named(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    monkeypatch.setattr("sgoif.bench.steps.plan_step", lambda _: import_module("yaml"))
    assert sgoif(["bench", "plan"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: pyyaml is not installed; run `make venv`") and told.count("\n") == 1


def test_a_module_of_the_project_that_is_missing_is_no_mistake_of_the_user(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "sgoif.bench.doctor", None)
    with pytest.raises(ModuleNotFoundError):
        main(["doctor"])


def test_every_package_of_the_extra_is_known_by_its_module():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {Requirement(line).name for line in extras["bench"] + extras["scan"]} - {"sgoif"}
    assert set(PACKAGES.values()) == names and all(find_spec(module) for module in PACKAGES)


def test_without_a_checkout_it_says_what_to_do(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sgoif.bench.cli.ROOT", tmp_path)
    assert sgoif(["bench", "doctor"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: the benchmark needs a checkout of its repository") and told.count("\n") == 1


def test_a_damaged_configuration_is_named(tmp_path, capsys):
    (tmp_path / "config.json").write_text("{")
    assert main(["summarise", "--config", str(tmp_path / "config.json")]) == 2
    assert "is not valid JSON" in capsys.readouterr().err


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=12), max_size=6))
def test_fuzz_any_words_end_in_a_message(words):
    try:
        status = main(words)
    except SystemExit as e:  # argparse's own way of telling
        status = e.code
    assert status in (0, 2)
