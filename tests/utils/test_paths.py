"""A copied checkout does not run the code of the place that it was copied from."""

import sys
from pathlib import Path

import pytest

from sgoif.bench.cli import main as bench
from sgoif.cli import main as scan
from sgoif.utils.paths import ROOT, check_checkout, check_environment


@pytest.fixture
def copied(tmp_path) -> Path:
    """What a copied checkout has: code of its own, and an environment whose programs start the first one's Python."""
    for folder in ("sgoif/bench", ".venv/bin"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("Snakefile", ".venv/pyvenv.cfg", ".venv/bin/sgoif"):
        (tmp_path / name).touch()
    return tmp_path


def test_the_own_place_is_right(tmp_path):
    for command in (sys.argv[0], str(ROOT / "sgoif" / "__main__.py"), f"{sys.prefix}/bin/sgoif"):
        check_environment(command)
    for folder in (ROOT, tmp_path, ROOT / "configs"):
        check_checkout(folder)


def test_a_copied_command_is_refused(copied, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(copied / ".venv/bin/sgoif")])
    for main, words in ((bench, ["doctor"]), (scan, ["apply", "--above", "0.9", "x"])):
        assert main(words) == 2
        told = capsys.readouterr().err
        assert f".venv/bin/sgoif was copied and runs the code in {ROOT}; delete" in told and told.count("\n") == 1


def test_the_code_of_another_checkout_is_refused(copied, monkeypatch, capsys):
    monkeypatch.chdir(copied)
    assert bench(["clean", "--config", "configs/embedded.yaml"]) == 2
    assert capsys.readouterr().err.startswith("error: this folder is a checkout, but the code that runs is that of")
