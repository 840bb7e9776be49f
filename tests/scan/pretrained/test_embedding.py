"""A scan of photographs with a real pretrained network: what it says, finds, keeps, resumes and refuses."""

import json

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import load_file
from sklearn.metrics import average_precision_score

from sgoif.scan.pretrained import embedding
from sgoif.scan.pretrained.embedding import Embedder
from tests.helpers.scan_folders import rows, run

WRONG = 3  # flowers that lie with the others
WORDS = ("--size", 64, "--gallery", 3)


def photographs(root, each=24):
    """Crops of scikit-learn's two photographs, ROOT/{china,flower}/<number>.png; some flowers lie with the others."""
    from sklearn.datasets import load_sample_image

    rng = np.random.default_rng(0)
    for name in ("china", "flower"):
        picture = load_sample_image(f"{name}.jpg")
        (root / name).mkdir(parents=True)
        for i in range(each + WRONG * (name == "flower")):
            top, left = rng.integers(0, 230), rng.integers(100, 350)
            where = root / ("china" if i < WRONG else name)
            Image.fromarray(picture[top : top + 180, left : left + 240]).save(where / f"{name}-{i}.png")
    (root / "china" / "broken.png").write_bytes((root / "china" / "china-0.png").read_bytes()[:20_000])
    return root


@pytest.fixture(scope="module")
def scanned(tmp_path_factory):
    """(folder of a finished scan, folder of the photographs, cache); what was printed is in `said`."""
    root = tmp_path_factory.mktemp("photographs")
    with pytest.MonkeyPatch.context() as m:
        m.setenv("XDG_CACHE_HOME", str(root / "cache"))
        folder = photographs(root / "images")
        assert run("scan", folder, "--out", root / "out", *WORDS) == 0
        yield root / "out", folder


def test_the_wrong_label_comes_first_and_the_report_says_why(scanned):
    out, _ = scanned
    table = rows(out / "ranking.csv")
    first = [(row["path"], row["suggested_label"]) for row in table[:WRONG]]
    assert len(table) == 51 and sorted(first) == [(f"china/flower-{i}.png", "flower") for i in range(WRONG)]
    report = json.loads((out / "report.json").read_text())
    start = report["start"]
    assert start["method"] == report["settings"]["method"] == "embed" and start["model"] == "tf_efficientnet_lite0"
    assert "shorter side 180 pixels, more than 64" in start["why"]
    assert start["weights"]["sha256"].startswith(report["settings"]["weights"]) and report["settings"]["weights"]
    assert report["seconds"]["embed"] > 0 and not (out / "state").exists()
    assert [row["path"] for row in rows(out / "left_out.csv")] == ["china/broken.png"]


def test_no_image_is_embedded_twice(scanned, tmp_path, monkeypatch, capsys):
    """Neither under another name nor with another label; what is new is."""
    _, folder = scanned
    for label, name in (("a", "china-1"), ("b", "flower-1")):
        (tmp_path / "moved" / label).mkdir(parents=True)
        for i in range(WRONG, WRONG + 6):
            source = folder / name[:-2] / f"{name[:-1]}{i}.png"
            (tmp_path / "moved" / label / f"{i} ünd.png").write_bytes(source.read_bytes())
    new = Image.new("RGB", (120, 130), "red")
    new.save(tmp_path / "moved" / "a" / "new.png")
    seen, forward = [], Embedder._forward
    monkeypatch.setattr(Embedder, "_forward", lambda self, pixels: (seen.append(len(pixels)), forward(self, pixels))[1])
    assert run("scan", tmp_path / "moved", "--out", tmp_path / "out", *WORDS) == 0
    said = capsys.readouterr().out
    assert seen == [1] and said.count("because the images are photographs by their size") == 1


