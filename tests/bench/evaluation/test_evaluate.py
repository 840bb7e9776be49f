"""Evaluation of hand-written cells: right values, honest costs, and refusal of what does not fit together."""

import json

import numpy as np
import pytest

from sgoif.bench.data.noisy_labels import setting_files
from sgoif.bench.evaluation import metrics
from sgoif.bench.evaluation.evaluate import evaluate
from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_json, load_npz, read_json, save_npz
from tests.helpers.fake_runs import GRID, HELD_OUT, N, Run, config

ONE = {"n20s0": GRID["n20s0"]}


def small(**changes) -> dict:
    """One setting, two seeds, the methods a test names."""
    entry = {"title": "digits", "settings": ONE, "seeds": [0, 1], "methods": ["aum"], **changes}
    return config(noisy={"digits": entry})


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


@pytest.fixture
def noisy(run):
    run.wrong, run.ids = run.truth("digits", "n20s0", 0.2)
    run.test_labels("digits")
    return run


def scores(run, **more):
    return {"scores": run.rng.normal(size=N) + run.wrong, "ids": run.ids, **more}


def value(records, metric, seed=0, method="aum", variant=""):
    found = [
        r for r in records if (r["metric"], r["seed"], r["method"], r["variant"]) == (metric, seed, method, variant)
    ]
    assert len(found) == 1, f"{metric}: {len(found)} records"
    return found[0]


def evaluated(run, cfg, task="noisy", dataset="digits"):
    return evaluate(run.root, run.data, task, dataset, cfg)


def test_values_are_those_of_the_metrics_and_the_file_is_what_is_returned(noisy):
    arrays = scores(noisy, **{"variant:early": noisy.rng.normal(size=N), "remove": np.arange(N) < 80})
    for seed in (0, 1):
        noisy.cell("noisy", "digits", "n20s0", seed, "aum", arrays)
    records = evaluated(noisy, small())
    expected = metrics.detection(arrays["scores"], noisy.wrong)
    assert {m: value(records, m)["value"] for m in expected} == pytest.approx(expected)
    early = metrics.detection(arrays["variant:early"], noisy.wrong)
    assert value(records, "auroc", variant="early")["value"] == pytest.approx(early["auroc"])
    assert value(records, "removal_recall")["value"] == pytest.approx(noisy.wrong[:80].sum() / noisy.wrong.sum())
    assert value(records, "base_rate", 0, "")["value"] == pytest.approx(noisy.wrong.mean())
    assert not [r for r in records if r["metric"].startswith("same_")]
    assert read_json(noisy.root / "metrics/noisy/digits.json") == records
    keys = {"task", "dataset", "setting", "seed", "method", "variant", "metric", "value", "status", "reason", "epoch"}
    assert all(set(r) == keys for r in records)


def test_a_seed_is_judged_by_its_own_draw_of_the_noise(noisy):
    other = np.roll(noisy.wrong, 7)
    truth = setting_files(noisy.root, "digits", "n20s0", 1).truth
    save_npz(truth, **{**load_npz(truth), "wrong": other | (np.arange(N) < 100)})
    for seed in (0, 1):
        noisy.cell("noisy", "digits", "n20s0", seed, "aum", scores(noisy))
    records = evaluated(noisy, small())
    assert value(records, "base_rate", 0, "")["value"] == noisy.wrong.mean()
    assert value(records, "base_rate", 1, "")["value"] == (other | (np.arange(N) < 100)).mean()
    assert value(records, "auroc", 0)["value"] > 0.7 > value(records, "auroc", 1)["value"]


def test_labels_that_nobody_draws_are_told_of_once(noisy):
    for seed in (0, 1):
        noisy.cell("noisy", "digits", "n20s0", seed, "aum", scores(noisy))
    setting_files(noisy.root, "digits", "n20s0", 1).truth.unlink()
    records = evaluated(noisy, small(settings={"n20s0": {"kind": "human", "column": "worse_label"}}))
    assert [r["seed"] for r in records if r["metric"] == "base_rate"] == [None]
    assert value(records, "auroc", 1)["value"] > 0.7


