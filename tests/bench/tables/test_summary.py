"""The summary that tables are made from, of a run in which some cells failed and some are missing."""

import re
import shutil

import pytest

from sgoif.bench import tables
from sgoif.bench.evaluation.summary import summarise
from sgoif.bench.figures._data import tables_of
from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_json, read_json
from tests.helpers.fake_runs import config
from tests.helpers.table_checks import NAMES, find


def test_tables_are_shown_by_kind(finished, tmp_path):
    shutil.copytree(finished.root / "metrics", tmp_path / "metrics")
    turned = config()
    turned["tables"] = dict(reversed(turned["tables"].items()))
    shown = [r["layout"]["kind"] for r in summarise(tmp_path, turned) if r["metric"] == "layout"]
    assert shown == ["noise_grid", "noise_sets", "ood", "ablation", "cost"]


def test_a_grid_that_names_its_methods_shows_these_and_has_no_figures(finished, tmp_path):
    shutil.copytree(finished.root / "metrics", tmp_path / "metrics")
    grid = {"kind": "noise_grid", "dataset": "digits"}
    few = config(tables={"few": {**grid, "methods": ["sgoif", "fastif@all", "aum"]}, "table1": grid})
    found = tables.build_tables(summarise(tmp_path, few))
    assert [t.name for t in found] == ["table1", "few"]  # after that of all
    shown = [row.method for block in found[1].blocks for row in block.rows if row.method]
    assert set(shown) == {"sgoif", "aum"}  # the variant was not run in any setting: the caption says so
    assert "Not run, and not shown: FastIF † (all)." in found[1].caption
    assert tables_of(few, "noise_grid") == ["table1"]


def test_a_variant_has_a_row_in_every_table_if_its_class_declares_one(finished, tmp_path):
    """SG-OIF as the paper has it stands beside the full method; an ablation has rows in its own table alone."""
    shutil.copytree(finished.root / "metrics", tmp_path / "metrics")
    metrics = tmp_path / "metrics" / "noisy" / "digits.json"
    records = read_json(metrics)
    records += [{**r, "method": "sgoif@paper"} for r in records if r["method"] == "sgoif@no_gate"]
    atomic_write_json(metrics, records)
    more = config()
    more["noisy"]["digits"]["methods"] = [*more["noisy"]["digits"]["methods"], "sgoif@paper"]
    found = {table.name: table for table in tables.build_tables(summarise(tmp_path, more))}
    for name in ("table1", "table2", "cost"):
        rows = [row.method for row in found[name].blocks[0].rows]
        assert rows.index("sgoif@paper") == rows.index("sgoif") + 1 and "sgoif@no_gate" not in rows


def test_every_summary_record_has_the_promised_keys(finished):
    promised = {"table", "dataset", "setting", "method", "metric", "mean", "std", "n_seeds", "status", "seconds"}
    assert all(promised <= set(r) for r in finished.records)
    assert read_json(finished.root / "summary.json") == finished.records
    assert {r["table"] for r in finished.records} == set(NAMES)


def test_means_over_seeds_agree_with_the_metrics(finished):
    raw = read_json(finished.root / "metrics/noisy/digits.json")
    values = [r["value"] for r in raw if (r["setting"], r["method"], r["metric"], r["variant"])
              == ("n20s0", "aum", "auc_pr", "")]  # fmt: skip
    (record,) = find(finished, table="table1", setting="n20s0", method="aum", metric="auc_pr", variant="")
    mean = sum(values) / 3
    assert record["mean"] == pytest.approx(mean)
    assert record["std"] == pytest.approx((sum((v - mean) ** 2 for v in values) / 2) ** 0.5)
    assert (record["n_seeds"], record["status"], record["seconds"]) == (3, "ok", pytest.approx(1.6))


def test_failed_partial_and_missing_cells_keep_their_reasons(finished):
    def fate(setting):
        return find(finished, table="table1", setting=setting, method="newcomer", metric="status")[0]

    assert (fate("n20s0")["status"], fate("n20s0")["n_seeds"]) == ("partial", 1)
    assert re.match(r"1 of 3 seeds; seed 0 failed: the loss .*; seed 2 not run: ", fate("n20s0")["reason"])
    assert fate("n40s0")["status"] == "failed" and "seeds 1, 2 not run" in fate("n40s0")["reason"]
    assert fate("n40s4")["status"] == "not run"


def test_a_table_may_have_nothing_but_gaps(finished, tmp_path):
    shutil.copytree(finished.root / "metrics", tmp_path / "metrics")
    gaps = config(tables={"t": {"kind": "noise_sets", "sets": [{"dataset": "webvision"}]}})
    (found,) = tables.build_tables(summarise(tmp_path, gaps))
    assert found.name == "t" and not [cell for block in found.blocks for row in block.rows for cell in row.cells]


def test_an_unknown_dataset_or_kind_and_missing_metrics_are_told(finished, tmp_path):
    with pytest.raises(UserError, match=r"tables.t: no noisy dataset 'digit' .*digits, webvision"):
        summarise(finished.root, config(tables={"t": {"kind": "noise_grid", "dataset": "digit"}}))
    with pytest.raises(UserError, match=r"tables.t: noisy.digits has no setting 'n99'; there are: n20s0"):
        sets = [{"dataset": "digits", "setting": "n99"}]
        summarise(finished.root, config(tables={"t": {"kind": "noise_sets", "sets": sets}}))
    with pytest.raises(UserError, match=r"tables.t.kind: 'grid' is not a kind of table"):
        summarise(finished.root, config(tables={"t": {"kind": "grid"}}))
    with pytest.raises(UserError, match=r"evaluate noisy digits first"):
        summarise(tmp_path, config())
    with pytest.raises(UserError, match="does not know the table extra; summarise again"):
        tables.write_tables(finished.root, config(tables={**config()["tables"], "extra": {"kind": "ood"}}))
    summarise(finished.root, config())
