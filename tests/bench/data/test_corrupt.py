import numpy as np
import pytest
from cleanlab.benchmarking.noise_generation import generate_noisy_labels
from hypothesis import given, settings
from hypothesis import strategies as st

from sgoif.bench.data import catalogue
from sgoif.bench.data.noise.corrupt import corrupt, published_order
from sgoif.bench.data.noise.matrix import noise_matrix
from sgoif.bench.data.noise.spec import HUMAN_COLUMNS, check_spec, is_symmetric, known_rate
from sgoif.bench.data.noisy_labels import check_setting
from sgoif.errors import UserError


def labels(n: int = 2000, k: int = 10, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, k, n)


@pytest.mark.parametrize("noise, trace", [(0.2, 8), (0.4, 6), (0.7, 3)])
@pytest.mark.parametrize("sparsity", [0.0, 0.2, 0.4, 0.6])
def test_labels_are_drawn_as_the_published_ones(noise, trace, sparsity):
    true_labels = labels()
    done = corrupt(true_labels, 10, {"kind": "class_conditional", "noise": noise, "sparsity": sparsity, "seed": 0})
    matrix = noise_matrix(10, trace, sparsity, 0)
    assert np.array_equal(done.matrix, matrix), "the trace is exactly that of the published matrix"
    order = published_order(true_labels)
    np.random.seed(0)
    assert np.array_equal(done.labels[order], generate_noisy_labels(true_labels[order], matrix))
    assert noise - 90 / 2000 < done.rate <= noise + 0.02


def test_published_order_is_by_class_and_then_by_file_name():
    true_labels = np.zeros(1200, int)
    true_labels[[5, 1012, 3]] = 1
    order = published_order(true_labels)
    assert order[-3:].tolist() == [1012, 3, 5]
    assert order[:4].tolist() == [0, 1000, 1001, 1002] and order.tolist().index(10) < order.tolist().index(1)


@settings(max_examples=60, deadline=None)
@given(
    rate=st.floats(0, 1),
    n=st.integers(20, 300),
    k=st.integers(2, 12),
    seed=st.integers(0, 9),
    noise_seed=st.integers(0, 9),
)
def test_symmetric(rate, n, k, seed, noise_seed):
    true_labels = labels(n, k, seed)
    done = corrupt(true_labels, k, {"kind": "symmetric", "rate": rate, "seed": noise_seed})
    for y in range(k):
        mine = true_labels == y
        assert abs(done.wrong[mine].sum() - rate * mine.sum()) <= 0.5 + 1e-9, "an exact share of every class"
    assert np.array_equal(done.wrong, done.labels != true_labels) and done.rate == done.wrong.mean()
    assert np.allclose(done.matrix.sum(0), 1) and 0 <= done.labels.min() and done.labels.max() < k


def test_symmetric_reaches_every_other_class_evenly():
    true_labels = np.repeat(np.arange(5), 2000)
    done = corrupt(true_labels, 5, {"kind": "symmetric", "rate": 0.5, "seed": 1})
    counts = np.bincount(done.labels * 5 + true_labels, minlength=25).reshape(5, 5)
    assert (counts.diagonal() == 1000).all()
    off = counts[~np.eye(5, dtype=bool)]
    assert off.min() > 200 and off.max() < 300


def test_asymmetric_patrini():
    true_labels = np.repeat(np.arange(10), 100)
    done = corrupt(true_labels, 10, {"kind": "asymmetric", "rate": 0.4, "map": "cifar10", "seed": 0})
    names = catalogue.get("cifar10").classes
    moved = {(names[a], names[b]) for a, b in zip(true_labels[done.wrong], done.labels[done.wrong], strict=True)}
    assert moved == {
        ("truck", "automobile"),
        ("bird", "airplane"),
        ("deer", "horse"),
        ("cat", "dog"),
        ("dog", "cat"),
    }
    assert done.rate == 0.2, "five of ten classes: half the rate"


def test_asymmetric_next_and_explicit():
    true_labels = np.repeat(np.arange(4), 50)
    done = corrupt(true_labels, 4, {"kind": "asymmetric", "rate": 0.3, "map": "next"})
    assert set(((done.labels - true_labels) % 4)[done.wrong]) == {1} and done.rate == 0.3
    done = corrupt(true_labels, 4, {"kind": "asymmetric", "rate": 1.0, "map": {"0": 3, 2: 1}})
    assert done.labels.tolist() == [3] * 50 + [1] * 50 + [1] * 50 + [3] * 50
    assert done.matrix[3, 0] == 1 and done.matrix[0, 0] == 0


