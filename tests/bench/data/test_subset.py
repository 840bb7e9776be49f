"""Long tails and smaller training sets: class sizes, the draw, the files of labels, and what is refused."""

import numpy as np
import pytest

from sgoif.bench.data import load
from sgoif.bench.data.noise.subset import Subset, class_sizes, draw_subset, expected_size, read_subset
from sgoif.bench.data.noisy_labels import check_setting, read_kept, read_labels, write_setting
from sgoif.bench.data.prepare import prepare
from sgoif.errors import UserError
from sgoif.utils.files import load_npz

FULL = np.full(10, 5000)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    prepare("digits", root)
    return root


@pytest.mark.parametrize("balance", [1, 10, 50, 100])
@pytest.mark.parametrize("profile", ["exponential", "step"])
def test_class_sizes_have_the_asked_ratio_and_sum(balance, profile):
    counts = class_sizes(Subset(balance, profile, 14000 if balance < 100 else 8000, 0), FULL)
    assert counts.sum() == (14000 if balance < 100 else 8000)
    assert counts.max() / counts.min() == pytest.approx(balance, rel=0.02)
    assert list(counts) == sorted(counts, reverse=True)
    if profile == "step":
        assert len(set(counts[:5]) | {counts[0] - 1}) <= 2 and counts[4] > counts[5] - 1


def test_exponential_sizes_are_those_of_the_formula_and_the_largest_that_fit():
    counts = class_sizes(Subset(50, "exponential", None, 0), FULL)
    assert np.array_equal(counts, np.floor(5000 * 50 ** (-np.arange(10) / 9) + 1e-9))
    assert counts.sum() == 13996  # the long tail of CIFAR-10 in the literature


def test_without_a_balance_every_class_keeps_its_share():
    counts = class_sizes(Subset(None, "exponential", 100, 0), np.array([100, 300, 600]))
    assert list(counts) == [10, 30, 60]


def test_the_draw_is_by_seed_sorted_and_nested():
    true_labels = np.random.RandomState(0).randint(0, 10, 5000)
    large, small = (draw_subset(Subset(10, "step", size, 3), true_labels, 10) for size in (2000, 500))
    assert len(large) == 2000 and np.all(np.diff(large) > 0) and set(small) <= set(large)
    assert not np.array_equal(small, draw_subset(Subset(10, "step", 500, 4), true_labels, 10))


def test_labels_and_truth_hold_the_kept_images_in_the_order_of_the_dataset(data, tmp_path):
    spec = {"kind": "symmetric", "rate": 0.2, "balance": 10, "size": 500, "seed": 1}
    done = write_setting(data, tmp_path, "digits", "tail", spec)
    truth = load_npz(tmp_path / "truth/digits/tail.npz")
    file = tmp_path / "labels/digits/tail.npz"
    kept, labels = read_kept(file, data, "digits")
    assert len(kept) == 500 and np.array_equal(labels, done.labels)
    assert np.array_equal(truth["true_labels"], load.true_labels(data, "digits", "train")[kept])
    assert np.array_equal(truth["ids"], load.ids(data, "digits", "train")[kept])
    assert np.array_equal(truth["wrong"], labels != truth["true_labels"]) and 0.15 < truth["rate"] < 0.25
    sizes = np.bincount(truth["true_labels"], minlength=10)
    assert sizes[0] / sizes[9] == pytest.approx(10, rel=0.05)
    with pytest.raises(UserError, match="500 examples"):  # a whole dataset must not be taken from it
        read_labels(file, data, "digits")


