"""The layout of a table: what summary.json holds is what tables and figures read."""

from sgoif.bench.config import load_config
from sgoif.bench.evaluation.resolve_layout import resolve_layout
from sgoif.bench.evaluation.table_layout import TableLayout
from sgoif.utils.paths import ROOT
from tests.helpers.fake_runs import config


def test_every_layout_survives_the_summary():
    for name, spec in config()["tables"].items():
        layout = resolve_layout(name, spec, config())
        assert TableLayout.from_json(layout.to_json()) == layout


def test_rows_and_settings_of_the_full_method_are_of_tables_of_variants_alone():
    tables = config()["tables"]
    ablation = resolve_layout("ablation", tables["ablation"], config())
    assert [row.method for row in ablation.rows] == ["sgoif", "sgoif@no_gate"]
    assert ablation.rows[1].change == {"gate": "none"} and ablation.full["gate"] != "none"
    assert [panel.methods for panel in ablation.ood_panels] == [["sgoif"]]
    grid = resolve_layout("table1", tables["table1"], config())
    assert not {"rows", "full"} & set(grid.to_json())
    assert [gap.reason for gap in resolve_layout("table3", tables["table3"], config()).not_run] == [
        "data not found: needs a licence"
    ]


def test_what_an_older_summary_leaves_out_has_its_default():
    least = {"kind": "grid", "title": "T", "panels": [], "not_run": []}
    assert TableLayout.from_json(least) == TableLayout("grid", "noisy", "T")
    whole = {**least, "task": "ood", "selection": "s", "extended": True, "full": {"gate": "none"}}
    assert TableLayout.from_json(whole) == TableLayout("grid", "ood", "T", "s", True, full={"gate": "none"})


def test_variants_of_ood_methods_with_a_row_of_their_own_have_it():
    config = load_config(ROOT / "configs" / "openood.yaml", skip_missing=False)
    layout = resolve_layout("table3", config["tables"]["table3"], config)
    for panel in layout.panels:
        assert {"scale", "scale@searched", "msp"} <= set(panel.methods) and "msp@searched" not in panel.methods