def test_superclass_stays_inside_the_true_superclass():
    d = catalogue.get("cifar100")
    true_labels = np.repeat(np.arange(100), 20)
    done = corrupt(true_labels, 100, {"kind": "superclass", "rate": 0.2, "seed": 0}, superclasses=d.superclasses)
    groups = np.array(d.superclasses)
    assert np.array_equal(groups[true_labels], groups[done.labels]) and done.rate == 0.2
    assert (np.bincount(true_labels[done.wrong], minlength=100) == 4).all(), "every class is affected"
    followers = {a: b for a, b in zip(true_labels[done.wrong].tolist(), done.labels[done.wrong].tolist(), strict=True)}
    trees = [y for y in range(100) if groups[y] == 17]
    assert [followers[y] for y in trees] == trees[1:] + trees[:1]


def test_human_labels_are_joined_by_identity():
    true_labels = labels(60)
    columns = {"clean_label": true_labels.astype(np.uint8), "worse_label": (true_labels + (np.arange(60) < 15)) % 10}
    done = corrupt(true_labels, 10, {"kind": "human", "column": "worse_label"}, columns=columns)
    assert done.rate == 0.25 and done.wrong[:15].all() and np.allclose(done.matrix.sum(0), 1)
    with pytest.raises(UserError, match="differs from the dataset's labels in 2 of 60 places"):
        other = true_labels.copy()
        other[[3, 4]] = (other[[3, 4]] + 1) % 10
        corrupt(true_labels, 10, {"kind": "human", "column": "worse_label"}, columns=columns | {"clean_label": other})
    with pytest.raises(UserError, match="differs from the dataset's labels"):
        corrupt(true_labels[:-1], 10, {"kind": "human", "column": "worse_label"}, columns=columns)
    with pytest.raises(UserError, match="has only clean_label, worse_label"):
        corrupt(true_labels, 10, {"kind": "human", "column": "aggre_label"}, columns=columns)
    with pytest.raises(UserError, match="prepare cifar10n"):
        corrupt(true_labels, 10, {"kind": "human", "column": "worse_label"})


@pytest.mark.parametrize(
    "spec",
    [
        {"kind": "clean"},
        {"kind": "class_conditional", "noise": 0.3, "sparsity": 0.3, "seed": 4},
        {"kind": "symmetric", "rate": 0.3, "seed": 4},
        {"kind": "asymmetric", "rate": 0.3, "map": "next", "seed": 4},
    ],
)
def test_same_seed_same_labels_other_seed_others_and_no_global_state(spec):
    true_labels = labels()
    np.random.seed(1)
    first = corrupt(true_labels, 10, spec)
    state = np.random.get_state()[1].copy()
    np.random.seed(2)
    second = corrupt(true_labels, 10, spec)
    assert np.array_equal(first.labels, second.labels) and first.labels.dtype == np.int64
    np.random.seed(1)
    assert np.array_equal(state, np.random.get_state()[1])
    if spec["kind"] != "clean":
        assert not np.array_equal(first.labels, corrupt(true_labels, 10, spec | {"seed": 5}).labels)
        assert not np.array_equal(true_labels, first.labels)
    else:
        assert (
            np.array_equal(true_labels, first.labels) and first.rate == 0 and np.array_equal(first.matrix, np.eye(10))
        )


@pytest.mark.parametrize(
    "spec, message",
    [
        ("symmetric", "noise: expected keys and values"),
        ({}, r"noise\.kind: None is not a kind"),
        ({"kind": "symetric", "rate": 0.2}, r"noise\.kind: .*did you mean symmetric"),
        ({"kind": "symmetric"}, r"noise\.rate: missing"),
        ({"kind": "symmetric", "rate": 0.2, "sede": 1}, r"noise\.sede: unknown .*did you mean seed"),
        ({"kind": "symmetric", "rate": 1.2}, r"noise\.rate: expected a number from 0 to 1, got 1\.2"),
        ({"kind": "symmetric", "rate": "0.2"}, r"noise\.rate: expected a number"),
        ({"kind": "symmetric", "rate": True}, r"noise\.rate: expected a number"),
        ({"kind": "symmetric", "rate": float("nan")}, r"noise\.rate: expected a number"),
        ({"kind": "symmetric", "rate": 0.2, "seed": -1}, r"noise\.seed: expected a whole number"),
        ({"kind": "symmetric", "rate": 0.2, "seed": 0.5}, r"noise\.seed: expected a whole number"),
        ({"kind": "class_conditional", "noise": 0}, r"noise\.noise: 0 must lie strictly between"),
        ({"kind": "class_conditional", "noise": 1.0}, r"noise\.noise: .* strictly between"),
        ({"kind": "class_conditional", "noise": -0.1}, r"noise\.noise: expected a number"),
        ({"kind": "class_conditional", "noise": 0.99999}, r"noise\.noise: .* trace of 0\.0001"),
        ({"kind": "class_conditional", "noise": 0.2, "sparsity": 0.9}, r"noise\.sparsity: 0\.9 .*at most 0\.8889"),
        ({"kind": "class_conditional", "noise": 0.2, "sparsity": -0.1}, r"noise\.sparsity: expected a number"),
        ({"kind": "asymmetric", "rate": 0.2, "map": "cifar"}, r"noise\.map: expected 'cifar10', 'next' or pairs"),
        ({"kind": "asymmetric", "rate": 0.2, "map": {0: 0}}, r"noise\.map: 0 -> 0 needs two different"),
        ({"kind": "asymmetric", "rate": 0.2, "map": {0: 10}}, r"noise\.map: 0 -> 10 needs two different"),
        ({"kind": "asymmetric", "rate": 0.2, "map": {"cat": "dog"}}, r"noise\.map: classes are whole numbers"),
        ({"kind": "asymmetric", "rate": 0.2, "map": {}}, r"noise\.map: expected"),
        ({"kind": "superclass", "rate": 0.2}, r"noise\.kind: superclass noise needs a dataset with superclasses"),
        ({"kind": "human", "column": "worse"}, r"noise\.column: no 'worse'; did you mean worse_label"),
    ],
)
def test_impossible_specifications_name_the_key(spec, message):
    with pytest.raises(UserError, match=message) as e:
        check_spec(spec, 10)
    assert "\n" not in str(e.value)