def test_a_killed_embedding_goes_on_with_the_next_block_and_ends_with_the_same_bytes(scanned, tmp_path, monkeypatch):
    _, folder = scanned
    monkeypatch.setattr(embedding, "BLOCK", 20)
    seen, forward = [], Embedder._forward

    def interrupted(self, pixels):
        seen.append(len(pixels))
        if len(seen) == 2:
            raise KeyboardInterrupt
        return forward(self, pixels)

    monkeypatch.setattr(Embedder, "_forward", interrupted)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "parts"))
    words = ("scan", folder, *WORDS, "--out")
    assert run(*words, tmp_path / "out") == 130 and seen == [19, 20]  # a broken file is in the first block
    assert run(*words, tmp_path / "out") == 0 and seen[2:] == [20, 12], "the first block is in the cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "whole"))
    assert run(*words, tmp_path / "again") == 0 and seen[4:] == [19, 20, 12]
    for name in ("ranking.csv", "explain.npz", "network.safetensors", "gallery.html"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name


def test_explain_embeds_a_file(scanned, tmp_path, capsys):
    """The probabilities are those of the ranking: the saved network gives the features that the head was trained on."""
    from sgoif.scan.explain import explain

    out, folder = scanned
    (folder / "flower" / "flower-3.png").rename(tmp_path / "elsewhere.png")
    try:
        found = explain(str(tmp_path / "elsewhere.png"), out)
    finally:
        (tmp_path / "elsewhere.png").rename(folder / "flower" / "flower-3.png")
    with np.load(out / "explain.npz") as state:
        i = state["names"].tolist().index("flower/flower-3.png")
        logits = state["logits"][i]
    expected = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    assert found.classes[found.label] == "flower" and np.allclose(found.probabilities, expected, atol=0.01)


def test_the_cache_that_cannot_be_written_is_named(scanned, tmp_path, monkeypatch, capsys):
    _, folder = scanned
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(Embedder, "_forward", lambda self, pixels: pixels.reshape(len(pixels), -1)[:, :1280] / 255)
    assert run("scan", folder, "--out", tmp_path / "out", *WORDS) == 0
    assert "cannot be written (Not a directory)" in capsys.readouterr().err


def test_options_that_do_not_fit_are_refused(scanned, tmp_path, capsys):
    _, folder = scanned
    for words, message in (
        (("--shift", 2), "--shift is for a network that is trained; add --finetune or --from-scratch"),
        (("--no-flip",), "--flip is for a network that is trained"),
        (("--size", 3), "--size 3: must be at least 4"),
        (("--weights", tmp_path / "none.pth"), "no such file"),
        (("--weights", folder / "flower" / "flower-9.png"), "cannot be read as weights"),
        (("--model", "vit_tiny_patch16_224", "--finetune"), "the weights of vit_tiny_patch16_224 are not here"),
    ):
        assert run("scan", folder, "--out", tmp_path / "out", *words) == 2, words
        said = capsys.readouterr().err
        assert message in said and said.count("error: ") == 1, (words, said)
        assert not (tmp_path / "out").exists()


def test_finetuning_starts_from_the_weights(scanned, tmp_path, capsys):
    """At a rate of almost nothing they are what is left of it."""
    _, folder = scanned
    torch.manual_seed(0)
    state = timm.create_model("test_resnet").state_dict()
    torch.save(state, tmp_path / "w.pth")
    words = ("--model", "test_resnet", "--weights", tmp_path / "w.pth", "--finetune", "--lr", 1e-12, "--epochs", 2)
    assert run("scan", folder, "--out", tmp_path / "out", *words, "--size", 32, "--gallery", 3) == 0
    assert "Fine-tuning pretrained test_resnet (weights: " in capsys.readouterr().out
    start = json.loads((tmp_path / "out" / "report.json").read_text())["start"]
    assert start["method"] == "network" and start["why"] == "--finetune asks for it"
    found = load_file(tmp_path / "out" / "network.safetensors")
    assert torch.allclose(found["backbone.model.conv1.0.weight"], state["conv1.0.weight"], atol=1e-6)


def test_checked_photographs_are_the_anchors(scanned, tmp_path, capsys):
    """Most of what is called china are flowers, so the labels alone cannot tell which of them is meant."""
    _, folder = scanned
    images, checked = tmp_path / "images", tmp_path / "checked"
    for label, name, numbers in (
        ("china", "china", range(WRONG, 9)),
        ("china", "flower", range(WRONG, 15)),
        ("flower", "flower", range(15, 20)),
    ):
        (images / label).mkdir(parents=True, exist_ok=True)
        for i in numbers:
            (images / label / f"{name}-{i}.png").write_bytes((folder / name / f"{name}-{i}.png").read_bytes())
    for name in ("china", "flower"):
        (checked / name).mkdir(parents=True)
        for i in range(20, 24):
            (checked / name / f"{i}.png").write_bytes((folder / name / f"{name}-{i}.png").read_bytes())
    found = {}
    for how, words in (("plain", ()), ("anchored", ("--checked", checked))):
        assert run("scan", images, "--out", tmp_path / how, *WORDS, *words) == 0
        table = rows(tmp_path / how / "ranking.csv")
        wrong = ["china/flower-" in row["path"] for row in table]
        found[how] = average_precision_score(wrong, [float(row["suspicion"]) for row in table])
    assert found["anchored"] > 0.9 > found["plain"] + 0.05, found
    assert run("scan", images, "--out", tmp_path / "plain", *WORDS, "--checked", checked) == 2
    assert "have changed" in capsys.readouterr().err
