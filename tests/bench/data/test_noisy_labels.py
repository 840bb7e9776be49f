import numpy as np
import pytest

from sgoif.bench.data import catalogue, load
from sgoif.bench.data.noisy_labels import inputs, joined, paths, read_given, write_setting
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
    given_file, truth_file = paths(tmp_path, "digits", "cc20")
    assert given_file == tmp_path / "labels/digits/cc20.npz" and truth_file == tmp_path / "truth/digits/cc20.npz"
    given, truth = load_npz(given_file), load_npz(truth_file)
    assert set(given) == {"given", "ids"}, "nothing in the methods' file says which labels are wrong"
    assert set(truth) == {"clean", "wrong", "ids", "rate", "matrix"}
    assert given["given"].dtype == np.int64 and np.array_equal(given["given"], done.given)
    assert np.array_equal(truth["wrong"], given["given"] != truth["clean"]) and truth["rate"] == truth["wrong"].mean()
    assert np.array_equal(truth["clean"], load.labels(data, "digits", "train"))
    assert np.array_equal(truth["ids"], given["ids"])
    assert np.array_equal(read_given(given_file, data, "digits"), done.given)


def test_again_is_the_same_file_bit_for_bit(data, tmp_path):
    both = []
    for run in ("a", "b"):
        write_setting(data, tmp_path / run, "digits", "s", NOISE)
        both.append([p.read_bytes() for p in paths(tmp_path / run, "digits", "s")])
    assert both[0] == both[1]
    stamps = [p.stat().st_mtime_ns for p in paths(tmp_path / "a", "digits", "s")]
    write_setting(data, tmp_path / "a", "digits", "s", NOISE)
    assert [p.stat().st_mtime_ns for p in paths(tmp_path / "a", "digits", "s")] == stamps


def test_joined_by_identity_and_not_by_place(data, tmp_path):
    done = write_setting(data, tmp_path, "digits", "s", NOISE)
    ids = load.ids(data, "digits", "train")
    order = np.random.default_rng(0).permutation(len(ids))
    table = {"given": done.given[order], "ids": ids[order]}
    assert np.array_equal(joined(table, "given", ids, "x"), done.given)
    foreign = ids.copy()
    foreign[5] += np.uint64(1)
    for wrong in (foreign, ids[:-1], np.where(np.arange(len(ids)) == 0, ids[1], ids)):
        with pytest.raises(UserError, match=r"file: \d+ examples, \d of them unknown, for a dataset of 1438"):
            joined({"given": done.given[: len(wrong)], "ids": wrong}, "given", ids, "file")
    given_file, _ = paths(tmp_path, "digits", "s")
    save_npz(given_file, given=done.given, ids=foreign)
    with pytest.raises(UserError, match="belongs to other data"):
        read_given(given_file, data, "digits")


def test_what_a_setting_needs(data, tmp_path):
    assert inputs("cifar10", {"kind": "human", "column": "worse_label"}) == ("cifar10", "cifar10n")
    assert inputs("digits", NOISE) == ("digits",)
    with pytest.raises(UserError, match="cifar10 is not prepared"):
        write_setting(data, tmp_path, "cifar10", "s", NOISE)
    with pytest.raises(UserError, match="digits_near is not a set to learn from"):
        write_setting(data, tmp_path, "digits_near", "s", NOISE)
    assert catalogue.get("digits").n_classes == 10