def test_a_setting_without_a_part_is_what_it_was(data, tmp_path):
    spec = {"kind": "symmetric", "rate": 0.2}
    done = write_setting(data, tmp_path, "digits", "sym", spec)
    kept, labels = read_kept(tmp_path / "labels/digits/sym.npz", data, "digits")
    assert np.array_equal(kept, np.arange(len(done.labels))) and np.array_equal(labels, done.labels)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"balance": 0.5}, r"s\.balance: expected a ratio of at least 1"),
        ({"balance": "50"}, r"s\.balance: expected a ratio"),
        ({"balance": 10, "profile": "linear"}, r"s\.profile: 'linear' is not one of exponential, step"),
        ({"profile": "step"}, r"s\.profile: .* needs `balance`"),
        ({"size": 100, "profile": "step"}, r"s\.profile: .* needs `balance`"),
        ({"size": 5}, r"s\.size: expected a number of images, at least 10"),
        ({"size": 1.5}, r"s\.size: expected a number"),
        ({"size": 1439}, r"s\.size: 1439 images cannot be kept, there are 1438 to draw from"),
        ({"size": 439, "images": {"from": 1000}}, r"s\.size: 439 images cannot be kept, there are 438 to draw from"),
        ({"balanse": 10}, r"s\.balanse: unknown for symmetric noise"),
    ],
)
def test_mistakes_are_told_by_their_key(keys, told):
    with pytest.raises(UserError, match=told):
        check_setting("digits", {"kind": "symmetric", "rate": 0.2, **keys}, "s")


def test_a_part_may_be_as_large_as_the_whole():
    check_setting("digits", {"kind": "symmetric", "rate": 0.2, "size": 1438}, "s")


def test_what_the_data_cannot_give_is_refused_with_what_it_can(data, tmp_path):
    spec = {"kind": "symmetric", "rate": 0.2, "balance": 10, "size": 1000}
    with pytest.raises(UserError, match=r"tail\.size: 1000 images need 245 of class 0, .* at most \d+ fit"):
        write_setting(data, tmp_path, "digits", "tail", spec)
    with pytest.raises(UserError, match="class 7 would have no image"):
        class_sizes(Subset(1000, "exponential", 100, 0), FULL)


def test_noise_that_is_not_drawn_takes_a_seed_for_the_images_alone():
    check_setting("cifar10", {"kind": "human", "column": "worse_label", "size": 1500, "seed": 3}, "s")
    with pytest.raises(UserError, match=r"s\.seed: unknown for human noise"):
        check_setting("cifar10", {"kind": "human", "column": "worse_label", "seed": 3}, "s")
    assert read_subset({"kind": "human", "size": 1500, "seed": 3}, 10) == Subset(None, "exponential", 1500, 3)
    with pytest.raises(UserError, match="collected labels have no true classes"):
        read_subset({"kind": "collected", "size": 1500}, 10, "s")


def test_a_range_keeps_all_of_its_images_and_draws_from_nowhere_else():
    true_labels = np.random.RandomState(0).randint(0, 10, 1000)
    whole = read_subset({"kind": "clean", "images": {"from": 600, "to": 900}}, 10)
    assert whole is not None and list(draw_subset(whole, true_labels, 10)) == list(range(600, 900))
    part = read_subset({"kind": "clean", "images": {"from": 600}, "balance": 5, "size": 80}, 10)
    assert part is not None
    kept = draw_subset(part, true_labels, 10)
    assert len(kept) == 80 and kept.min() >= 600
    sizes = np.bincount(true_labels[kept], minlength=10)
    assert sizes.max() / sizes.min() == pytest.approx(5, rel=0.2)


def test_labels_of_a_range_are_those_of_its_images(data, tmp_path):
    spec = {"kind": "symmetric", "rate": 0.2, "images": {"from": 1000}}
    write_setting(data, tmp_path, "digits", "late", spec)
    kept, _ = read_kept(tmp_path / "labels/digits/late.npz", data, "digits")
    assert list(kept) == list(range(1000, 1438)) and expected_size(spec, 1438, 10) == 438
    assert expected_size({**spec, "size": 100}, 1438, 10) == 100


@pytest.mark.parametrize(
    ("images", "told"),
    [
        ({"from": 1438}, r"x\.images: from 1438 is no part of a training set of 1438 images"),
        ({"from": 9, "to": 5}, r"x\.images: from 9 to 5 is no part of"),
        ({"to": 1500}, r"x\.images: from 0 to 1500 is no part of"),
        ({"from": -1}, r"x\.images\.from: expected a position"),
        ({"start": 1}, r"x\.images: expected positions"),
        (25000, r"x\.images: expected positions"),
    ],
)  # fmt: skip
def test_ranges_that_make_no_sense_are_refused(images, told):
    with pytest.raises(UserError, match=told):
        check_setting("digits", {"kind": "symmetric", "rate": 0.2, "images": images}, "x")
