"""A user's mistake on the command line is one line and exit status 2, never a traceback."""

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sgoif.bench.cli import main
from sgoif.bench.config import resolve_config
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
