"""Retrying failed cells: exactly these are forgotten, and Snakemake is told to make their batches."""

import json
from pathlib import Path

import pytest

from sgoif.bench import cli
from sgoif.bench.evaluation.metric_record import failed_numbers_in_words
from sgoif.bench.execution.failures import failures_in_words
from sgoif.bench.execution.integrity.run_files import missing_sources
from sgoif.bench.execution.retry import Choice, forget_failures
from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_json

RUN_DIR = Path("results/mini")


@pytest.fixture
def plan(finished_plan):
    return finished_plan


def results() -> set[str]:
    return {str(path.parent.relative_to(RUN_DIR / "cells/noisy/digits")) for path in RUN_DIR.rglob("result.json")}


@pytest.mark.parametrize(
    ("choice", "cells", "batches"),
    [
        ({}, {"seed0/mixup", "seed1/plain", "seed1/loss"}, {"mixup", "plain", "loss"}),
        ({"method": "mixup"}, {"seed0/mixup"}, {"mixup"}),
        ({"method": "mixup", "setting": "n20_s0", "seed": "0", "dataset": "digits"}, {"seed0/mixup"}, {"mixup"}),
        ({"method": "mixup", "seed": "1"}, set(), set()),
        ({"method": "loss"}, {"seed1/plain", "seed1/loss"}, {"plain", "loss"}),  # it read a plain run that failed
        ({"method": "random"}, set(), set()),
    ],
)
def test_failed_cells_are_forgotten_and_no_others(plan, choice, cells, batches):
    before = results()
    forgotten = forget_failures(plan, RUN_DIR, Choice(**choice))
    assert before - results() == {f"n20_s0/{cell}" for cell in cells}
    assert {f"seed{e.cell.seed}/{e.cell.method}" for e in forgotten.chosen} == cells and not forgotten.besides
    gone = {RUN_DIR / "batches/noisy/digits" / method / "0.json" for method in batches}
    assert set(missing_sources(plan, RUN_DIR)) == gone


def test_failures_that_the_same_job_computes_are_named_too(plan):
    path = RUN_DIR / "batches/noisy/digits/mixup/0.json"
    content = json.loads(path.read_text())
    for entry in content["cells"]:
        entry["status"] = "failed"
    path.write_text(json.dumps(content))
    path.with_name(".0.json.sha256").unlink()
    forgotten = forget_failures(plan, RUN_DIR, Choice(method="mixup", setting="n20_s0", seed="0"))
    assert (len(forgotten.chosen), len(forgotten.besides)) == (1, 3)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"method": "mixupp"}, "METHOD: this run has no method 'mixupp'; did you mean mixup"),
        ({"setting": "n20_s9"}, "did you mean n20_s0"),
        ({"seed": "7"}, "SEED: this run has no seed '7'; there are: 0, 1"),
        ({"dataset": "digit; rm -rf /"}, "DATASET"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(plan, choice, message):
    before = results()
    with pytest.raises(UserError, match=message):
        forget_failures(plan, RUN_DIR, Choice(**choice))
    assert results() == before


def test_failed_cells_are_told_at_the_end_of_a_run(plan):
    told = failures_in_words(plan, RUN_DIR, "make retry")
    assert f"Failed   1 cell of mixup: ValueError: no luck (see {RUN_DIR}/logs/noisy/digits/mixup-0.log)" in told
    assert told[-1] == "         make retry computes them again" and len(told) == 4
    forget_failures(plan, RUN_DIR, Choice())
    assert failures_in_words(plan, RUN_DIR, "make retry") == []


@pytest.mark.usefixtures("plan")
def test_numbers_that_failed_are_told_though_their_cell_has_not(capsys):
    path = RUN_DIR / "metrics/noisy/digits.json"
    about = {"method": "loss", "metric": "auc_pr", "status": "failed", "reason": "scores: 3 are not finite"}
    of_cell, fine = {**about, "metric": "status"}, {**about, "status": "ok"}
    atomic_write_json(path, [about, {**about, "variant": "late"}, of_cell, fine], seal=True)
    assert failed_numbers_in_words(RUN_DIR) == ["Failed   2 numbers of loss: scores: 3 are not finite"]
    assert cli.main(["where", "--config", "mini.yaml"]) == 0
    assert failed_numbers_in_words(RUN_DIR)[0] in capsys.readouterr().out


def test_the_command_says_what_is_tried_again(plan, capsys):
    assert cli.main(["retry", "--config", "mini.yaml", "--method=mixup"]) == 0
    said = capsys.readouterr().out
    assert "noisy/digits/n20_s0/seed0/mixup is tried again; it had failed: ValueError: no luck" in said
    assert cli.main(["retry", "--config", "mini.yaml", "--method=mixup"]) == 0
    assert "no such cell has failed" in capsys.readouterr().out
