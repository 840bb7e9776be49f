"""The training engine: augmentation, determinism, schedules, networks, divergence."""

import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from sgoif.errors import UserError
from sgoif.training.batches import Batches
from sgoif.training.cost.compute_counter import COMPUTE
from sgoif.training.images import ImageSet
from sgoif.training.learner import Diverged, Learner
from sgoif.training.models import MODELS, build_network, lenet5, more_models
from sgoif.training.predict import predict
from sgoif.training.recipe import Recipe
from sgoif.training.session import Session
from tests.helpers.digit_tasks import RECIPE, noisy_task


def colour(n: int = 12, size: int = 8) -> ImageSet:
    pixels = np.random.default_rng(0).integers(0, 256, (n, size, size, 3), dtype=np.uint8)
    return ImageSet(pixels, (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))


def test_normalisation_is_the_textbook_one_and_inverts():
    images = colour()
    x = images.batch(torch.arange(4))
    mean, std = torch.tensor(images.mean).view(1, 3, 1, 1), torch.tensor(images.std).view(1, 3, 1, 1)
    expected = (images.pixels[:4].permute(0, 3, 1, 2) / 255 - mean) / std
    torch.testing.assert_close(x, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(images.denormalise(x), images.pixels[:4].permute(0, 3, 1, 2) / 255, atol=1e-6, rtol=0)


def test_shift_and_flip_are_reflected_crops():
    images = colour()
    index, shift, flip = torch.tensor([3, 5]), torch.tensor([[0, 4], [2, 2]]), torch.tensor([False, True])
    got = images.batch(index, shift, flip, pad=2)
    padded = torch.nn.functional.pad(images.pixels.permute(0, 3, 1, 2).float(), (2,) * 4, mode="reflect").to(
        torch.uint8
    )
    first = images.normalise(padded[3:4, :, 0:8, 4:12].permute(0, 2, 3, 1))
    second = images.normalise(padded[5:6, :, 2:10, 2:10].flip(3).permute(0, 2, 3, 1))
    torch.testing.assert_close(got, torch.cat([first, second]))


def test_an_epoch_is_a_function_of_seed_and_number():
    images, labels = colour(40), torch.arange(40) % 10
    batches = Batches(images, labels, 16, seed=1, shift=1, flip=True)
    list(batches.epoch(0))
    again = Batches(images, labels, 16, seed=1, shift=1, flip=True)
    for a, b in zip(batches.epoch(3), again.epoch(3), strict=True):
        assert torch.equal(a.index, b.index) and torch.equal(a.x, b.x)
    other = torch.cat([b.index for b in Batches(images, labels, 16, seed=2).epoch(3)])
    assert not torch.equal(torch.cat([b.index for b in batches.epoch(3)]), other)
    seen = torch.cat([b.index for b in batches.epoch(0)])
    assert len(seen) == 32 == len(seen.unique())


def test_joined_batches_show_both():
    images, labels = colour(40), torch.arange(40) % 10
    first, second = (next(Batches(images, labels, n, seed=n, shift=1, flip=True).epoch(0)) for n in (16, 8))
    both = first.concatenate(second)
    assert torch.equal(both.x, torch.cat([first.x, second.x]))
    assert torch.equal(both.labels, torch.cat([first.labels, second.labels]))
    assert torch.equal(labels[both.index], both.labels)


def test_two_trainings_of_one_seed_are_bit_identical():
    runs = []
    for _ in range(2):
        task, _ = noisy_task(plain=False, n_train=300)
        batches = task.batches()
        learner = task.learner(batches)
        step = learner.plain_stepper()
        for epoch in task.session.epochs(2, learner):
            for batch in batches.epoch(epoch):
                step(batch)
        runs.append(task.predict(learner.net)[0])
    assert torch.equal(*runs)


@pytest.mark.parametrize("schedule", ["onecycle", "cosine", "step", "constant"])
def test_schedules_stay_between_zero_and_the_peak(schedule):
    recipe = Recipe(schedule=schedule, lr=0.3)
    rates = [recipe.lr_at(s, 100) for s in range(100)]
    assert max(rates) == pytest.approx(0.3) and min(rates) > 0
    if schedule != "constant":
        assert rates[-1] < 0.02


def test_onecycle_rises_and_falls():
    rates = np.array([Recipe(warmup=0.25).lr_at(s, 80) for s in range(80)])
    assert rates.argmax() == 19 and (np.diff(rates[:20]) > 0).all() and (np.diff(rates[20:]) < 0).all()


@pytest.mark.parametrize("name", [*MODELS, "timm:resnet10t"])
def test_networks_give_features_and_logits(name):
    size = 8 if name == "small_cnn" else 32
    net = build_network(name, 7, 3, size).eval()
    x = torch.randn(2, 3, size, size)
    z = net.features(x)
    assert net(x).shape == (2, 7) and z.ndim == 2
    weight, bias = net.linear()
    torch.testing.assert_close(net(x), z @ weight.T + bias, rtol=1e-4, atol=1e-5)
    assert len(net.stages) >= 2


def test_unknown_models_are_refused():
    with pytest.raises(UserError, match="no model 'resnet8'"):
        build_network("resnet8", 10, 3, 32)
    with pytest.raises(UserError, match="timm has no such model"):
        build_network("timm:resnett18", 10, 3, 32)


def test_further_models_have_a_name_inside_their_block_alone():
    before = dict(MODELS)
    with pytest.raises(ZeroDivisionError), more_models({"other": lenet5}):
        assert build_network("other", 7, 3, 32).head.out_features == 7
        raise ZeroDivisionError
    assert before == MODELS
    with (
        pytest.raises(UserError, match="already is a model 'resnet9'"),
        more_models({"other": lenet5, "resnet9": lenet5}),
    ):
        pass
    assert before == MODELS


def test_a_loss_that_is_not_finite_ends_as_diverged():
    task, _ = noisy_task(plain=False, n_train=300, recipe=replace(RECIPE, lr=1e20))
    batches = task.batches()
    learner = task.learner(batches)
    step = learner.plain_stepper()
    with pytest.raises(Diverged, match="the training loss became"):
        for epoch in task.session.epochs(4, learner):
            for batch in batches.epoch(epoch):
                step(batch)


def test_predict_keeps_the_order_and_the_mode():
    images = colour(20)
    net = build_network("small_cnn", 4, 3, 8)
    logits, features = predict(net, images, batch_size=7, features=True)
    assert net.training and logits.shape == (20, 4) and features.shape == (20, 64)
    some, _ = predict(net, images, indices=[5, 2])
    torch.testing.assert_close(some, logits[[5, 2]], rtol=1e-4, atol=1e-5)


def test_batches_of_a_prediction_have_one_shape_where_shapes_cost(monkeypatch):
    images, net, seen = colour(20), build_network("small_cnn", 4, 3, 8), []
    wanted, features = predict(net, images, batch_size=7, features=True)
    net.backbone.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    monkeypatch.setattr("sgoif.training.predict.wants_one_shape", lambda images: True)
    found = predict(net, images, batch_size=7, features=True)
    assert seen == [7, 7, 7]
    torch.testing.assert_close(found, (wanted, features), rtol=1e-4, atol=1e-5)
    seen.clear()
    assert len(predict(net, images, indices=[5, 2], batch_size=7)[0]) == 2
    assert seen == [2]  # not even one batch


def test_norms_and_biases_are_not_decayed():
    images = colour()
    learner = Learner(Recipe(weight_decay=0.1), 4, images, 10, seed=0)
    decayed, plain = learner.optimizer.param_groups
    assert decayed["weight_decay"] == 0.1 and plain["weight_decay"] == 0
    assert all(p.ndim > 1 for p in decayed["params"]) and all(p.ndim <= 1 for p in plain["params"])


def test_norms_and_biases_are_decayed_where_the_recipe_asks_for_it():
    learner = Learner(Recipe(weight_decay=0.1, decay_norms=True), 4, colour(), 10, seed=0)
    decayed, plain = learner.optimizer.param_groups
    assert decayed["weight_decay"] == 0.1 and not plain["params"]
    assert len(decayed["params"]) == len(list(learner.net.parameters()))
    before = {n: p.detach().clone() for n, p in learner.net.named_parameters() if p.ndim == 1}
    for p in learner.net.parameters():
        p.grad = torch.zeros_like(p)
    learner.optimizer.step()
    shrunk = [n for n, p in learner.net.named_parameters() if n in before and (p.abs() < before[n].abs()).any()]
    assert any(before[n].abs().sum() > 0 for n in before) and shrunk


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_captured_step_equals_the_ordinary_one():
    results = []
    for graph in (False, True):
        recipe = Recipe(model="resnet9", epochs=2, batch_size=32, lr=0.05, graph=graph)
        pixels = np.random.default_rng(0).integers(0, 256, (256, 32, 32, 3), dtype=np.uint8)
        images = ImageSet(pixels, (0.5,) * 3, (0.25,) * 3, "cuda")
        batches = Batches(images, torch.arange(256) % 10, 32, seed=0, shift=2, flip=True)
        learner = Learner.for_batches(recipe, 10, batches, seed=0)
        step = learner.plain_stepper()
        for epoch in Session(None, "k", 0, "cuda").epochs(2, learner):
            for batch in batches.epoch(epoch):
                step(batch)
        results.append(predict(learner.net, images)[0])
    torch.testing.assert_close(*results, rtol=2e-2, atol=2e-2)


def test_the_first_step_of_a_compiled_network_is_told_apart():
    """A stand-in that is slow when it first meets a batch, as compiling is."""
    task, _ = noisy_task(plain=False)
    batches = task.batches()
    learner, met = task.learner(batches), []

    def slow_once(x):
        if not met:
            time.sleep(0.3)
        met.append(len(x))
        return learner.net.features(x)

    learner._compiled = slow_once
    COMPUTE.reset()
    step = learner.plain_stepper()
    for batch in batches.epoch(0):
        step(batch)
    assert len(met) == batches.steps and 0.3 <= COMPUTE.compile_seconds < 0.3 + 5
    session = Session(None, "k", 0)
    session.timers.seconds = {"train": 100.0}
    session.timers.reassign("train", "compile", COMPUTE.compile_seconds)
    assert session.timers.seconds["compile"] == COMPUTE.compile_seconds
    assert session.timers.total_seconds() == pytest.approx(100)
    session.timers.reassign("train", "compile", 900.0)
    assert session.timers.seconds == {"train": 0.0, "compile": pytest.approx(100)}
    COMPUTE.reset()
    assert COMPUTE.compile_seconds == 0
