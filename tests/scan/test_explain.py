"""`sgoif explain`: the influences are those of the formula, and a wrong label harms what its image really is."""

import json
import shutil

import numpy as np
import pytest
import torch

from sgoif.scan.explain import explain
from sgoif.utils.files import load_npz, save_npz
from tests.helpers.scan_folders import digit_folder, run


@pytest.fixture(scope="module")
def scanned(tmp_path_factory):
    """(images, scan folder, truth): 300 digits of which a tenth has a wrong label."""
    root = tmp_path_factory.mktemp("explain")
    truth = digit_folder(root / "digits", n=300, seed=2)
    assert run("scan", root / "digits", "--out", root / "out", "--epochs", 10, "--gallery", 2) == 0
    return root / "digits", root / "out", truth


def test_it_is_the_formula(scanned):
    """-g_t' (A (x) B)^-1 g_i with dense matrices, from the saved state alone."""
    _, out, truth = scanned
    name = sorted(truth)[0]
    found = explain(name, out)
    state = {k: torch.from_numpy(v) for k, v in load_npz(out / "explain.npz").items() if v.dtype.kind in "fi"}
    z = torch.cat([state["features"].double(), torch.ones(300, 1)], dim=1)
    errors = (state["logits"].double() / state["temperature"]).softmax(1)
    errors -= torch.nn.functional.one_hot(state["labels"], 10)
    inputs, outputs = (state[f"curvature:{side}.0.mean"].double() for side in ("inputs", "outputs"))
    inputs += state["curvature:inputs.0.damping"] * torch.eye(len(inputs))
    outputs += state["curvature:outputs.0.damping"] * torch.eye(10)
    t = found.names.index(name)
    target = (state["logits"][t].double() / state["temperature"]).softmax(0)
    target[found.label] -= 1
    wanted = -(errors @ torch.linalg.solve(outputs, target)) * (z @ torch.linalg.solve(inputs, z[t]))
    assert found.label == int(state["logits"][t].argmax())
    assert np.allclose(found.influence, wanted.numpy(), rtol=0.02, atol=0.02 * wanted.abs().max())


def test_helpful_images_are_of_the_predicted_class_and_wrong_labels_harm(scanned):
    _, out, truth = scanned
    names = [n for n, (_, wrong) in sorted(truth.items()) if not wrong][::23]
    same, planted, base = [], [], np.mean([wrong for _, wrong in truth.values()])
    for name in names:
        found = explain(name, out)
        same += [found.classes[found.labels[i]] == found.classes[found.label] for i in found.helpful(10)]
        planted += [truth[found.names[i]][1] for i in found.harmful(10)]
    assert np.mean(same) > 0.9 and np.mean(planted) > 3 * base


def test_command_and_page(scanned, tmp_path, capsys):
    images, out, truth = scanned
    name = sorted(truth)[3]
    assert run("explain", images / name, "--scan", out, "--top", 3, "--out", tmp_path / "page.html") == 0
    told = capsys.readouterr().out
    assert "The network gives " in told and told.count(".png") == 6
    page = (tmp_path / "page.html").read_text()
    assert page.count("<img ") == 7 and "http" not in page.replace("http-equiv", "")
    assert run("explain", name, "--scan", out, "--label", "7", "--top", 3) == 0
    assert "gives 7 " in capsys.readouterr().out and (out / "explain.html").is_file()


def test_mistakes(scanned, tmp_path, capsys):
    _, out, _ = scanned

    def refused(*words):
        assert run("explain", *words) == 2
        return capsys.readouterr().err

    assert "neither a file nor an example" in refused("nothing.png", "--scan", out)
    (tmp_path / "bad.png").write_text("no")
    assert "bad.png is not a readable image (not an image)" in refused(tmp_path / "bad.png", "--scan", out)
    assert "--label zebra: no such class" in refused(tmp_path / "bad.png", "--scan", out, "--label", "zebra")
    assert "not the folder of a scan" in refused(tmp_path / "bad.png", "--scan", tmp_path)
    copy = shutil.copytree(out, tmp_path / "copy")
    (copy / "explain.npz").write_bytes((out / "explain.npz").read_bytes()[:500])
    assert "explain.npz is damaged; delete it and run the same `sgoif scan` again" in refused("x.png", "--scan", copy)
    (copy / "explain.npz").unlink()
    assert "explain.npz is gone; run the same `sgoif scan` again" in refused("x.png", "--scan", copy)


def rename_curvature(out):
    arrays = load_npz(out / "explain.npz")
    save_npz(out / "explain.npz", **{name.replace("inputs.0", "in_factor"): value for name, value in arrays.items()})


def drop_curvature(out):
    arrays = load_npz(out / "explain.npz")
    save_npz(out / "explain.npz", **{n: v for n, v in arrays.items() if not n.startswith("curvature:")})


def drop_temperature(out):
    arrays = load_npz(out / "explain.npz")
    save_npz(out / "explain.npz", **{name: value for name, value in arrays.items() if name != "temperature"})


def rename_setting(out):
    report = json.loads((out / "report.json").read_text())
    report["settings"]["learning_rate"] = report["settings"].pop("lr")
    (out / "report.json").write_text(json.dumps(report))


def drop_settings(out):
    (out / "report.json").write_text("{}")


def swap_weights(out):
    from safetensors.torch import save_file

    save_file({"other.weight": torch.zeros(2)}, out / "network.safetensors")


@pytest.mark.parametrize(
    "change", [rename_curvature, drop_curvature, drop_temperature, rename_setting, drop_settings, swap_weights]
)
def test_a_scan_of_another_version_must_be_made_again(scanned, tmp_path, capsys, change):
    _, out, truth = scanned
    copy = shutil.copytree(out, tmp_path / "out")
    change(copy)
    assert run("explain", sorted(truth)[0], "--scan", copy) == 2
    told = capsys.readouterr().err
    wanted = "was written by another version of sgoif; make the scan again with `sgoif scan`, in a new folder"
    assert told == f"error: the scan in {copy} {wanted}\n"


def test_damaged_weights_and_a_network_that_timm_no_longer_has(scanned, tmp_path, capsys):
    _, out, truth = scanned
    copy = shutil.copytree(out, tmp_path / "out")
    (copy / "network.safetensors").write_bytes(b"x" * 40)
    assert run("explain", sorted(truth)[0], "--scan", copy) == 2
    assert "network.safetensors is damaged" in capsys.readouterr().err
    report = json.loads((copy / "report.json").read_text())
    report["settings"]["model"] = "resnet_of_the_past"
    (copy / "report.json").write_text(json.dumps(report))
    assert run("explain", sorted(truth)[0], "--scan", copy) == 2
    assert "this timm cannot build resnet_of_the_past" in capsys.readouterr().err
