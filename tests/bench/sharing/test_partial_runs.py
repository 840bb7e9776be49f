"""A run exported in parts and merged where its cells are not: the same metrics, summary and tables."""

import gzip
import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from sgoif.bench.cli import main
from sgoif.bench.config import load_config
from sgoif.bench.data.availability import Availability
from sgoif.bench.data.holdout import hold_out
from sgoif.bench.data.noisy_labels import write_setting
from sgoif.bench.data.prepare import prepare
from sgoif.bench.execution import run_batch
from sgoif.bench.execution.integrity.run_files import noise_draws
from sgoif.bench.execution.plan import Plan
from sgoif.bench.sharing import export, merge
from sgoif.bench.sharing.measured_part import NOT_YET
from sgoif.bench.sharing.partial_run import check_partial_run, owner_of
from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_json, read_json
from tests.helpers.project_copy import MINI_CONFIG

OOD_TABLE = "Table 3: Out-of-distribution detection"
CELLS = {"noisy/digits": ["plain", "random", "loss", "aum"], "ood/digits_id": ["plain", "msp"]}


@pytest.fixture(scope="module", autouse=True)
def in_this_process():
    """Evaluate all cells here: to start other processes takes ten times as long. One test does it there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "FEW", 100)
        yield


@pytest.fixture(autouse=True)
def no_figures(request, monkeypatch):
    """One test looks at figures; to draw them would be most of the others' time."""
    if request.function is not test_merged_elsewhere_it_is_the_same_run:
        monkeypatch.setattr(merge, "write_figures", lambda run_dir, config: [])


@pytest.fixture(scope="module")
def computed(tmp_path_factory) -> Path:
    """A folder with mini.yaml, its data, and results/mini as Snakemake leaves it: 13 + 2 cells of two epochs."""
    folder = tmp_path_factory.mktemp("computed")
    raw = yaml.safe_load(MINI_CONFIG.read_text())
    raw["methods"] = {"noisy": ["random", "loss", "aum"], "ood": ["msp"]}
    raw["recipes"]["digits"] |= {"epochs": 2}
    raw["noisy"]["digits"] |= {"restrict": {"aum": {"settings": ["n20_s0"], "seeds": [0], "reason": "no time"}}}
    raw["noisy"]["digits"]["settings"] = dict(reversed(raw["noisy"]["digits"]["settings"].items()))
    raw["data"] = {"root": str(folder / "data")}
    (folder / "mini.yaml").write_text(yaml.safe_dump(raw, sort_keys=False))
    plan, run_dir = Plan(load_config(folder / "mini.yaml")), folder / "results" / "mini"
    atomic_write_json(run_dir / "config.json", plan.config)
    for dataset in ("digits", "digits_id", "digits_near", "photo_patches", "digits_aux"):
        prepare(dataset, folder / "data")
    for dataset, setting, draw in noise_draws(plan):
        write_setting(folder / "data", run_dir, dataset, setting, plan.noise(dataset, setting, draw), draw)
    torch.set_num_threads(1)
    for of, methods in CELLS.items():
        task, dataset = of.split("/")
        hold_out(folder / "data", run_dir, dataset, plan.held_out(dataset))
        for method in methods:
            run_batch.run_batch(plan, run_dir, task, dataset, method, 0, "cpu")
    return folder