def test_images_that_were_set_aside_do_not_count(noisy):
    labels = noisy.test_labels("digits")
    said = np.where(np.arange(len(labels)) < HELD_OUT, labels, (labels + 1) % 4)  # right on these alone
    noisy.cell("noisy", "digits", "n20s0", 0, "aum", scores(noisy, test_logits=np.eye(4)[said]))
    assert value(evaluated(noisy, small(seeds=[0])), "test_accuracy")["value"] == 0

    right = np.zeros(len(labels))
    right[:HELD_OUT] = 100  # would ruin the AUROC
    arrays = {"id_test": right, "ood:a": np.ones(10), "id_logits": np.eye(4)[labels]}
    noisy.cell("ood", "digits", "clean", 0, "aum", arrays)
    cfg = config(ood={"digits": {"near": ["a"], "far": [], "seeds": [0], "methods": ["aum"]}})
    records = evaluated(noisy, cfg, "ood")
    assert value(records, "auroc:near")["value"] == 1
    assert value(records, "n_id")["value"] == len(labels) - HELD_OUT


def test_other_examples_or_another_order_are_refused(noisy):
    for ids in (noisy.ids[::-1], noisy.ids[:-1], None):
        arrays = {k: v for k, v in scores(noisy, ids=ids).items() if v is not None}
        noisy.cell("noisy", "digits", "n20s0", 0, "aum", arrays)
        with pytest.raises(UserError, match="ids"):
            evaluated(noisy, small())


def test_a_damaged_file_is_named_with_the_cure(noisy):
    folder = noisy.cell("noisy", "digits", "n20s0", 0, "aum", scores(noisy))
    good = (folder / "arrays.npz").read_bytes()
    for damage in (good[:-7], good[:200] + b"X" + good[201:]):
        (folder / "arrays.npz").write_bytes(damage)
        with pytest.raises(UserError, match=r"seed0/aum: arrays.npz .*Delete this folder and .*aum/0.json"):
            evaluated(noisy, small())
    (folder / "arrays.npz").write_bytes(good)
    evaluated(noisy, small())
    (folder / "arrays.npz").unlink()
    with pytest.raises(UserError, match=r"arrays.npz is missing.*Delete"):
        evaluated(noisy, small())
    (folder / "result.json").write_text("{")
    with pytest.raises(UserError, match=r"result.json is damaged.*Delete"):
        evaluated(noisy, small())


def test_a_result_that_its_batch_does_not_speak_of_is_refused_unless_a_newer_batch_does(noisy):
    folder = noisy.cell("noisy", "digits", "n20s0", 0, "aum", scores(noisy), key="old")
    result = read_json(folder / "result.json")
    atomic_write_json(folder / "result.json", {**result, "key": "new"})
    with pytest.raises(UserError, match="is not the one its batch file speaks of"):
        evaluated(noisy, small())
    noisy.cell("noisy", "digits", "n20s0", 0, "aum", scores(noisy), key="new", batch="1")
    assert value(evaluated(noisy, small(seeds=[0])), "auroc")["status"] == "ok"


def test_failed_missing_and_unrankable_cells_become_records_with_a_reason(noisy):
    noisy.cell("noisy", "digits", "n20s0", 0, "aum", status="failed", reason="Diverged: NaN in epoch 3")
    bad = scores(noisy)
    bad["scores"][5] = np.nan
    noisy.cell("noisy", "digits", "n20s0", 0, "loss", bad)
    records = evaluated(noisy, small(methods=["aum", "loss"]))
    assert value(records, "status")["reason"] == "Diverged: NaN in epoch 3"
    assert value(records, "status")["status"] == "failed"
    assert value(records, "status", seed=1)["status"] == "not run" and value(records, "status", seed=1)["reason"]
    assert value(records, "status", method="loss")["status"] == "failed"
    assert "1 of 400 values are NaN" in value(records, "status", method="loss")["reason"]


