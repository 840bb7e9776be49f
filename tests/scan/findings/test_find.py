"""Copies and outliers in report.json, in the command's summary and on the page."""

import json
import shutil

import numpy as np
import pytest
import torch

from sgoif.scan.findings.find import find_all
from tests.helpers.scan_folders import blobs, rows, run


def test_a_scan_of_images_reports_exact_copies_and_the_page_has_them(tmp_path, capsys):
    images = blobs(tmp_path / "images", {"cat": 8, "dog": 8})
    shutil.copy(images / "cat" / "3.png", images / "dog" / "copy.png")
    assert run("scan", images, "--out", tmp_path / "out", "--epochs", 2, "--gallery", 2) == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    same = [{"path": "cat/3.png", "label": "cat"}, {"path": "dog/copy.png", "label": "dog"}]
    assert report["copies"] == {
        "exact": 1,
        "near": 0,
        "groups": [{"kind": "exact", "similarity": 1.0, "examples": same}],
    }
    assert report["outliers"] == {"beyond_chance": 0, "farthest": []} and "not_searched" not in report
    assert "findings" in report["seconds"]
    assert "Copies under several labels: 1 group of exact and 0 of near copies" in capsys.readouterr().out
    page = (tmp_path / "out" / "gallery.html").read_text()
    assert "Exact copies" in page and "dog/copy.png" in page
    decisions = tmp_path / "decisions.csv"
    decisions.write_text("path,decision,given_label,label,how\ndog/copy.png,remove,dog,dog,seen\n")
    assert run("apply", tmp_path / "out", "--decisions", decisions, "--out", tmp_path / "clean.csv") == 0
    assert len(rows(tmp_path / "clean.csv")) == 16


@pytest.fixture
def features(tmp_path):
    """300 examples of two classes; a near copy of the first has the other label, and 20 are far from all others."""
    rng = np.random.default_rng(0)
    labels = np.repeat(["cat", "dog"], 150)
    x = rng.normal(size=(300, 8)).astype(np.float32) + 3 * (labels == "dog")[:, None]
    x[299] = x[0] + 1e-3
    x[148:150] = 40
    np.savez(tmp_path / "emb.npz", features=x, labels=labels)
    return tmp_path / "emb.npz"


def test_a_scan_of_features_finds_near_copies_and_outliers(features, tmp_path, capsys):
    assert run("scan", "--features", features, "--out", tmp_path / "out", "--epochs", 2) == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [[e["label"] for e in g["examples"]] for g in report["copies"]["groups"]] == [["cat", "dog"]]
    assert report["copies"]["near"] == 1
    far = [e["path"] for e in report["outliers"]["farthest"]]
    names = {r["path"] for r in rows(tmp_path / "out" / "ranking.csv")}
    assert len(far) == 20 <= len(names) and set(far) <= names
    assert "0 groups of exact and 1 of near copies" in capsys.readouterr().out


def test_of_a_set_without_features_it_is_said_what_was_not_searched():
    logits = torch.zeros(4, 2)
    logits[2:] = 1
    found = find_all(np.array([0, 1, 0, 0]), None, logits)
    assert [c.examples for c in found.copies] == [[0, 1]] and found.outliers.examples == []
    assert found.report(list("abcd"), list("xyxx"))["not_searched"] == found.left_out != ""
    assert found.sentences()[-1].startswith("Not searched: near copies and outliers")
