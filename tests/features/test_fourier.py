"""Random Fourier features: taken where a linear head cannot separate the classes, and left out where it can."""

import json

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

import sgoif
from sgoif.features import find, fourier
from sgoif.features.arrays import FeatureArray
from sgoif.features.fourier import FOURIER_FEATURES, FourierProjection, choose_projection, fourier_projection
from sgoif.label_noise.projection import fit_projection
from tests.helpers.scan_folders import rows, run

N = 900


@pytest.fixture(scope="module")
def rings():
    """Three classes in rings around each other, a tenth of the labels wrong: features, labels, which are wrong."""
    rng = np.random.default_rng(0)
    true = np.arange(N) % 3
    angle, radius = rng.uniform(0, 2 * np.pi, N), 1 + true + rng.normal(0, 0.12, N)
    wrong = rng.random(N) < 0.1
    labels = np.where(wrong, (true + rng.integers(1, 3, N)) % 3, true)
    return np.c_[radius * np.cos(angle), radius * np.sin(angle)].astype(np.float32), labels, wrong


@pytest.fixture(scope="module")
def clusters():
    """Three classes that a linear head separates, a tenth of the labels wrong."""
    rng = np.random.default_rng(1)
    true = np.arange(N) % 3
    labels = np.where(rng.random(N) < 0.1, (true + 1) % 3, true)
    return (rng.normal(size=(N, 8)) + 3 * np.eye(3, 8)[true]).astype(np.float32), labels


def chosen(features, labels, n_classes=3, seed=0):
    array = FeatureArray(features)
    return choose_projection(array, labels, n_classes, fit_projection(array), seed)


def test_classes_around_each_other_are_told_apart(rings, monkeypatch):
    features, labels, wrong = rings
    found = sgoif.find_label_issues(features, labels)
    assert average_precision_score(wrong, found.suspicion) > 0.95
    assert abs(found.count - wrong.sum()) < 0.15 * wrong.sum()
    monkeypatch.setattr(find, "choose_projection", lambda features, labels, n_classes, linear, seed: linear)
    assert average_precision_score(wrong, sgoif.find_label_issues(features, labels).suspicion) < 0.3


def test_where_a_linear_head_separates_the_classes_it_stays(clusters):
    assert not isinstance(chosen(*clusters), FourierProjection)


def test_labels_that_follow_from_nothing_need_no_fourier_features(clusters):
    labels = np.random.default_rng(2).integers(0, 3, N)
    assert not isinstance(chosen(clusters[0], labels), FourierProjection)


def test_the_choice_is_made_by_a_sample(rings, monkeypatch):
    features, labels, _ = rings
    fitted = []
    fit = fourier.fit_held_out_classes
    monkeypatch.setattr(fourier, "SAMPLE", 500)
    monkeypatch.setattr(fourier, "fit_held_out_classes", lambda x, *rest: fitted.append(x.shape) or fit(x, *rest))
    assert isinstance(chosen(features, labels), FourierProjection)
    assert fitted == [(500, 2), (500, 2 + FOURIER_FEATURES), (500, 2 + FOURIER_FEATURES)]


def test_a_second_width_is_tried_only_if_the_first_is_of_use(clusters, monkeypatch):
    tried = []
    draw = fourier.fourier_projection
    monkeypatch.setattr(fourier, "fourier_projection", lambda *given: tried.append(given[2]) or draw(*given))
    chosen(*clusters)
    assert tried == [1.0]


@pytest.mark.parametrize("without", ["many classes", "many features", "checked"])
def test_nothing_is_added_where_nobody_asks(without, rings, monkeypatch):
    """With many classes or checked examples no head leaves examples out; with many features none is needed."""
    features, labels, _ = rings
    monkeypatch.setattr(fourier, "fit_held_out_classes", None)  # must not be called
    if without == "many classes":
        assert chosen(features, labels, n_classes=101).width == 2
    elif without == "many features":
        noise = np.random.default_rng(3).normal(size=(N, 254)).astype(np.float32)
        assert chosen(np.c_[features, noise], labels).width == 256
    else:
        sgoif.find_label_issues(features, labels, checked=(features[:30], labels[:30]))


def test_the_kernel_is_gaussian():
    """Its width is half the median distance; the inner product of the waves is the kernel, up to the amplitude."""
    points = torch.randn(400, 3, generator=torch.Generator().manual_seed(3))
    linear = fit_projection(FeatureArray(points))
    drawn = [fourier_projection(linear, points, 0.5, seed) for seed in range(40)]
    waves = torch.cat([d(points)[:, d.basis.shape[1] :] / d.amplitude for d in drawn], 1)
    kernel = 2 * waves @ waves.T / waves.shape[1]
    distance = torch.cdist(linear(points), linear(points))
    width = 0.5 * torch.pdist(linear(points)).median()
    assert (kernel - (-0.5 * (distance / width).square()).exp()).abs().max() < 0.08


def test_mean_square_and_width_are_those_of_what_comes_out(rings):
    features = rings[0]
    found = chosen(*rings[:2])
    out = found(torch.from_numpy(features))
    assert out.shape == (N, found.width)
    assert float(out.square().sum(1).mean()) == pytest.approx(found.mean_square, rel=0.05)
    linear = fit_projection(FeatureArray(features))(torch.from_numpy(features))
    torch.testing.assert_close(out[:, :2], linear)
    assert out[:, 2:].square().mean() == pytest.approx(float(linear.square().mean()), rel=0.1)


def test_two_calls_say_the_same_and_another_seed_draws_anew(rings):
    first, again, other = (chosen(*rings[:2], seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.frequencies, again.frequencies)
    assert not torch.equal(first.frequencies, other.frequencies)


def test_a_row_far_outside_stays_drawn_in(rings):
    features, labels, wrong = rings
    features = features.copy()
    features[0] = 1e6
    with pytest.warns(UserWarning, match="row 0 lies more than 100 times"):
        found = sgoif.find_label_issues(features, labels)
    assert np.isfinite(found.suspicion).all()
    assert average_precision_score(wrong[1:], found.suspicion[1:]) > 0.95


def test_a_scan_of_features_uses_them_and_measures_distances_without_them(rings, tmp_path, capsys):
    features, labels, wrong = rings
    features = features.copy()
    features[:2] = (30, 0), (5, 5)
    features[10], features[11] = features[5], features[5]  # copies under several labels
    np.savez(tmp_path / "rings.npz", features=features, labels=labels)
    out = tmp_path / "out"
    assert run("scan", "--features", tmp_path / "rings.npz", "--out", out) == 0
    assert f"{FOURIER_FEATURES} random Fourier features are added" in capsys.readouterr().out
    found = {row["path"]: float(row["suspicion"]) for row in rows(out / "ranking.csv")}
    scores = [found[f"row/{i:03d}"] for i in range(N)]
    assert average_precision_score(wrong[12:], scores[12:]) > 0.95
    report = json.loads((out / "report.json").read_text())
    assert report["start"]["fourier_features"] == FOURIER_FEATURES
    assert report["outliers"]["farthest"][0]["path"] == "row/000"
    assert run("explain", "row/020", "--scan", out) == 0


def test_a_scan_that_needs_none_says_so_in_its_report(clusters, tmp_path, capsys):
    features, labels = clusters
    np.savez(tmp_path / "clusters.npz", features=features, labels=labels)
    assert run("scan", "--features", tmp_path / "clusters.npz", "--out", tmp_path / "out") == 0
    assert "Fourier" not in capsys.readouterr().out
    assert json.loads((tmp_path / "out" / "report.json").read_text())["start"]["fourier_features"] == 0