def test_overheads_count_shared_runs_once_as_marginal_and_once_as_standalone(noisy):
    noisy.cell("noisy", "digits", "n20s0", 0, "plain", {"test_logits": noisy.logits("digits", 1)},
               seconds={"train": 2.0, "record": 0.5, "compile": 30.0},
               network_passes={"train": 100, "record": 7}, peak_memory_mb=200)  # fmt: skip
    noisy.cell("noisy", "digits", "n20s0", 0, "folds", {"ids": noisy.ids}, seconds={"train": 6.0},
               network_passes={"train": 300})  # fmt: skip
    noisy.cell("noisy", "digits", "n20s0", 0, "aum", scores(noisy),
               seconds={"score": 0.5, "retrain": 3.0, "compile": 9.0},
               cpu_seconds={"score": 0.6, "retrain": 9.0}, shared=["plain", "folds"],
               network_passes={"score": 50, "retrain": 90}, extras={"coverage": 0.7})  # fmt: skip
    noisy.cell("noisy", "digits", "n20s0", 0, "mixup", scores(noisy), seconds={"train": 3.0, "score": 1.0})
    records = evaluated(noisy, small(methods=["aum", "mixup"], seeds=[0]))

    def cost(metric, method="aum"):
        return value(records, metric, method=method)["value"]

    assert cost("overhead_marginal") == pytest.approx(0.5 / 2)
    assert cost("overhead_standalone") == pytest.approx((0.5 + 2.5 + 6) / 2)
    assert cost("overhead_cleaned") == pytest.approx((0.5 + 2.5 + 6 + 3) / 2)
    assert cost("overhead_passes") == pytest.approx((50 + 107 + 300) / 100)
    assert cost("overhead_memory") == pytest.approx(300 / 200)
    assert (
        cost("seconds_total") == pytest.approx(12.5)
        and cost("seconds_compile") == 9
        and cost("cpu_seconds_total") == pytest.approx(9.6)
    )
    assert cost("overhead_cpu") == pytest.approx((0.6 + 4 + 4) / 4)
    assert cost("extra:coverage") == 0.7
    assert cost("overhead_marginal", "mixup") == cost("overhead_standalone", "mixup") == pytest.approx(2)
    assert cost("overhead_marginal", "plain") == cost("overhead_standalone", "plain") == 1


def test_seconds_of_jobs_that_shared_a_gpu_are_not_compared(noisy):
    noisy.cell("noisy", "digits", "n20s0", 0, "plain", {"test_logits": noisy.logits("digits", 1)},
               seconds={"train": 2.0}, cpu_seconds={"train": 2.0}, network_passes={"train": 100})  # fmt: skip
    noisy.cell("noisy", "digits", "n20s0", 0, "aum", scores(noisy), seconds={"score": 1.0, "retrain": 3.0},
               cpu_seconds={"score": 1.0}, network_passes={"score": 50}, shared_gpu=True)  # fmt: skip
    records = evaluated(noisy, small(seeds=[0]))
    for metric in ("overhead_marginal", "overhead_standalone"):
        record = value(records, metric)
        assert record["value"] is None and record["status"] == "undefined" and "shared the GPU" in record["reason"]
    for metric in ("overhead_cleaned", "overhead_cpu"):  # a process that waits for the GPU is busy
        assert "aum" not in {r["method"] for r in records if r["metric"] == metric}
    assert value(records, "overhead_passes")["value"] == pytest.approx(0.5)
    assert value(records, "overhead_marginal", method="plain")["value"] == 1


