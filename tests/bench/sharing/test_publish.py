"""Publishing a run: what comes along, what does not, and what is said of its origin."""

import json
from types import SimpleNamespace

import pytest

from sgoif.bench.evaluation.summary_record import read_published_summary
from sgoif.bench.sharing.publish import compact, publish
from sgoif.errors import UserError
from sgoif.utils.packed_json import read_packed_json

LEDGER = {"cells": [{"measured": 1.5, "also": []}, {"measured": None, "also": []}]}


def test_tables_figures_summary_and_provenance_come_along_and_nothing_else(tmp_path, monkeypatch):
    page = lambda run_dir, config, linked: f"page of {config['run']}, {'linked' if linked else 'whole'}"  # noqa: E731
    monkeypatch.setattr("sgoif.bench.sharing.publish.report_page", page)
    run = tmp_path / "mini"
    files = {"tables/table1.md": "table", "tables/table1.tex": "tex", "figures/a.png": "png", "ledger.md": "l"}
    files |= {"tables/earlier.md": "of an earlier configuration", "figures/earlier.png": "png"}
    monkeypatch.setattr("sgoif.bench.figures.drawn", lambda run_dir, config: [SimpleNamespace(name="a")])
    for name, text in {**files, "ledger.json": json.dumps(LEDGER), "report.html": "page"}.items():
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text(text)
    (run / "summary.json").write_text(
        json.dumps([{"metric": "auc_pr", "mean": 0.5, "values": [0.4, 0.6], "reason": ""}])
    )
    cell = run / "cells/noisy/digits/n20/seed0/loss"
    cell.mkdir(parents=True)
    result = {
        "commit": "abc",
        "created": "2026-01-02T03:04:05",
        "hardware": {"cpus": 2},
        "versions": {"torch": "2.10.0"},
    }
    (cell / "result.json").write_text(json.dumps(result))
    (cell / "arrays.npz").write_bytes(b"scores")
    target = publish(run, tmp_path / "published", {"run": "mini", "tables": {"table1": {}}})
    assert sorted(p.name for p in target.iterdir()) == [
        "a.png", "ledger.json.gz", "ledger.md", "provenance.json", "report.html", "summary.json.gz", "table1.md",
    ]  # fmt: skip
    origin = json.loads((target / "provenance.json").read_text())
    assert (origin["commit"], origin["date"], origin["cells"]) == (["abc"], ["2026-01-02"], 1)
    assert read_published_summary(target / "summary.json.gz") == [{"metric": "auc_pr", "mean": 0.5}]
    assert read_packed_json(target / "ledger.json.gz", "publish") == LEDGER
    assert (target / "report.html").read_text() == "page of mini, linked"


def test_a_ledger_without_a_measurement_stays_behind(tmp_path):
    for name, found in (("summary", []), ("ledger", {"cells": LEDGER["cells"][1:]})):
        (tmp_path / f"{name}.json").write_text(json.dumps(found))
    (tmp_path / "ledger.md").write_text("803 numbers that were not measured")
    target = publish(tmp_path, tmp_path / "published", {"run": "mini", "tables": {}, "noisy": {}, "ood": {}})
    assert sorted(p.name for p in target.iterdir()) == ["provenance.json", "summary.json.gz"]


def test_an_unfinished_run_is_not_published(tmp_path):
    with pytest.raises(UserError, match="make tables"):
        publish(tmp_path, tmp_path / "published", {"run": "mini"})


def test_compact_keeps_every_record_and_five_digits():
    records = [{"metric": "a", "mean": 1.23456789, "n_seeds": 2}, {"metric": "b", "mean": None, "status": "failed"}]
    kept = [{"metric": "a", "mean": 1.2346, "n_seeds": 2}, {"metric": "b", "status": "failed"}]
    assert json.loads(compact(records)) == kept
