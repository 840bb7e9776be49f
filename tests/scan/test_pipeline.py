"""A scan finds planted wrong labels, writes complete files, and is the same however often it was interrupted."""

import json
import pkgutil

import numpy as np
import pytest
import torch

from sgoif.scan import pixel_cache
from sgoif.scan.ranking import COLUMNS
from sgoif.scan.train import Evidence
from tests.helpers import lost_interrupts as lost
from tests.helpers.scan_folders import blobs, digit_folder, rows, run


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """(folder of a finished scan, truth, the images' folder)."""
    root = tmp_path_factory.mktemp("scan")
    truth = digit_folder(root / "digits", n=400)
    (root / "digits" / "3" / "broken.png").write_bytes(b"not an image")
    assert run("scan", root / "digits", "--out", root / "out", "--epochs", 10, "--gallery", 30) == 0
    return root / "out", truth, root / "digits"


def test_planted_labels_are_found(finished):
    out, truth, _ = finished
    table = rows(out / "ranking.csv")
    wrong = [truth[r["path"]][1] for r in table]
    assert np.mean(wrong[:5]) == 1.0 and np.mean(wrong[:25]) >= 0.9
    flagged = [truth[r["path"]][1] for r in table if r["flagged"] == "true"]
    assert sum(flagged) >= 0.8 * sum(wrong) and np.mean(flagged) >= 0.5
    hits = [r for r in table if r["flagged"] == "true" and truth[r["path"]][1]]
    assert np.mean([r["suggested_label"] == truth[r["path"]][0] for r in hits]) >= 0.8


def test_the_ranking_has_every_example_once(finished):
    out, truth, _ = finished
    table = rows(out / "ranking.csv")
    assert tuple(table[0]) == COLUMNS
    assert sorted(r["path"] for r in table) == sorted(truth)
    assert all(r["given_label"] == r["path"].split("/")[0] for r in table)
    suspicion = [float(r["suspicion"]) for r in table]
    assert suspicion == sorted(suspicion, reverse=True) and [int(r["rank"]) for r in table] == list(
        range(1, len(table) + 1)
    )
    assert all(float(r["interval_low"]) <= float(r["score"]) <= float(r["interval_high"]) for r in table)
    assert all((r["suggested_label"] != r["given_label"]) == (r["flagged"] == "true") for r in table)


def test_parquet_is_the_same_table(finished):
    parquet = pytest.importorskip("pyarrow.parquet")
    out, _, _ = finished
    table = parquet.read_table(out / "ranking.parquet").to_pydict()
    csv = rows(out / "ranking.csv")
    assert tuple(table) == COLUMNS
    assert table["path"] == [r["path"] for r in csv]
    assert np.allclose(table["score"], [float(r["score"]) for r in csv], rtol=1e-5)
    assert table["flagged"] == [r["flagged"] == "true" for r in csv]


def test_the_report(finished):
    out, truth, _ = finished
    report = json.loads((out / "report.json").read_text())
    table = rows(out / "ranking.csv")
    assert report["examples"] == len(truth) and report["classes"] == list("0123456789")
    assert report["flagged"] == sum(r["flagged"] == "true" for r in table)
    expected = report["expected_wrong"]
    assert 0 < expected["low"] < expected["count"] < expected["high"] < len(truth)
    assert abs(expected["count"] - sum(float(r["wrong_probability"]) for r in table)) < 0.15 * expected["count"]
    assert sum(c["flagged"] for c in report["by_class"].values()) == report["flagged"]
    assert (
        report["settings"]["epochs"] == 10 and report["settings"]["size"] == 8 and report["settings"]["channels"] == 1
    )
    assert torch.__version__.startswith(report["versions"]["torch"]) and report["seconds"]["train"] > 0
    assert rows(out / "left_out.csv") == [{"path": "3/broken.png", "why": "not an image"}]
    assert not (out / "state").exists()


def test_again_has_nothing_to_do_and_other_settings_are_refused(finished, capsys):
    out, _, images = finished
    before = (out / "ranking.csv").stat().st_mtime_ns
    assert run("scan", images, "--out", out, "--epochs", 10, "--gallery", 30) == 0
    assert "nothing to do" in capsys.readouterr().out and (out / "ranking.csv").stat().st_mtime_ns == before
    assert run("scan", images, "--out", out, "--epochs", 9, "--gallery", 30) == 2
    assert "other settings (epochs 10 -> 9)" in capsys.readouterr().err