def test_a_cell_that_watched_a_training_with_others_has_passes_and_no_seconds(noisy):
    noisy.cell("noisy", "digits", "n20s0", 0, "plain", {"test_logits": noisy.logits("digits", 1)},
               seconds={"train": 2.0}, cpu_seconds={"train": 2.0}, network_passes={"train": 100})  # fmt: skip
    noisy.cell("noisy", "digits", "n20s0", 0, "aum", scores(noisy), network_passes={"train": 101},
               seconds={}, cpu_seconds={}, peak_memory_mb=None)  # fmt: skip
    records = evaluated(noisy, small(seeds=[0]))
    record = value(records, "overhead_standalone")
    assert record["status"] == "undefined" and "watched one training" in record["reason"]
    given = {r["metric"] for r in records if r["method"] == "aum"}
    assert not [m for m in given if m.startswith(("seconds", "cpu_seconds", "peak_memory", "overhead_cpu"))]
    assert value(records, "overhead_passes")["value"] == pytest.approx(1.01)


def test_without_a_plain_run_the_overhead_says_why(noisy):
    noisy.cell("noisy", "digits", "n20s0", 0, "aum", scores(noisy))
    record = value(evaluated(noisy, small(seeds=[0])), "overhead_marginal")
    assert record["value"] is None and record["status"] == "not run" and "no plain run" in record["reason"]


def test_settings_of_an_older_configuration_and_methods_no_longer_asked_for_are_ignored(noisy):
    noisy.truth("digits", "gone", 0.3)
    noisy.cell("noisy", "digits", "n20s0", 0, "aum", scores(noisy))
    noisy.cell("noisy", "digits", "gone", 0, "aum", scores(noisy))
    noisy.cell("noisy", "digits", "n20s0", 0, "loss", scores(noisy))
    records = evaluated(noisy, small(seeds=[0]))
    assert {r["setting"] for r in records} == {"n20s0"} and {r["method"] for r in records} == {"", "aum"}


def test_tuning_settings_are_evaluated_apart(noisy):
    entry = {"tuning": {"tune": {"kind": "symmetric", "rate": 0.3}}, "tuning_methods": ["loss"], "tuning_seeds": [7]}
    noisy.truth("digits", "tune", 0.3)
    noisy.cell("tuning", "digits", "tune", 7, "loss", scores(noisy))
    records = evaluated(noisy, small(**entry), "tuning")
    assert {(r["task"], r["setting"]) for r in records} == {("tuning", "tune")}
    assert value(records, "auroc", 7, "loss")["status"] == "ok"
    assert (noisy.root / "metrics/tuning/digits.json").is_file()


def test_ood_sets_and_their_means(run):
    run.fill_ood()
    records = evaluate(run.root, run.data, "ood", "digits7", config())
    arrays = load_npz(run.root / "cells/ood/digits7/clean/seed0/knn/arrays.npz")
    inside = arrays["id_test"][HELD_OUT:]
    per_set = [metrics.ood(inside, arrays[f"ood:{s}"]) for s in ("digits789", "photos", "noise")]
    for metric in metrics.OOD_METRICS:
        single = [p[metric] for p in per_set]
        assert value(records, f"{metric}:photos", 0, "knn")["value"] == pytest.approx(single[1])
        assert value(records, f"{metric}:near", 0, "knn")["value"] == pytest.approx(single[0])
        assert value(records, f"{metric}:far", 0, "knn")["value"] == pytest.approx(np.mean(single[1:]))
        assert value(records, f"{metric}:overall", 0, "knn")["value"] == pytest.approx(np.mean(single))
    # post-hoc: 0.3 s of fitting over 4 s of training, the shared run (5 s) counted when it stands alone
    assert value(records, "overhead_marginal", 0, "knn")["value"] == pytest.approx(0.3 / 4)
    assert value(records, "overhead_standalone", 0, "knn")["value"] == pytest.approx(5.3 / 4)
    assert value(records, "overhead_standalone", 0, "udg")["value"] == pytest.approx(6 / 4)
    assert value(records, "status", 1, "cutpaste")["reason"].startswith("ran past its time")


