"""Records as CSV and Parquet: one row a record, the columns that are documented, the same content in both."""

import csv
import re
import sys

import pytest

from sgoif.bench.evaluation.metric_record import Subject, metrics_file
from sgoif.bench.evaluation.tidy_records import COLUMNS, write_records
from sgoif.utils.files import atomic_write_json, is_intact
from sgoif.utils.paths import ROOT

CONFIG = {"run": "mini", "noisy": {"digits": {}}, "ood": {"digits_id": {}}}


@pytest.fixture
def run_dir(tmp_path):
    cell = Subject("noisy", "digits", "n20_s0", 0, "sgoif@no_gate")
    noisy = [
        Subject("noisy", "digits", "n20_s0", None, "").record("base_rate", 0.2),
        cell.record("auc_pr", 1 / 3),
        cell.record("auc_pr", 0.25, variant="influence"),
        cell.record("epoch:auc_pr", 0.5, epoch=3),
        Subject("noisy", "digits", "n20_s0", 1, "aum").record("status", status="failed", reason='Diverged: "nan", oh'),
    ]
    ood = [Subject("ood", "digits_id", "clean", 0, "msp").record("auroc:digits_near", 0.9)]
    atomic_write_json(metrics_file(tmp_path, "noisy", "digits"), noisy)
    atomic_write_json(metrics_file(tmp_path, "ood", "digits_id"), ood)
    return tmp_path


def test_one_row_a_record_with_method_variant_and_score_apart(run_dir):
    table, parquet = write_records(run_dir, CONFIG)
    with open(table, newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(COLUMNS) and len(rows) == 6
    names = ("method", "variant", "score", "seed", "epoch", "metric")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("", "", "", "", "", "base_rate"),
        ("sgoif", "no_gate", "", "0", "", "auc_pr"),
        ("sgoif", "no_gate", "influence", "0", "", "auc_pr"),
        ("sgoif", "no_gate", "", "0", "3", "epoch:auc_pr"),
        ("aum", "", "", "1", "", "status"),
        ("msp", "", "", "0", "", "auroc:digits_near"),
    ]
    assert float(rows[1]["value"]) == 1 / 3 and rows[4]["value"] == "" and rows[4]["reason"] == 'Diverged: "nan", oh'
    assert {row["run"] for row in rows} == {"mini"} and is_intact(table) and is_intact(parquet)


def test_parquet_has_the_same_rows_with_types(run_dir):
    read_table = pytest.importorskip("pyarrow.parquet").read_table
    table, parquet = write_records(run_dir, CONFIG)
    with open(table, newline="") as file:
        as_text = list(csv.DictReader(file))
    found = read_table(parquet)
    assert [str(found.schema.field(name).type) for name in ("seed", "epoch", "value")] == ["int64", "int64", "double"]
    rows = [{k: "" if v is None else str(v) for k, v in row.items()} for row in found.to_pylist()]
    assert rows == as_text


def test_without_pyarrow_the_csv_is_written_and_a_line_says_so(run_dir, monkeypatch, capsys):
    write_records(run_dir, CONFIG)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert [path.name for path in write_records(run_dir, CONFIG)] == ["records.csv"]
    assert "pyarrow is not installed" in capsys.readouterr().err
    assert not [*run_dir.glob("*records.parquet*")]  # an old one would not fit, and its seal would say it is missing


def test_the_columns_are_documented():
    page = (ROOT / "docs" / "benchmark" / "part-of-a-run.md").read_text()
    listed = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", page, re.M))
    assert {name: listed.get(name) for name in COLUMNS} == COLUMNS