def test_an_interrupted_scan_ends_with_the_same_bytes(tmp_path, monkeypatch, capsys):
    """Interrupted while decoding, in the third epoch and in the seventh; state is saved after every epoch."""
    monkeypatch.setattr(pixel_cache, "BLOCK", 16)
    monkeypatch.setattr("sgoif.training.session.time.perf_counter", ticking())
    folder = blobs(tmp_path / "images", {"a": 30, "b": 30, "c": 30}, size=12)
    words = ("scan", folder, "--epochs", 8, "--gallery", 9)
    assert run(*words, "--out", tmp_path / "whole") == 0

    square, add, count = pixel_cache.decode_square, Evidence.add, {"n": 0}

    def interrupted(function, at):
        def wrapped(*args):
            count["n"] += 1
            if count["n"] == at:
                raise KeyboardInterrupt
            return function(*args)

        return wrapped

    again = (*words, "--out", tmp_path / "parts")
    for target, name, function, at in (
        (pixel_cache, "decode_square", square, 50),
        *((Evidence, "add", add, n) for n in (30, 50)),
    ):
        count["n"] = 0
        with monkeypatch.context() as m:
            m.setattr(target, name, interrupted(function, at))
            assert run(*again) == 130
        assert "the same command goes on" in capsys.readouterr().err
    assert run(*again) == 0
    told = capsys.readouterr()
    assert "Going on" in told.out and "resumed after epoch" in told.err
    for name in ("ranking.csv", "explain.npz", "network.safetensors", "gallery.html"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes(), name


@pytest.mark.parametrize(
    ("stage", "lose", "decoded", "steps"),
    [
        ("pretrained.choice.choose_settings", lost.unraisable, False, 0),
        ("pixel_cache.save_npz", lost.dropped, True, 0),
        ("train.build_network", lost.dropped, True, 0),
        ("train.build_network", lost.unraisable, True, 0),
        ("train.build_network", lost.another_error, True, 0),
        ("report.write_parquet", lost.dropped, True, 4),
    ],
)
def test_a_lost_interrupt_ends_the_scan_at_the_next_step(tmp_path, monkeypatch, capsys, stage, lose, decoded, steps):
    """Whatever became of Ctrl-C: no step more, the usual words, nothing is called finished, and it can go on."""
    folder, out, done = blobs(tmp_path / "images", {"a": 9, "b": 9}), tmp_path / "out", []
    words = ("scan", folder, "--out", out, "--epochs", 2)
    real, add = pkgutil.resolve_name(f"sgoif.scan.{stage}"), Evidence.add
    monkeypatch.setattr(Evidence, "add", lambda *args: (done.append(1), add(*args)))
    with monkeypatch.context() as m:
        m.setattr(f"sgoif.scan.{stage}", lambda *args, **kw: (lose(), real(*args, **kw))[1])
        assert run(*words) == 130
    told = capsys.readouterr().err
    assert told.endswith("\ninterrupted; the same command goes on from here\n") and "Traceback" not in told
    assert (out / "state" / "decoded.npz").exists() == decoded
    assert len(done) == steps and not (out / "report.json").exists()
    assert run(*words) == 0 and (out / "report.json").is_file()


def ticking():
    """A clock that runs a minute per look, so that every epoch is due for saving."""
    now = [0.0]

    def look():
        now[0] += 60
        return now[0]

    return look


def test_the_reasons_add_up_to_the_score(tmp_path):
    """Evidence: sum over anchors of their parts = the score, for every example."""
    from sgoif.scan.settings import choose_settings
    from sgoif.scan.train import train_and_score
    from sgoif.training.images import ImageSet
    from sgoif.training.session import Session
    from tests.helpers.digit_tasks import digits

    x, y = digits()
    settings = choose_settings(300, 8, True, "cpu", {"epochs": 6, "width": 4})
    trained = train_and_score(ImageSet(x[:300], (0.3,), (0.37,)), y[:300], 10, settings, Session(None, "", 0))
    score = trained.result.score.numpy()
    assert np.abs(score).max() > 0
    assert np.allclose(trained.anchors.sum(1), score, rtol=1e-3, atol=1e-4 * np.abs(score).max())
    assert np.allclose(trained.result.mean_predictions.numpy().sum(1), 1, atol=1e-4)


@pytest.mark.parametrize("model", ["resnet18", "vit_tiny_patch16_224"])
def test_timm_models_by_name(tmp_path, model):
    folder = blobs(tmp_path / "images", {"a": 12, "b": 12})
    words = ("--model", model, "--epochs", 2, "--batch-size", 12, "--gallery", 3)
    assert run("scan", folder, "--out", tmp_path / "out", *words) == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["settings"]["model"] == model and report["settings"]["size"] == 32