def test_ood_scores_that_do_not_rank_have_their_own_means(run):
    """`kinship` of the stand-in run is the ranking score in reverse, on the same images; held-out ones are left out."""
    run.fill_ood()
    records = evaluate(run.root, run.data, "ood", "digits7", config())
    found = {
        r["metric"]: r["value"] for r in records if (r["seed"], r["method"], r["variant"]) == (0, "sgoif", "kinship")
    }
    assert set(found) == {f"{metric}:{group}" for metric in ("auroc", "fpr95") for group in ("near", "far", "overall")}
    for group in ("near", "far", "overall"):
        assert found[f"auroc:{group}"] == pytest.approx(1 - value(records, f"auroc:{group}", 0, "sgoif")["value"])
    assert [r["variant"] for r in records if r["method"] == "msp" and r["variant"]] == []


def test_a_missing_ood_set_is_the_methods_failure(run):
    run.test_labels("digits7")
    arrays = {"id_test": np.zeros(66), "ood:photos": np.ones(4)}
    run.cell("ood", "digits7", "clean", 0, "knn", arrays)
    records = evaluate(run.root, run.data, "ood", "digits7", config())
    assert value(records, "status", 0, "knn")["reason"] == "no scores for the OOD set digits789"


def test_labels_that_are_all_right_have_no_detection_but_an_accuracy(noisy):
    save_npz(
        noisy.root / "truth/digits/n20s0.npz", wrong=np.zeros(N, bool), true_labels=np.zeros(N, int), ids=noisy.ids
    )
    noisy.cell("noisy", "digits", "n20s0", 0, "aum", scores(noisy, test_logits=noisy.logits("digits", 1)))
    records = evaluated(noisy, small(seeds=[0]))
    assert value(records, "test_accuracy")["value"] == 1
    found = value(records, "auc_pr")
    assert (
        found["value"] is None and found["status"] == "undefined" and "none of these labels is wrong" in found["reason"]
    )


def test_the_records_are_json_without_nan(noisy):
    arrays = scores(noisy, epoch_scores=np.ones((2, N)))  # no order, hence no tau
    noisy.cell("noisy", "digits", "n20s0", 0, "aum", arrays)
    records = evaluated(noisy, small(seeds=[0]))
    assert value(records, "tau_top1")["value"] is None and value(records, "tau_top1")["status"] == "undefined"
    json.dumps(records, allow_nan=False)


def test_scores_by_epoch_become_curves_of_precision_and_stability(noisy):
    by_epoch = noisy.rng.normal(size=(3, N)) + np.outer([0, 1, 2], noisy.wrong)
    by_epoch[0] = 1.0  # no order, hence no tau with the next epoch
    noisy.cell("noisy", "digits", "n20s0", 0, "aum", scores(noisy, epoch_scores=by_epoch))
    records = [r for r in evaluated(noisy, small(seeds=[0])) if r["epoch"] is not None]
    curves = {m: {r["epoch"]: r["value"] for r in records if r["metric"] == m} for m in {r["metric"] for r in records}}
    assert set(curves) == {"epoch:auc_pr", "epoch:tau_top1"} and list(curves["epoch:tau_top1"]) == [2]
    stored = by_epoch.astype(np.float64)
    assert curves["epoch:auc_pr"] == {
        e: pytest.approx(metrics.detection(stored[e], noisy.wrong)["auc_pr"]) for e in range(3)
    }
    assert curves["epoch:tau_top1"][2] == pytest.approx(metrics.top_tau(stored))


def test_a_missing_cell_says_whether_it_was_asked_for(noisy):
    noisy.cell("noisy", "digits", "n20s0", 0, "aum", scores(noisy))
    cfg = small()
    cfg["noisy"]["digits"]["restrict"] = {"aum": {"seeds": [0, 1], "reason": "costly"}}
    assert "run the workflow again" in value(evaluated(noisy, cfg), "status", 1)["reason"]
    cfg["noisy"]["digits"]["restrict"] = {"aum": {"seeds": [0], "reason": "costly"}}
    assert value(evaluated(noisy, cfg), "status", 1)["reason"] == "costly"
