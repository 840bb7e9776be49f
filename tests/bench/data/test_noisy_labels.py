import numpy as np
import pytest

from sgoif.bench.data import catalogue, load
from sgoif.bench.data.noisy_labels import (
    align_to_ids,
    draw_of_seed,
    drawn,
    read_labels,
    required_datasets,
    setting_files,
    write_setting,
)
from sgoif.bench.data.prepare import prepare
from sgoif.errors import UserError
from sgoif.utils.files import load_npz, save_npz

NOISE = {"kind": "class_conditional", "noise": 0.2, "sparsity": 0.4, "seed": 0}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    prepare("digits", root)
    return root


def test_given_labels_and_truth_lie_apart(data, tmp_path):
    done = write_setting(data, tmp_path, "digits", "cc20", NOISE)
    labels_file, truth_file = setting_files(tmp_path, "digits", "cc20")
    assert labels_file == tmp_path / "labels/digits/cc20.npz" and truth_file == tmp_path / "truth/digits/cc20.npz"
    written, truth = load_npz(labels_file), load_npz(truth_file)
    assert set(written) == {"labels", "ids"}, "nothing in the methods' file says which labels are wrong"
    assert set(truth) == {"true_labels", "wrong", "ids", "rate", "matrix"}
    assert written["labels"].dtype == np.int64 and np.array_equal(written["labels"], done.labels)
    assert (
        np.array_equal(truth["wrong"], written["labels"] != truth["true_labels"])
        and truth["rate"] == truth["wrong"].mean()
    )
    assert np.array_equal(truth["true_labels"], load.true_labels(data, "digits", "train"))
    assert np.array_equal(truth["ids"], written["ids"])
    assert np.array_equal(read_labels(labels_file, data, "digits"), done.labels)


def test_again_is_the_same_file_bit_for_bit(data, tmp_path):
    both = []
    for run in ("a", "b"):
        write_setting(data, tmp_path / run, "digits", "s", NOISE)
        both.append([p.read_bytes() for p in setting_files(tmp_path / run, "digits", "s")])
    assert both[0] == both[1]
    stamps = [p.stat().st_mtime_ns for p in setting_files(tmp_path / "a", "digits", "s")]
    write_setting(data, tmp_path / "a", "digits", "s", NOISE)
    assert [p.stat().st_mtime_ns for p in setting_files(tmp_path / "a", "digits", "s")] == stamps


def test_each_draw_flips_other_images_to_other_labels_and_the_first_is_the_setting_itself(data, tmp_path):
    for draw in (0, 1, 2):
        write_setting(data, tmp_path, "digits", "s", drawn(NOISE, draw), draw)
    again = write_setting(data, tmp_path / "as specified", "digits", "s", NOISE)
    truths = [load_npz(setting_files(tmp_path, "digits", "s", draw).truth) for draw in (0, 1, 2)]
    labels = [load_npz(setting_files(tmp_path, "digits", "s", draw).labels)["labels"] for draw in (0, 1, 2)]
    assert np.array_equal(labels[0], again.labels)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        both = truths[a]["wrong"] & truths[b]["wrong"]
        assert both.sum() < 0.5 * truths[a]["wrong"].sum(), "most wrong images are other ones"
        assert not np.allclose(truths[a]["matrix"], truths[b]["matrix"]), "so is the matrix"
        assert truths[a]["rate"] == pytest.approx(truths[b]["rate"], abs=0.02)


def test_draws_are_far_from_neighbouring_seeds_and_nobody_draws_labels_of_people():
    assert drawn({**NOISE, "seed": 12}, 2)["seed"] == 2012 and drawn(NOISE, 0) == NOISE
    assert drawn({**NOISE, "seed": 2**32 - 1}, 2**32 - 1)["seed"] < 2**32
    assert [draw_of_seed(NOISE, seed) for seed in (0, 7)] == [0, 7]
    for kind in ("human", "file", "collected", "clean"):
        assert draw_of_seed({"kind": kind}, 7) == 0


def test_joined_by_identity_and_not_by_place(data, tmp_path):
    done = write_setting(data, tmp_path, "digits", "s", NOISE)
    ids = load.ids(data, "digits", "train")
    order = np.random.default_rng(0).permutation(len(ids))
    table = {"labels": done.labels[order], "ids": ids[order]}
    assert np.array_equal(align_to_ids(table, "labels", ids, "x"), done.labels)
    foreign = ids.copy()
    foreign[5] += np.uint64(1)
    for wrong in (foreign, ids[:-1], np.where(np.arange(len(ids)) == 0, ids[1], ids)):
        with pytest.raises(UserError, match=r"file: \d+ examples, \d of them unknown, for a dataset of 1438"):
            align_to_ids({"labels": done.labels[: len(wrong)], "ids": wrong}, "labels", ids, "file")
    labels_file, _ = setting_files(tmp_path, "digits", "s")
    save_npz(labels_file, labels=done.labels, ids=foreign)
    with pytest.raises(UserError, match="belongs to other data"):
        read_labels(labels_file, data, "digits")


def test_what_a_setting_needs(data, tmp_path):
    assert required_datasets("cifar10", {"kind": "human", "column": "worse_label"}) == ("cifar10", "cifar10n")
    assert required_datasets("digits", NOISE) == ("digits",)
    with pytest.raises(UserError, match="cifar10 is not prepared"):
        write_setting(data, tmp_path, "cifar10", "s", NOISE)
    with pytest.raises(UserError, match="digits_near is not a set to learn from"):
        write_setting(data, tmp_path, "digits_near", "s", NOISE)
    assert catalogue.get("digits").n_classes == 10
