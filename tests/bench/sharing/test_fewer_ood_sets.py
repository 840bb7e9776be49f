"""An OOD set that a configuration leaves out leaves the means, and nothing else."""

import pytest

from sgoif.bench.evaluation.metric_record import Subject
from sgoif.bench.evaluation.metrics import OOD_METRICS
from sgoif.bench.sharing.fewer_ood_sets import covers, fewer_ood_sets

CELL = Subject("ood", "cifar100", "clean", 0, "knn")
AUROC = {"near1": 0.8, "far1": 0.9, "far2": 0.4}


def records():
    found = [CELL.record(f"n_ood:{name}", 10.0) for name in AUROC] + [CELL.record("seconds_total", 3.0)]
    for metric in OOD_METRICS:
        found += [CELL.record(f"{metric}:{name}", value) for name, value in AUROC.items()]
        found += [CELL.record(f"{metric}:{group}", 0.65) for group in ("near", "far", "overall")]
    return [*found, CELL.record("auroc:far", 0.1, variant="other")]


def test_the_means_are_those_of_the_sets_that_are_left():
    kept = fewer_ood_sets(records(), {"near": ["near1"], "far": ["far1"]})
    values = {r["metric"]: r["value"] for r in kept}
    for metric in OOD_METRICS:
        assert values[f"{metric}:far"] == values[f"{metric}:far1"] == 0.9
        assert values[f"{metric}:overall"] == pytest.approx(0.85)
    assert not [r for r in kept if r["metric"].endswith(":far2") or r["variant"]]
    assert values["seconds_total"] == 3.0 and values["n_ood:far1"] == 10.0


def test_records_of_all_sets_stay_as_they_are():
    assert fewer_ood_sets(records(), {"near": ["near1"], "far": ["far1", "far2"]}) == records()
    failed = [CELL.record("status", status="failed", reason="diverged")]
    assert fewer_ood_sets(failed, {"near": ["near1"], "far": []}) == failed


def test_only_leaving_out_is_allowed():
    assert covers(["a", "b", "c"], ["a", "c"]) and covers(["a"], ["a"])
    assert not covers(["a", "b"], ["b", "a"]) and not covers(["a"], ["a", "b"]) and not covers(None, ["a"])


def test_the_published_far_sets_of_cifar_100_share_no_class_with_it():
    from sgoif.bench.config import load_config
    from sgoif.utils.paths import ROOT

    for name in ("ood-trained", "cifar", "paper"):
        spec = load_config(ROOT / "configs" / f"{name}.yaml", skip_missing=False)["ood"]["cifar100"]
        assert "scenes3k" not in spec["near"] + spec["far"]  # forest, mountain, sea and road are classes of CIFAR-100
