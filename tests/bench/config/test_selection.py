"""A part of a run by METHODS, SETTINGS, SEEDS and DATASETS: the cells of the whole run, in a folder of their own."""

import pytest
import yaml

from sgoif.bench.config import load_config, parse_selection, selection_name
from sgoif.bench.execution.plan import Plan
from sgoif.bench.run_folder import folder_of
from sgoif.errors import UserError
from sgoif.utils.paths import ROOT
from tests.helpers.project_copy import MINI_CONFIG

EMBEDDED = ROOT / "configs" / "embedded.yaml"


@pytest.fixture(scope="module")
def whole() -> dict:
    return load_config(EMBEDDED)


def select(path=EMBEDDED, **named: str) -> dict:
    return load_config(path, select=parse_selection(**named))


def cells(config: dict) -> dict:
    """Every cell of a run with all that it depends on."""
    plan = Plan(config)
    return {
        cell: plan.cell_config(cell)
        for task in ("noisy", "ood")
        for dataset in plan.datasets(task)
        for method in ["plain", *plan.methods(task, dataset)]
        for cell in plan.cells(task, dataset, method)
        if plan.wanted(cell)
    }


def test_the_cells_are_those_of_the_whole_run_with_the_same_parameters(whole):
    config = select(methods="aum,sgoif", settings="n20_s0", seeds="0")
    found, all_cells = cells(config), cells(whole)
    assert {(c.task, c.dataset, c.setting, c.seed) for c in found} == {("noisy", "digits", "n20_s0", 0)}
    assert {c.method for c in found} == {"plain", "sgoif", "aum"}
    assert found == {cell: all_cells[cell] for cell in found}


def test_only_tables_that_still_show_something_are_left():
    config = select(methods="sgoif,aum", settings="n20_s0", seeds="0")
    assert set(config["tables"]) == {"table1", "scores", "cost"}
    assert set(select(settings="clean")["tables"]) == {"table3", "cost_ood"}
    ablated = select(methods="sgoif,sgoif@no_gate", settings="n20_s0,asym20")["tables"]
    assert ablated["ablation_cifar10"]["methods"] == ["sgoif", "sgoif@no_gate"]
    assert ablated["ablation_cifar10"]["sets"] == [{"dataset": "digits", "setting": "n20_s0"}]
    assert "ablation_cifar10" not in select(methods="sgoif@no_gate")["tables"]  # nothing to compare with


def test_what_no_table_shows_gets_one(tmp_path):
    raw = yaml.safe_load(MINI_CONFIG.read_text())
    raw["noisy"]["digits"]["settings"]["pairs"] = {"kind": "asymmetric", "rate": 0.2, "map": "next"}
    (tmp_path / "mini.yaml").write_text(yaml.safe_dump(raw))
    config = select(tmp_path / "mini.yaml", settings="pairs")
    assert config["tables"]["selected"]["sets"] == [{"dataset": "digits", "setting": "pairs"}]
    assert set(config["tables"]) == {"selected"}


def test_a_variant_that_is_named_runs_in_every_selected_setting_and_has_a_row(whole):
    plan = Plan(select(methods="sgoif@no_gate,sgoif@k20", settings="n70_s0", seeds="1"))
    assert plan.methods("noisy", "digits") == ["sgoif@no_gate", "sgoif@k20"]  # k20 is declared, and run by no table
    assert all(plan.wanted(cell) for cell in plan.expected_cells("noisy", "digits"))
    assert plan.config["tables"]["table1"]["methods"] == ["plain", "sgoif@no_gate", "sgoif@k20"]
    unnamed = Plan(select(settings="n70_s0"))
    assert [method for method in unnamed.methods("noisy", "digits") if "@" in method] == ["sgoif@paper"]


def test_a_selection_has_one_folder_whatever_the_order_and_the_whole_run_keeps_its_own(whole):
    first = select(methods="aum,sgoif", seeds="1,0")
    assert folder_of(first) == folder_of(select(methods=" sgoif, aum", seeds="0,1"))
    assert folder_of(first).parts[:3] == ("results", "embedded", "selections")
    assert folder_of(whole).as_posix() == "results/embedded" and "select" not in whole
    long = {"methods": [f"method{i}" for i in range(40)]}
    assert len(selection_name(long)) <= 100 != selection_name({"methods": long["methods"][:-1]})
    assert selection_name({"methods": ["random"]}) != selection_name({"settings": ["random"]})


def test_as_many_test_images_are_set_aside_as_in_the_whole_run(tmp_path):
    raw = yaml.safe_load(MINI_CONFIG.read_text())
    raw["ood"] = {"digits": {**raw["ood"]["digits_id"], "val": 150}}
    (tmp_path / "mini.yaml").write_text(yaml.safe_dump(raw))
    assert Plan(select(tmp_path / "mini.yaml", settings="n20_s0")).held_out("digits") == 150


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ({"methods": "sgoiff"}, r"select\.methods: no method 'sgoiff'; .*sgoif"),
        ({"methods": "sgoif@no_gait"}, r"select\.methods: no method 'sgoif@no_gait'; .*sgoif@no_gate"),
        ({"settings": "n20_s00"}, r"select\.settings: no setting 'n20_s00'; .*n20_s0"),
        ({"seeds": "7"}, r"select\.seeds: no seed '7'"),
        ({"datasets": "digit"}, r"select\.datasets: no dataset 'digit'; .*digits"),
        (
            {"settings": "n20_s0", "datasets": "digits_id"},
            r"no cell of run 'embedded' has all of: settings n20_s0, dat",
        ),
        ({"methods": "msp", "settings": "n20_s0"}, "no cell of run 'embedded'"),
        ({"methods": "sgoif,,aum"}, "METHODS: 'sgoif,,aum' has an empty name"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(named, told):
    with pytest.raises(UserError, match=told):
        select(**named)


def test_snakemake_hands_over_words_instead_of_numbers():
    config = load_config(EMBEDDED, select={"seeds": ["1"]})
    assert config["select"] == {"seeds": [1]} and config["noisy"]["digits"]["seeds"] == [1]