@pytest.fixture
def work(computed, tmp_path, monkeypatch) -> Path:
    """A copy of that run to change; the current folder."""
    shutil.copytree(computed / "results", tmp_path / "results")
    shutil.copy(computed / "mini.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def step(*words: str) -> int:
    return main([str(w) for w in words])


def exported(out: str, *more: str) -> dict:
    assert step("export-records", "--config", "results/mini/config.json", "--out", out, *more) == 0
    return read(out)


def read(path) -> dict:
    return json.loads(gzip.decompress(Path(path).read_bytes()))


def rewrite(path, partial_run: dict) -> None:
    Path(path).write_bytes(gzip.compress(json.dumps(partial_run).encode()))


def names(partial_run: dict) -> set[str]:
    return {"/".join(str(c["cell"][k]) for k in ("dataset", "setting", "seed", "method")) for c in partial_run["cells"]}


@pytest.fixture(scope="module")
def whole(computed) -> bytes:
    """The partial run that holds all of it."""
    config, out = computed / "results" / "mini" / "config.json", computed / "whole.json.gz"
    said = ("--commit", "c0ffee", "--note", "on a borrowed machine")
    assert step("export-records", "--config", config, "--out", out, *said) == 0
    return out.read_bytes()


@pytest.fixture
def elsewhere(computed, whole, tmp_path, monkeypatch) -> Path:
    """A folder with the configuration and that partial run, a.json.gz, alone; the current folder."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    shutil.copy(computed / "mini.yaml", folder)
    (folder / "a.json.gz").write_bytes(whole)
    monkeypatch.chdir(folder)
    return folder


def test_what_was_interrupted_before_test_images_were_set_aside_is_exported_too(work, whole):
    shutil.rmtree(work / "results/mini/labels")
    assert exported("a.json.gz")["records"] == json.loads(gzip.decompress(whole))["records"]


def test_merged_elsewhere_it_is_the_same_run(work, elsewhere, monkeypatch):
    monkeypatch.chdir(work)
    for task, dataset in (of.split("/") for of in CELLS):
        step("evaluate", "--config", "results/mini/config.json", "--task", task, "--dataset", dataset)
    for words in ("summarise", "tables", "ledger"):
        assert step(words, "--config", "results/mini/config.json") == 0
    monkeypatch.chdir(elsewhere)
    assert step("merge-records", "a.json.gz", "--config", "mini.yaml") == 0
    here, there = elsewhere / "results" / "mini", work / "results" / "mini"
    same = [
        p.relative_to(there) for p in there.rglob("*") if p.parent.name in ("noisy", "ood", "tables") and p.is_file()
    ]
    same = [p for p in same if p.parts[0] in ("metrics", "tables")]
    assert len(same) == 2 * (2 + 2 * 4), "two datasets and two tables of four kinds, each with its seal"
    for path in [*same, Path("summary.json"), Path("ledger.json"), Path("config.json")]:
        assert (here / path).read_bytes() == (there / path).read_bytes(), path
    assert not (here / "cells").exists() and (here / "report.html").is_file()
    drawn = {p.stem for p in (here / "figures").glob("*.svg") if p.stat().st_size}
    assert "table1_detection" in drawn and not any(name.endswith(("_curves", "_gallery")) for name in drawn)

    assert step("publish", "--config", "results/mini/config.json") == 0
    published = list((elsewhere / "results/published/mini").glob("*.png"))
    assert {p.stem for p in published} == drawn and all(p.stat().st_size for p in published), "curves are not exported"
    origin = read_json(elsewhere / "results/published/mini/provenance.json")
    cells = [read_json(p) for p in there.glob("cells/*/*/*/*/*/result.json")]
    assert origin["cells"] == len(cells) == 15
    (partial_run,) = origin["pieces"]
    assert partial_run["note"] == "on a borrowed machine"
    assert (partial_run["file"], partial_run["cells"], partial_run["of"]) == ("a.json.gz", 15, list(CELLS))
    assert partial_run["commit"] == origin["commit"] == sorted({c["commit"] or "c0ffee" for c in cells})
    assert {"hardware", "versions", "date", "config_hash"} <= set(partial_run)


def test_what_git_does_not_tell_is_told_and_nothing_is_too_large(work):
    for path in Path("results/mini/cells").rglob("result.json"):
        atomic_write_json(path, {**read_json(path), "commit": "" if "aum" in path.parts else "abc"})
    partial_run = exported("a.json.gz", "--commit", "c0ffee")
    assert {c["commit"] for c in partial_run["cells"] if c["cell"]["method"] == "aum"} == {"c0ffee"}
    assert {c["commit"] for c in partial_run["cells"] if c["cell"]["method"] != "aum"} == {"abc"}
    assert {"key", "seconds", "shared_gpu", "created"} <= set(partial_run["cells"][0])
    assert not {"arrays", "curves"} & set(partial_run["cells"][0])
    assert "not run" not in {r["status"] for r in partial_run["records"] if r["metric"] == "status"}


def test_an_interrupted_batch_is_exported_as_far_as_it_came(work, capsys):
    run = Path("results/mini")
    (run / "batches/noisy/digits/loss/0.json").unlink()
    shutil.rmtree(run / "cells/noisy/digits/n40_s6/seed1/loss")
    stale = run / "cells/noisy/digits/n40_s6/seed0/loss/result.json"
    atomic_write_json(stale, {**read_json(stale), "key": "of older code"})
    found = {n for n in names(exported("a.json.gz")) if n.endswith("/loss")}
    assert found == {"digits/n20_s0/0/loss", "digits/n20_s0/1/loss"}
    told = capsys.readouterr().err
    assert "warning: left out: " in told and "n40_s6/seed0/loss" in told and "its key is not" in told
    assert len(told.splitlines()) == 1, "what was not computed yet is not damaged"


def test_a_damaged_cell_is_named_and_left_out(work, whole, capsys, monkeypatch):
    """Here with processes that evaluate: they give the same records, and say what is wrong."""
    monkeypatch.setattr(export, "FEW", 0)
    cells = Path("results/mini/cells/noisy/digits/n20_s0")
    (cells / "seed0/loss/arrays.npz").write_bytes(b"no scores")
    (cells / "seed1/random/result.json").write_text("{")
    partial_run = exported("a.json.gz")
    found = names(partial_run)
    assert len(found) == 13 and not {"digits/n20_s0/0/loss", "digits/n20_s0/1/random"} & found
    undamaged = [r for r in json.loads(gzip.decompress(whole))["records"] if r["method"] in ("aum", "msp")]
    assert undamaged and [r for r in partial_run["records"] if r["method"] in ("aum", "msp")] == undamaged
    told = sorted(capsys.readouterr().err.splitlines())
    assert len(told) == 2 and all(line.startswith("warning: left out: ") for line in told)
    assert "seed0/loss: arrays.npz is not the file" in told[0] and "seed1/random: result.json is damaged" in told[1]


def test_without_its_plain_run_a_cell_has_no_overhead(work):
    shutil.rmtree("results/mini/batches/ood/digits_id/plain")
    shutil.rmtree("results/mini/cells/ood/digits_id/clean/seed0/plain")
    partial_run = exported("a.json.gz")
    said = {r["reason"] for r in partial_run["records"] if r["method"] == "msp" and r["metric"].startswith("overhead")}
    assert said == {"no plain run to compare with"}


def test_of_two_partial_runs_the_later_one_counts_and_gaps_have_their_reasons(elsewhere):
    whole = read("a.json.gz")
    loss = [c for c in whole["cells"] if (c["cell"]["method"], c["cell"]["setting"]) == ("loss", "n20_s0")]
    values = [r for r in whole["records"] if (r["method"], r["setting"]) == ("loss", "n20_s0")]
    later = [{**r, "value": 0.123} if r["metric"] == "auroc" and not r["variant"] else r for r in values]
    rewrite("b.json.gz", {**whole, "cells": [{**c, "commit": "later"} for c in loss], "records": later})
    first = [c for c in whole["cells"] if c["cell"]["dataset"] == "digits"]
    first = [c for c in first if (c["cell"]["method"], c["cell"]["setting"]) != ("random", "n40_s6")]
    kept = {tuple(c["cell"].values()) for c in first}
    own = [r for r in whole["records"] if tuple(r[k] for k in first[0]["cell"]) in kept or not r["method"]]
    rewrite("a.json.gz", {**whole, "cells": first, "records": own})
    for files, value in ((("a.json.gz", "b.json.gz"), True), (("b.json.gz", "a.json.gz"), False)):
        assert step("merge-records", *files, "--config", "mini.yaml") == 0
        records = read_json("results/mini/metrics/noisy/digits.json")
        found = {
            r["value"] for r in records
            if (r["method"], r["setting"], r["metric"], r["variant"]) == ("loss", "n20_s0", "auroc", "")
        }  # fmt: skip
        assert (found == {0.123}) is value
    gaps = {(r["method"], r["setting"], r["seed"]): r["reason"] for r in records if r["status"] == "not run"}
    aum = {("aum", s, seed): "no time" for s, seed in (("n20_s0", 1), ("n40_s6", 0), ("n40_s6", 1))}
    assert gaps == aum | {("random", "n40_s6", seed): NOT_YET for seed in (0, 1)}
    config = read_json("results/mini/config.json")
    assert [(gap["dataset"], gap["reason"]) for gap in config["not_run"]] == [("digits_id", NOT_YET)]
    assert [(table["title"], table["reason"]) for table in config["tables_not_run"]] == [(OOD_TABLE, NOT_YET)]
    assert not Path("results/mini/tables/table3.md").exists()
    assert f"no table yet: {OOD_TABLE}" in Path("results/mini/report.html").read_text()
    step("merge-records", "a.json.gz", "b.json.gz", "--config", "mini.yaml")
    step("publish", "--config", "results/mini/config.json")
    pieces = read_json("results/published/mini/provenance.json")["pieces"]
    assert [(p["file"], p["cells"]) for p in pieces] == [("a.json.gz", len(first) - 2), ("b.json.gz", 2)]
    assert pieces[1]["commit"] == ["later"]


def test_a_dataset_that_only_the_partial_runs_have_is_no_gap(elsewhere, monkeypatch):
    whole = read("a.json.gz")
    own = {k: [c for c in whole[k] if c.get("cell", c)["dataset"] == "digits"] for k in ("cells", "records")}
    rewrite("a.json.gz", {**whole, **own})
    raw = yaml.safe_load(Path("mini.yaml").read_text())
    raw["noisy"]["digits"]["optional"] = raw["ood"]["digits_id"]["optional"] = True
    Path("mini.yaml").write_text(yaml.safe_dump(raw))
    missing = Availability("missing", missing=True)
    monkeypatch.setattr("sgoif.bench.config.resolve.check_availability", lambda *_: missing)
    assert step("merge-records", "a.json.gz", "--config", "mini.yaml") == 0
    config = read_json("results/mini/config.json")
    assert (list(config["noisy"]), list(config["ood"])) == (["digits"], [])
    assert [(gap["task"], gap["dataset"]) for gap in config["not_run"]] == [("ood", "digits_id")]


def with_one_draw(partial_run: dict, method: str | None = None) -> dict:
    """The partial run as an older version wrote it: all seeds saw draw 0 (of one method, or all of them)."""
    for cell in partial_run["cells"]:
        if method in (None, cell["cell"]["method"]):
            cell["config"]["noise"].pop("seed", None)
    if method is None:
        labels = [{**r, "seed": None} for r in partial_run["records"] if not r["method"] and r["seed"] == 0]
        partial_run["records"] = labels + [r for r in partial_run["records"] if r["method"]]
    return partial_run


def test_records_of_seeds_that_shared_one_draw_stay_readable_and_say_so(elsewhere):
    assert step("merge-records", "a.json.gz", "--config", "mini.yaml") == 0
    assert "Each seed draws its own noise." in Path("results/mini/tables/table1.md").read_text()
    rewrite("old.json.gz", with_one_draw(read("a.json.gz")))
    assert step("merge-records", "old.json.gz", "--config", "mini.yaml") == 0
    table = " ".join(Path("results/mini/tables/table1.md").read_text().split())
    assert "All seeds share one draw of noise: the spread is that of training alone." in table
    assert "draws its own" not in table
    only_seed_0 = read("a.json.gz")  # seed 0 saw draw 0 in old and in new records, so these go together
    for key in ("cells", "records"):
        only_seed_0[key] = [r for r in only_seed_0[key] if r.get("cell", r)["seed"] == 0]
    rewrite("new.json.gz", only_seed_0)
    assert step("merge-records", "old.json.gz", "new.json.gz", "--config", "mini.yaml") == 0
    records = read_json("results/mini/metrics/noisy/digits.json")
    assert {r["seed"] for r in records if not r["method"]} == {None}


def test_methods_that_saw_different_noise_are_not_merged(elsewhere, capsys):
    rewrite("mixed.json.gz", with_one_draw(read("a.json.gz"), "loss"))
    assert step("merge-records", "mixed.json.gz", "--config", "mini.yaml") == 2
    told = capsys.readouterr().err
    assert "seed1/loss was measured on noise that all seeds shared" in told and "on noise of its own seed" in told
    assert not Path("results").exists()


@pytest.mark.parametrize(
    ("what", "name", "told"),
    [
        ("setting", "n99", "mini.yaml has no setting 'n99'; there are: n20_s0, n40_s6"),
        ("dataset", "cifar10", "mini.yaml has no dataset 'cifar10'; there are: digits"),
        ("method", "incv", "mini.yaml has no method 'incv'"),
        ("seed", 7, "mini.yaml has no seed 7; there are: 0, 1"),
    ],
)
def test_what_the_configuration_does_not_know_is_refused(what, name, told, elsewhere, capsys):
    partial_run = read("a.json.gz")
    one = owner_of(next(c["cell"] for c in partial_run["cells"] if c["cell"]["method"] == "random"))
    for key, owner in (("cells", lambda c: owner_of(c["cell"])), ("records", owner_of)):
        partial_run[key] = [c for c in partial_run[key] if owner(c)[-1] != "random" or owner(c) == one]
    for cell in [c["cell"] for c in partial_run["cells"]] + partial_run["records"]:
        if cell["method"] == "random":
            cell[what] = name
    for record in [r for r in partial_run["records"] if not r["method"] and r["seed"] in (None, one[3])]:
        if what in ("setting", "dataset") and record["setting"] == one[2]:
            partial_run["records"].append({**record, what: name})
    rewrite("a.json.gz", partial_run)
    assert step("merge-records", "a.json.gz", "--config", "mini.yaml") == 2
    error = capsys.readouterr().err
    assert error.startswith("error: a.json.gz: ") and told in error and len(error.splitlines()) == 1
    assert not Path("results").exists(), "nothing is half merged"


def test_another_recipe_another_file_and_a_run_of_its_own_are_refused(work, elsewhere, monkeypatch, capsys):
    monkeypatch.chdir(work)
    assert step("merge-records", elsewhere / "a.json.gz", "--config", "mini.yaml") == 2
    assert "has cells of its own" in capsys.readouterr().err
    monkeypatch.chdir(elsewhere)
    (elsewhere / "mini.yaml").write_text((elsewhere / "mini.yaml").read_text().replace("epochs: 2", "epochs: 9"))
    rewrite("odd.json.gz", {"format": "another"})
    Path("torn.json.gz").write_bytes(Path("a.json.gz").read_bytes()[:200])
    said = {
        "a.json.gz": "was measured with recipe.epochs = 2, but mini.yaml says 9",
        "odd.json.gz": "its format is 'another'",
        "torn.json.gz": "torn.json.gz is damaged or no compressed JSON",
        "none.json.gz": "there is no file none.json.gz",
    }
    for file, told in said.items():
        assert step("merge-records", file, "--config", "mini.yaml") == 2
        error = capsys.readouterr().err
        assert told in error and len(error.splitlines()) == 1


@pytest.mark.parametrize(("measured", "planned", "differs"), [(False, True, False), (True, False, True)])
def test_a_cell_that_was_not_retrained_fits_a_plan_that_retrains(measured, planned, differs):
    found = list(merge._differences({"retrain": measured, "params": {}}, {"retrain": planned, "params": {}}))
    assert bool(found) is differs


@pytest.mark.parametrize("value", ["x", True, float("nan"), float("inf")])
def test_a_record_whose_value_is_no_finite_number_is_refused(value, elsewhere):
    partial_run = read("a.json.gz")
    partial_run["records"][0]["value"] = value
    with pytest.raises(UserError, match="a record is not one of a metrics file, whose values are finite numbers"):
        check_partial_run(Path("a.json.gz"), partial_run)


def test_a_cell_that_is_there_twice_is_refused(elsewhere):
    partial_run = read("a.json.gz")
    partial_run["cells"].append(partial_run["cells"][0])
    with pytest.raises(UserError, match=r"it has the cell \('noisy', .* more than once"):
        check_partial_run(Path("a.json.gz"), partial_run)