def test_specifications_and_datasets():
    patrini = {"kind": "asymmetric", "rate": 0.4, "map": "cifar10"}
    check_setting("cifar10", patrini)
    check_setting("cifar100", {"kind": "superclass", "rate": 0.2})
    check_setting("cifar100", {"kind": "human", "column": "noisy_label"})
    for dataset, spec, message in (
        ("cifar100", patrini, r"here\.map: 'cifar10' is for CIFAR-10's classes only"),
        ("MNIST", patrini, r"here\.map: 'cifar10' is for CIFAR-10's classes only"),
        ("digits_id", patrini, r"here\.map: 'cifar10' is for CIFAR-10's classes only"),
        ("MNIST", {"kind": "human", "column": "worse_label"}, r"here\.kind: human labels exist for cifar10 and"),
        ("digits_id", {"kind": "human", "column": "worse_label"}, r"here\.kind: human labels exist"),
        ("cifar10", {"kind": "superclass", "rate": 0.2}, r"here\.kind: superclass noise needs"),
        ("svhn", {"kind": "symmetric", "rate": 0.2}, "here: svhn is not a set to learn from"),
        ("cifra10", {"kind": "clean"}, "no dataset is called 'cifra10'; did you mean cifar10"),
    ):
        with pytest.raises(UserError, match=message):
            check_setting(dataset, spec, "here")
    with pytest.raises(UserError, match="is for 10 classes, the dataset has 6"):
        check_spec(patrini, 6)


@pytest.mark.parametrize(
    "bad, message",
    [
        (np.array([0, 1, 10]), r"labels\[2\] is 10, outside 0 \.\. 9"),
        (np.array([0, -1]), r"labels\[1\] is -1"),
        (np.array([0.0, 1.0]), "expected a list of integers, got float64"),
        (np.array([[0, 1]]), "expected a list of integers"),
        (np.array([], int), "expected a list of integers"),
    ],
)
def test_bad_labels(bad, message):
    with pytest.raises(UserError, match=message):
        corrupt(bad, 10, {"kind": "clean"})


@pytest.mark.parametrize(
    ("spec", "symmetric"),
    [
        ({"kind": "clean"}, False),
        ({"kind": "symmetric", "rate": 0.3}, True),
        ({"kind": "asymmetric", "rate": 0.4, "map": "next"}, False),
        ({"kind": "asymmetric", "rate": 0.4, "map": "cifar10"}, False),
        ({"kind": "class_conditional", "noise": 0.4, "sparsity": 0.0}, True),
        ({"kind": "class_conditional", "noise": 0.4, "sparsity": 0.4}, False),
    ],
)
def test_the_known_rate_is_the_rate_that_comes_out(spec, symmetric):
    """What a method may be told, without comparing labels with the truth."""
    true_labels = np.arange(20_000) % 10
    assert known_rate(spec, 10) == pytest.approx(corrupt(true_labels, 10, spec).rate, abs=0.02)
    assert is_symmetric(spec) == symmetric


def test_the_rate_of_people_is_the_published_one_and_of_collected_labels_nobody_knows_it():
    assert known_rate({"kind": "human", "column": "worse_label"}, 10) == 0.4021
    assert known_rate({"kind": "collected"}, 10) is None
    assert known_rate({"kind": "superclass", "rate": 0.2}, 100, [k // 5 for k in range(100)]) == 0.2


def test_the_rates_of_human_labels_are_those_of_the_released_files():
    """In percent, counted in the files of CIFAR-10N and CIFAR-100N."""
    published = {10: (9.01, 17.23, 18.12, 17.64, 40.21), 100: (40.20,)}
    for n_classes, rates in published.items():
        found = [known_rate({"kind": "human", "column": name}, n_classes) for name in HUMAN_COLUMNS[n_classes]]
        assert found == [pytest.approx(rate / 100) for rate in rates]
