"""What the trained OOD baselines change of the dataset's recipe, how long they train, and that colour images fit."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from baselines.ood import csi
from baselines.ood.patchcore import PatchCore
from sgoif.bench.methods.registry import load
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.images import ImageSet
from sgoif.training.learner import Learner
from sgoif.training.session import Session
from tests.helpers.digit_tasks import RECIPE, ood_task

STEPS = {"schedule": "step"}
CHANGED = {  # method: for each of its trainings, what differs from the recipe
    "arpl": [{"weight_decay": 1e-4}],
    "csi": [
        {"weight_decay": 1e-6},
        {**STEPS, "milestones": (0.6, 0.75, 0.9), "gamma": 0.1, "compile": False},
    ],
    "cutpaste": [{"optimizer": "sgd", "schedule": "cosine", "lr": 0.03, "weight_decay": 5e-4, "compile": False}],
    "draem": [
        {**STEPS, "optimizer": "adam", "lr": 3e-3, "weight_decay": 0.0, "milestones": (0.8, 0.9), "gamma": 0.2,
         "compile": False}
    ],
    "godin": [{}],
    "mos": [
        {**STEPS, "optimizer": "sgd", "momentum": 0.9, "nesterov": False, "weight_decay": 0.0, "lr": 0.003,
         "milestones": (0.3, 0.6, 0.9), "gamma": 0.1, "compile": False}
    ],
    "udg": [{"compile": False}],
    "vos": [{}],
}  # fmt: skip


class Stop(Exception):
    pass


def trainings(monkeypatch, method, task, count: int) -> list:
    """The first `count` calls of `Learner.for_batches`; the last one ends the fit."""
    found, original = [], Learner.for_batches.__func__

    def watched(cls, recipe, n_classes, batches, seed, epochs=None, **kw):
        found.append((recipe, batches, recipe.epochs if epochs is None else epochs))
        if len(found) == count:
            raise Stop
        return original(cls, recipe, n_classes, batches, seed, epochs, **kw)

    monkeypatch.setattr(Learner, "for_batches", classmethod(watched))
    with pytest.raises(Stop):
        method.fit(task)
    return found


@pytest.mark.parametrize("name", CHANGED)
def test_the_recipe_is_changed_where_the_paper_says(name, monkeypatch):
    task, _, _ = ood_task(plain=load("ood", name).reads_plain)
    task.recipe = replace(task.recipe, epochs=1, momentum=0.5, nesterov=True, compile=True, weight_decay=0.123)
    if name == "csi":  # its first training has to run
        task.recipe = replace(task.recipe, compile=False)
        task.train, task.labels = task.train.subset(torch.arange(64)), task.labels[:64]
    expected = [replace(task.recipe, **change) for change in CHANGED[name]]
    assert [recipe for recipe, _, _ in trainings(monkeypatch, load("ood", name)(), task, len(expected))] == expected


@pytest.mark.parametrize(
    ("name", "params", "epochs", "batch_size"),
    [
        ("cutpaste", {"epochs": 0.5}, 4, 128),
        ("cutpaste", {"epochs": 0.01}, 1, 128),
        ("draem", {"epochs": 0.5, "steps": 100}, 4, 800 * 4 // 100),
        ("draem", {"steps": 10}, 8, 128),
        ("draem", {"steps": 10_000}, 8, 8),
        ("mos", {"share": 0.5, "min_steps": 1}, 4, 128),
        ("mos", {"share": 0.0, "min_steps": 61, "batch_size": 40}, 4, 40),  # 20 steps an epoch
        ("mos", {"share": 0.0, "min_steps": 0, "batch_size": 400}, 1, 128),
        ("csi", {"batch_share": 0.25}, 8, 32),
        ("csi", {"batch_share": 0.001}, 8, 2),
    ],
)
def test_length_of_training_and_size_of_batches(name, params, epochs, batch_size, monkeypatch):
    task, _, _ = ood_task(plain=load("ood", name).reads_plain)
    ((_, batches, found),) = trainings(monkeypatch, load("ood", name)(**params), task, 1)
    assert (found, batches.batch_size) == (epochs, batch_size)
    if name == "csi":  # its views shift and flip
        assert batches.shift == 0 and not batches.flip


@pytest.mark.parametrize(
    ("params", "epochs"),
    [
        ({"share": 0.5, "min_steps": 1}, 4),
        ({"min_steps": 100, "share": 0.01}, 17),
        ({"min_steps": 96, "share": 0.01}, 16),
    ],
)
def test_opengan_plays_with_adam_at_two_rates(params, epochs, monkeypatch):
    """800 features in batches of 128 are 6 steps an epoch."""
    task, images, _ = ood_task()
    made, adam, lengths = [], torch.optim.Adam, []

    def watched(parameters, **options):
        made.append(options)
        return adam(parameters, **options)

    def no_epochs(n, *stateful, **options):
        lengths.append(n)
        return iter(())

    monkeypatch.setattr(torch.optim, "Adam", watched)
    task.session.epochs = no_epochs
    method = load("ood", "opengan")(lr=3e-4, **params)
    method.fit(task)
    assert [options["lr"] for options in made] == pytest.approx([3e-4, 2e-4])
    assert all(options["betas"] == (0.5, 0.999) for options in made) and lengths == [epochs]
    scores = method.score(images)
    assert ((scores > 0) & (scores < 1)).all()


@pytest.mark.parametrize(
    ("params", "size"),
    [
        ({"coreset": 0.005, "minimum": 1}, round(0.005 * 800 * 16)),
        ({"coreset": 0.0001, "minimum": 50}, 50),
        ({"coreset": 0.01, "minimum": 1, "maximum": 30}, 30),
    ],
)
def test_patchcore_keeps_its_share_of_all_patches(params, size):
    """4 x 4 patches in each of 800 images."""
    task, _, _ = ood_task()
    method = PatchCore(projection=4, **params)
    method.fit(task)
    assert len(method.bank) == size and method.extras() == {"patches_kept": size}


@pytest.mark.parametrize(("size", "side"), [(4, 5), (8, 9), (32, 36)])
def test_pixmix_pictures_leave_room_to_cut_from(size, side, monkeypatch):
    """32 pixels are cut out of 36; no more pictures than training images."""
    made = []

    def watched(n, width, channels, seed, device):
        made.append((n, width, channels))
        raise Stop

    monkeypatch.setattr("baselines.ood.pixmix.fractals", watched)
    task = colour_task()
    task.train = ImageSet(np.zeros((48, size, size, 3), np.uint8), task.train.mean, task.train.std)
    for pictures in (5, 100):
        with pytest.raises(Stop):
            load("ood", "pixmix")(pictures=pictures).fit(task)
    assert made == [(5, side, 3), (48, side, 3)]


@pytest.mark.parametrize(("clusters", "expected"), [(1000, (800 + 360) // 50), (7, 7), (1, 2)])
def test_udg_has_a_cluster_for_fifty_images(clusters, expected, monkeypatch):
    asked = []

    def watched(points, k):
        asked.append((len(points), k))
        raise Stop

    monkeypatch.setattr("baselines.ood.udg.kmeans", watched)
    task, _, _ = ood_task(plain=False)
    with pytest.raises(Stop):
        load("ood", "udg")(clusters=clusters).fit(task)
    assert len(task.auxiliary) == 360 and asked == [(1160, expected)]


# --- colour -----------------------------------------------------------------------------------------------------------


def colour_task() -> OODTask:
    """48 noisy colour images of three classes, whose channels have means and deviations of their own."""
    rng = np.random.default_rng(0)
    y = torch.arange(48) % 3
    x = rng.integers(0, 256, (48, 8, 8, 3)).astype(np.uint8)
    x[0], x[1] = 0, 255
    images = ImageSet(x, (0.2, 0.5, 0.8), (0.1, 0.25, 0.5))
    recipe = replace(RECIPE, epochs=1, batch_size=24, shift=0, flip=True)
    return OODTask(
        train=images, labels=y, val=images, n_classes=3, seed=0, recipe=recipe,
        session=Session(None, "test", 0),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["csi", "godin", "pixmix"])
def test_channels_are_normalised_each_by_its_own(name):
    """Whatever is done to the pixels, the network gets them with the mean and deviation of their channel."""
    torch.manual_seed(0)
    seen = []

    def watch(module, inputs):
        if isinstance(module, nn.Conv2d) and module.in_channels == 3 and module.training:
            seen.append(inputs[0].detach())

    task, method = colour_task(), load("ood", name)()
    handle = nn.modules.module.register_module_forward_pre_hook(watch)
    try:
        method.fit(task)
    finally:
        handle.remove()
    x = torch.cat(seen)
    pixels = x * torch.tensor(task.train.std).view(1, 3, 1, 1) + torch.tensor(task.train.mean).view(1, 3, 1, 1)
    assert pixels.min() > -1e-4 and pixels.max() < 1 + 1e-4
    assert (pixels.amax((0, 2, 3)) > 0.95).all() and (pixels.amin((0, 2, 3)) < 0.05).all()
    assert torch.isfinite(method.score(task.train)).all()


# --- the views of CSI -------------------------------------------------------------------------------------------------


def view(x, channels=1, **chosen):
    """A view with chosen uniform numbers; the others leave the image as it is."""
    names = ["area", "ratio", "dx", "dy", "jitter", "brightness", "contrast"]
    names += ["saturation", "hue", "grey"] if channels == 3 else []
    plain = dict.fromkeys(names, 0.5) | {"area": 1.0, "jitter": 0.9, "grey": 0.9}
    assert len(names) == csi.numbers(channels)
    u = torch.stack([torch.full((len(x),), (plain | chosen)[name]) for name in names])
    return csi.view(x, u, 0.08)


def ramp(axis: int) -> torch.Tensor:
    """[1, 1, 8, 8] rising from 0 to 0.7 along rows (2) or columns (3)."""
    line = torch.arange(8.0) / 10
    return (line.view(8, 1) if axis == 2 else line.view(1, 8)).expand(1, 1, 8, 8).clone()


def test_a_view_of_the_whole_image_is_the_image():
    x = torch.rand(3, 1, 8, 8)
    torch.testing.assert_close(view(x), x)


@pytest.mark.parametrize("flip", [False, True])
def test_images_are_mirrored_before_they_are_rotated(flip, monkeypatch):
    """As released: mirrored after it, rotations by 90 and by 270 degrees, which are two classes, would be one.

    Views left out, what the network sees, turned back, is an image or its mirror image, in both steps.
    """
    torch.manual_seed(0)
    seen = []
    monkeypatch.setattr(csi, "view", lambda x, u, smallest: seen.append(x) or x)
    task = colour_task()
    task.recipe = replace(task.recipe, flip=flip)
    csi.CSI().fit(task)
    images = task.train.denormalise(task.train.batch(torch.arange(len(task.train))))
    both = torch.stack([images, images.flip(3)]).flatten(2)
    assert len(seen) > 2
    for x in seen:
        for turn, part in enumerate(x.chunk(4)):
            upright = torch.rot90(part, -turn, (2, 3)).flatten(1)
            distance = torch.cdist(upright, both.flatten(0, 1)).view(len(part), 2, len(images))
            assert distance.amin((1, 2)).max() < 0.1  # of other images above 4
            is_mirrored = distance.amin(2).argmin(1) == 1
            assert is_mirrored.any() == flip and not is_mirrored.all()


def test_an_image_is_mirrored_by_its_own_coin():
    x = torch.rand(2, 1, 8, 8)
    torch.testing.assert_close(csi.mirrored(x, torch.tensor([0.49, 0.51])), torch.stack([x[0].flip(2), x[1]]))


@pytest.mark.parametrize("ratio", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("area", [0.3, 1.0])
def test_a_crop_has_its_area_aspect_and_place(area, ratio, place):
    """On ramps the pixel at position t of a crop of extent e around c is the ramp at c + e t, where that is inside."""
    share = 0.08 + 0.92 * area
    aspect = np.exp(-0.2877 + 2 * 0.2877 * ratio)
    t = (2 * torch.arange(8.0) + 1) / 8 - 1
    for axis, extent in ((3, (share * aspect) ** 0.5), (2, (share / aspect) ** 0.5)):
        extent = min(extent, 1.0)
        at = ((extent * t + (1 - extent) * (2 * place - 1) + 1) * 8 - 1) / 2  # in pixels
        found = view(ramp(axis), area=area, ratio=ratio, dx=place, dy=place)[0, 0]
        found = found[0] if axis == 3 else found[:, 0]
        inside = (at >= 0) & (at <= 7)
        torch.testing.assert_close(found[inside], (at / 10)[inside], atol=1e-5, rtol=0)
        assert inside.sum() >= 6


def test_brightness_and_contrast_by_hand():
    x = torch.tensor([0.2, 0.4]).view(1, 1, 1, 2).expand(1, 1, 2, 2)
    bright = view(x, jitter=0.79, brightness=1.0)  # 0.6 ... 1.4
    torch.testing.assert_close(bright, x * 1.4)
    flat = view(x, jitter=0.79, contrast=0.0)
    torch.testing.assert_close(flat, 0.3 + (x - 0.3) * 0.6)
    torch.testing.assert_close(view(x, jitter=0.81, brightness=1.0, contrast=0.0), x)  # one in five is left alone


def test_saturation_hue_and_grey_turn_the_chroma_alone():
    colour = torch.tensor([0.6, 0.4, 0.3]).view(1, 3, 1, 1).expand(1, 3, 2, 2)
    luma = (torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1) * colour).sum(1, keepdim=True)
    axes = torch.tensor([[0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])

    def chroma(x):
        return axes @ x[0, :, 0, 0]

    grey = view(colour, channels=3, grey=0.19)
    torch.testing.assert_close(grey, luma.expand_as(colour))
    torch.testing.assert_close(view(colour, channels=3, grey=0.21), colour)
    strong = view(colour, channels=3, jitter=0.1, saturation=1.0)
    torch.testing.assert_close(chroma(strong), 1.4 * chroma(colour), atol=2e-3, rtol=0)
    turned = view(colour, channels=3, jitter=0.1, hue=1.0)  # by a tenth of a turn
    angle = torch.tensor(0.1 * 2 * torch.pi)
    matrix = torch.tensor([[angle.cos(), -angle.sin()], [angle.sin(), angle.cos()]])
    torch.testing.assert_close(chroma(turned), matrix @ chroma(colour), atol=2e-3, rtol=0)
