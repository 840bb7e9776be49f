"""A run of which only a part is measured: what is there is shown as it is, the rest is named, with the reason."""

import copy
from pathlib import Path

import pytest

from sgoif.bench.config import load_config
from sgoif.bench.evaluation.resolve_layout import resolve_layout
from sgoif.bench.execution.plan import Plan
from sgoif.bench.report.headline import _missing
from sgoif.bench.report.sections import failures_section
from sgoif.bench.sharing.measured_part import NOT_YET, measured_part
from sgoif.bench.tables.kinds.noisy import MAX_COLUMNS, noise_sets
from sgoif.bench.tables.source import Source
from sgoif.utils.paths import ROOT

CONFIG = ROOT / "configs" / "measurement.yaml"


@pytest.fixture(scope="module")
def config() -> dict:
    return load_config(CONFIG, skip_missing=False)


def cells(config: dict, datasets: tuple[str, ...], seeds: dict[str, list[int]], without: tuple[str, ...] = ()) -> set:
    """All cells of noisy datasets but those of some methods; seeds by method, else seed 0."""
    plan = Plan(config)
    return {
        ("noisy", c.dataset, c.setting, c.seed, c.method)
        for dataset in datasets
        for c in plan.expected_cells("noisy", dataset)
        if c.seed in seeds.get(c.method, [0]) and c.method not in without
    }


def test_a_whole_run_stays_as_it_is(config):
    plan = Plan(config)
    every = {
        (task, c.dataset, c.setting, c.seed, c.method)
        for task in ("noisy", "ood")
        for dataset in plan.datasets(task)
        for c in plan.expected_cells(task, dataset)
    }
    before = copy.deepcopy(config)
    assert measured_part(config, every) == config == before


def test_one_dataset_and_one_seed_are_shown_as_such_and_the_rest_is_named(config):
    variants = tuple(m for m in config["noisy"]["cifar10"]["methods"] if m.startswith("sgoif@") and m != "sgoif@paper")
    found = measured_part(config, cells(config, ("cifar10",), {}, ("incv", *variants)))
    assert {d: spec["seeds"] for d, spec in found["noisy"].items()} == {"cifar10": [0]} and found["ood"] == {}
    gaps = {(gap["task"], gap["dataset"]): gap["reason"] for gap in found["not_run"]}
    new = {("noisy", d) for d in ("cifar100", "MNIST", "imagenette")} | {("ood", d) for d in config["ood"]}
    assert {gap for gap, reason in gaps.items() if reason == NOT_YET} == new
    assert gaps["noisy", "webvision"].startswith("WebVision has no")
    shown = {"table1", "table2", "clean_labels", "told_noise", "controls", "scores", "cleaning", "cost"}
    assert set(found["tables"]) == shown
    titles = {table["title"] for table in found["tables_not_run"]}
    assert {
        "Table 3: Out-of-distribution detection",
        "Ablation: CIFAR-10",
        "Sensitivity of SG-OIF to its settings",
    } <= titles
    assert len(titles) == len(config["tables"]) - len(shown)
    layout = resolve_layout("table2", found["tables"]["table2"], found)
    assert [p.setting for p in layout.panels] == ["aggre", "random1", "worse", "asym20", "asym40", "sym20", "sym50"]
    assert [a.title for a in layout.not_run][:2] == ["CIFAR-100 superclass 20%", "CIFAR-100 human labels"]
    assert {a.reason for a in layout.not_run if a.dataset == "cifar100"} == {NOT_YET}


def test_seeds_that_nothing_is_measured_with_are_named(config, tmp_path):
    found = measured_part(config, cells(config, ("cifar10",), {}))
    named = [(one["task"], one["title"], one["seeds"], one["reason"]) for one in found["seeds_not_run"]]
    assert named == [("noisy", "CIFAR-10", [1, 2], NOT_YET)], "datasets without any cell are named as such"
    (row,) = [row for row in failures_section(tmp_path, found) if row["settings"].startswith("all with")]
    assert (row["dataset"], row["settings"]) == ("CIFAR-10", "all with seeds 1, 2")
    assert "not run with further seeds: CIFAR-10, seeds 1, 2" in _missing(failures_section(tmp_path, found)).text


def test_a_setting_without_a_cell_is_no_column_of_a_grid(config):
    some = {cell for cell in cells(config, ("cifar10",), {}) if cell[2] != "n70_s6"}
    found = measured_part(config, some)
    assert len(found["tables"]["table1"]["settings"]) == 11 and "n70_s6" not in found["tables"]["table1"]["settings"]
    assert "n70_s6" in found["noisy"]["cifar10"]["settings"], "its cells are listed as not run"


def test_seeds_of_some_rows_count_and_a_full_ablation_is_shown(config):
    found = measured_part(config, cells(config, ("cifar10",), {"sgoif": [0, 2], "random": [0, 1, 2]}))
    assert found["noisy"]["cifar10"]["seeds"] == [0, 2], "a ranking by chance makes no seed"
    assert {"ablation_cifar10", "backends", "sensitivity"} <= set(found["tables"])


def test_a_table_of_chosen_methods_needs_one_that_stands_apart(config):
    found = measured_part(config, cells(config, ("cifar10",), {}, ("coteaching@given", "mentornet@given")))
    assert "told_noise" not in found["tables"] and "clean_labels" in found["tables"]
    found = measured_part(config, cells(config, ("cifar10",), {}, ("mentornet@given", "fastif@all_trusted")))
    assert {"told_noise", "clean_labels"} <= set(found["tables"])


def test_what_has_no_room_for_a_column_is_told_above_the_table(config):
    found = measured_part(config, cells(config, ("cifar10",), {}))
    layout = resolve_layout("table2", found["tables"]["table2"], found)
    assert len(layout.panels) + len(layout.not_run) > MAX_COLUMNS
    table = noise_sets(Source("table2", layout, []))
    words = "Without a column: CIFAR-100 superclass 20%, CIFAR-100 human labels, CIFAR-100 symmetric 20%"
    assert any(s.startswith(words) and "Clothing1M (the images are handed out" in s for s in table.caption)
    assert len(table.blocks[0].columns) == 7


def test_the_report_names_what_is_not_run(tmp_path: Path, config):
    found = measured_part(config, cells(config, ("cifar10",), {}))
    rows = failures_section(tmp_path, found)
    assert ("table", "Table 3: Out-of-distribution detection", NOT_YET) in {
        (r["task"], r["dataset"], r["reason"]) for r in rows
    }
    told = _missing(rows).text
    assert "Imagenette" in told.partition("no table yet")[0] and "CIFAR-10 (OOD)" in told
    assert "no table yet: Table 3: Out-of-distribution detection" in told
