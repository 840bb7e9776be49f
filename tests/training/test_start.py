"""Training that starts from given weights: they arrive, frozen ones stay, others are refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sgoif.errors import UserError
from sgoif.training.batches import Batches
from sgoif.training.images import ImageSet
from sgoif.training.learner import Learner
from sgoif.training.models import build_network
from sgoif.training.recipe import Recipe, Start
from sgoif.training.start import numbered, start_from, weights_of
from sgoif.utils.files import save_npz

RECIPE = Recipe(model="tiny_cnn", epochs=1, batch_size=16)


@pytest.fixture
def other():
    """A network with weights of its own, batch statistics included."""
    torch.manual_seed(7)
    network = build_network("tiny_cnn", 10, 1, 8)
    network.train()
    network(torch.randn(64, 1, 8, 8))
    return network


@pytest.fixture
def start(other, tmp_path):
    save_npz(tmp_path / "weights.npz", **weights_of(other))
    return Start("x", file=tmp_path / "weights.npz")


def train(start, epochs=1):
    """Train on random digits; the learner after some steps."""
    rng = np.random.RandomState(0)
    images = ImageSet(rng.randint(0, 255, (64, 8, 8)).astype(np.uint8), (0.3,), (0.3,))
    batches = Batches(images, torch.from_numpy(rng.randint(0, 10, 64)), 16, seed=0)
    learner = Learner.for_batches(replace(RECIPE, start=start), 10, batches, seed=0)
    before = {k: v.clone() for k, v in learner.net.state_dict().items()}
    step = learner.plain_stepper()
    for batch in batches.epoch(0):
        step(batch)
    return learner, before


def test_the_backbone_starts_at_the_given_weights_and_the_head_at_random(start, other):
    learner, before = train(start)
    for name, value in other.backbone.state_dict().items():
        assert torch.equal(before[f"backbone.{name}"], value)
    assert not torch.equal(before["head.weight"], other.head.weight)
    after = learner.net.state_dict()
    assert not torch.equal(after["backbone.0.0.weight"], before["backbone.0.0.weight"])  # fine-tuned


def test_a_frozen_backbone_stays_and_its_head_is_trained(start):
    learner, before = train(replace(start, frozen=True))
    after = learner.net.state_dict()
    assert all(torch.equal(after[k], before[k]) for k in after if k.startswith("backbone"))
    assert not torch.equal(after["head.weight"], before["head.weight"])
    trained = [p for group in learner.optimizer.param_groups for p in group["params"]]
    assert {id(p) for p in trained} == {id(p) for p in learner.net.head.parameters()}
    learner.net.eval()
    learner.net.train()
    assert learner.net.training and not learner.net.backbone.training


def test_weights_of_another_network_are_refused(start):
    with pytest.raises(
        UserError, match=r"recipe\.start\.weights: x are not of the backbone .*it has 12 tensors, the model 18"
    ):
        start_from(build_network("small_cnn", 10, 1, 8), start)
    with pytest.raises(UserError, match="x has no file"):
        start_from(build_network("tiny_cnn", 10, 1, 8), Start("x"))


def test_the_order_survives_sorting():
    many = {f"layer{i}": np.zeros(1) for i in range(12)}
    assert [name.partition(" ")[2] for name in sorted(numbered(many))] == list(many)


def test_a_model_with_a_size_scales_its_images():
    small = build_network("timm:tf_efficientnet_lite0@32", 10, 3, 8).eval()
    seen = []
    small.backbone.backbone.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape))
    assert small(torch.zeros(1, 3, 8, 8)).shape == (1, 10)
    assert seen == [(1, 3, 32, 32)]
    with pytest.raises(UserError, match=r"no model 'timm:resnet18@0'.*timm:<name>@<pixels>"):
        build_network("timm:resnet18@0", 10, 3, 8)


@pytest.mark.parametrize(
    ("start", "told"),
    [
        ({"frozen": True}, "recipe.start: expected {weights: <name>"),
        ({"weights": "x", "layers": 2}, "recipe.start: expected"),
        ({"weights": "x", "frozen": 1}, "recipe.start.frozen: expected true or false, got 1"),
    ],
)
def test_a_start_is_checked(start, told):
    with pytest.raises(UserError, match=told):
        Recipe.from_dict({"start": start})
