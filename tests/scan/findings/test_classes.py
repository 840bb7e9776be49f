"""Classes confused as a whole and classes too small to judge, on made data."""

import json

import numpy as np

from sgoif.scan.findings.classes import find_class_issues
from tests.helpers.scan_folders import blobs, run


def test_confused_and_small_classes_are_found():
    labels = np.repeat([0, 1, 2, 3], [100, 100, 100, 19])
    wrong = np.zeros(len(labels))
    probabilities = np.eye(4)[labels] * 0.6 + 0.1
    wrong[:40] = 0.9  # 36% of class 0 look like class 2
    probabilities[:40, 2] = 0.5
    wrong[100:140] = 0.9  # as many of class 1, but scattered
    probabilities[100:120, 0] = probabilities[120:140, 3] = 0.5
    assert find_class_issues(labels, wrong, probabilities, list("abcd")) == [
        {"kind": "confused", "given": "a", "other": "c", "share": 0.36},
        {"kind": "small", "given": "d", "examples": 19},
    ]


def test_a_scan_reports_them(tmp_path):
    blobs(tmp_path / "images", {"large": 22, "small": 8})
    assert run("scan", tmp_path / "images", "--out", tmp_path / "out", "--epochs", 2, "--gallery", 2) == 0
    found = json.loads((tmp_path / "out" / "report.json").read_text())["class_issues"]
    assert {"kind": "small", "given": "small", "examples": 8} in found
    assert not any(f["kind"] == "small" and f["given"] == "large" for f in found)
