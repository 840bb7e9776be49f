"""Equal tuning: the trials that were measured are those declared, and the configuration has what they chose."""

import json
import runpy

import pytest

from benchmarks import candidates, common, trials
from benchmarks.candidates import DatasetRun
from benchmarks.equal_tuning import choose, report_values, trial_results
from sgoif.bench.config import load_config, resolve_config
from sgoif.bench.methods import registry
from sgoif.errors import UserError
from sgoif.utils.paths import ROOT

FILE = ROOT / "benchmarks/measured/equal_tuning-digits.json"


@pytest.fixture(scope="module")
def figures():
    return json.loads(FILE.read_text())["figures"]


def test_every_method_has_ten_trials_and_the_first_is_its_default(figures):
    assert set(figures["trials"]) == set(trials.TRIALS)
    for family, declared in trials.TRIALS.items():
        measured = [(trial["method"], trial["params"]) for trial in figures["trials"][family]]
        assert len(measured) == 10 and measured == declared
        assert all(trial["auc_pr"] for trial in figures["trials"][family]), family
        assert declared[0][0] == family and len({json.dumps(trial) for trial in declared}) == 10


def test_what_is_chosen_is_the_best_of_what_was_measured(figures):
    for family, measured in figures["trials"].items():
        best = choose(measured)
        assert {k: best[k] for k in ("method", "params")} == {
            k: figures["chosen"][family][k] for k in ("method", "params")
        }
        assert best["mean"] == pytest.approx(figures["chosen"][family]["mean"], abs=1e-3)
        assert best["mean"] >= best["default_mean"]


def test_the_embedded_run_has_what_was_chosen_and_the_untuned_method(figures):
    variants = load_config(ROOT / "configs/embedded.yaml")["variants"]
    assert variants["sgoif"]["untuned"] == trials.UNTUNED
    for family, found in figures["chosen"].items():
        if family != "sgoif":
            assert {"score": "window", **variants[family]["tuned"]} == {"score": "window", **found["params"]}, family


def test_a_trial_counts_when_all_its_cells_are_there():
    values = {"gce@trial0": {"last_loss": {"a": {0: 0.5}, "b": {0: 0.7}}}, "gce@trial1": {"last_loss": {"a": {0: 0.9}}}}
    found = trial_results("gce", values, cells=2)
    assert found[0]["auc_pr"] and not found[1]["auc_pr"]
    assert choose(found)["params"] == {"q": 0.7, "score": "last_loss"} and choose(found)["trials"] == 1
    assert choose(trial_results("gce", {}, cells=2)) is None


def test_a_tuned_variant_is_reported_by_the_score_that_was_chosen_for_it(monkeypatch):
    def record(method, variant, value):
        cell = {"method": method, "variant": variant, "setting": "a", "seed": 0, "epoch": None, "status": "ok"}
        return {**cell, "metric": "auc_pr", "value": value}

    found = [
        record("sce", None, 0.5),
        record("sce@tuned_sce", None, 0.7),
        record("sce@tuned_sce", registry.declaration("noisy", "sce").ranked_by, 0.1),
    ]
    monkeypatch.setattr("benchmarks.candidates.evaluate", lambda *_: found)
    params = {"alpha": 3.0, "score": "window_margin"}
    config = {"noisy": {"digits": {"methods": ["sce", "sce@tuned_sce"]}}, "variants": {"sce": {"tuned_sce": params}}}
    reported = report_values(DatasetRun({**config, "data": {"root": "data"}}, "noisy", "digits", ROOT))
    assert {name: row["auc_pr"] for name, row in reported.items()} == {
        "sce": {"a": {0: 0.5}},
        "sce@tuned_sce": {"a": {0: 0.7}},
    }
    assert reported["sce@tuned_sce"]["params"] == params


@pytest.fixture
def tuning_run(tmp_path):
    tuning = {"t": {"kind": "class_conditional", "noise": 0.3, "sparsity": 0.0}}
    dataset = {"tuning": tuning, "tuning_methods": ["random"], "tuning_seeds": [7], "cells_per_job": 9}
    layer = {"run": "few", "extends": "mini.yaml", "data": {"root": str(tmp_path / "data")}}
    config = resolve_config({**layer, "noisy": {"digits": dataset}}, ROOT / "tests" / "helpers")
    return DatasetRun(config, "tuning", "digits", tmp_path / "run")


def test_cells_on_tuning_noise_are_computed_and_evaluated(tuning_run):
    reports = []
    assert tuning_run.run(["random"], report=lambda: reports.append(candidates.values_of(tuning_run))) == 0
    ((values, failed),) = reports  # at the end, because a minute has not passed
    assert 0.2 < values["random"][""]["t"][7] < 0.5 and not failed
    assert [log.name for log in tuning_run.folder.glob("*.log")] == ["few-0.log"]
    assert not (tuning_run.folder / "cells" / "tuning" / "digits" / "t" / "seed7" / "plain").exists()


def test_an_error_outside_the_methods_is_told(tuning_run, monkeypatch):
    def fail(processes, workers):
        processes.failed[processes.waiting[0]] = "UserError: the disk is full"

    monkeypatch.setattr(candidates.Processes, "run", fail)
    with pytest.raises(UserError, match=r"digits random 0: UserError: the disk is full; see .*/few-\*.log"):
        tuning_run.run(["random"])


def test_a_temporary_folder_stays_after_an_error_that_names_logs_in_it(tmp_path, monkeypatch):
    monkeypatch.setattr(common.tempfile, "tempdir", str(tmp_path))
    with common.temporary_folder() as folder:
        (folder / "run").mkdir()
    assert not list(tmp_path.iterdir())
    with pytest.raises(UserError), common.temporary_folder():
        raise UserError("see the log")
    assert len(list(tmp_path.iterdir())) == 1


def test_a_mistake_is_one_line_with_status_2(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["candidates", "--methods", "nonsense"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(candidates.__file__, run_name="__main__")
    told = capsys.readouterr().err
    assert ended.value.code == 2 and told.startswith("error: noisy.digits.methods: no method 'nonsense'")
    assert told.count("\n") == 1
