"""`sgoif.find_label_issues`: wrong labels among features of any kind of array."""

from functools import partial

import numpy as np
import pandas
import pytest
import scipy.sparse
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score

import sgoif
from sgoif.errors import InfluenceError
from sgoif.features import head as head_module
from sgoif.features import held_out
from sgoif.features.arrays import FeatureArray
from sgoif.features.fourier import choose_projection
from sgoif.features.head import HeadTraining
from sgoif.label_noise import held_out_evidence
from sgoif.label_noise.projection import MAX_DIRECTIONS, fit_projection, main_directions

NAMES = np.array(["ash", "birch", "cedar"])


@pytest.fixture(scope="module")
def digits():
    """Pixels of a thousand digits, labels of which a fifth was moved to another class, and which ones were."""
    pixels, right = (part[:1000] for part in load_digits(return_X_y=True))
    rng = np.random.default_rng(5)
    wrong = rng.random(len(right)) < 0.2
    labels = np.where(wrong, (right + rng.integers(1, 10, len(wrong))) % 10, right)
    return pixels, labels, wrong


@pytest.fixture(scope="module")
def found(digits):
    return sgoif.find_label_issues(digits[0], digits[1])


@pytest.fixture
def trees():
    """240 examples of three classes far apart; the first eight of the first class are called by another name."""
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(3), 80)
    features = rng.normal(size=(240, 6)) + 5 * np.eye(3, 6)[codes]
    labels = NAMES[codes]
    labels[:8] = "cedar"
    return features, labels


def test_wrong_labels_of_digits_come_first(digits, found):
    _, labels, wrong = digits
    assert average_precision_score(wrong, found.suspicion) > 0.97
    assert abs(found.count - wrong.sum()) < 0.06 * wrong.sum()
    assert wrong[found.flagged].mean() > 0.92
    assert found.probability[wrong].mean() > 0.8 > 0.2 > found.probability[~wrong].mean()
    right = load_digits().target[:1000]
    assert (found.suggested == right)[wrong & found.flagged].mean() > 0.9
    assert (found.suggested == labels)[~found.flagged].all()


def test_few_clean_labels_are_flagged():
    pixels, right = load_digits(return_X_y=True)
    assert sgoif.find_label_issues(pixels[:1000], right[:1000]).flagged.mean() < 0.01


def test_heads_are_fitted_to_a_part_of_a_large_set(digits, found, monkeypatch):
    fitted = []
    fit = held_out_evidence.fit_held_out_classes
    monkeypatch.setattr(held_out_evidence, "MAX_FITTED", 700)
    monkeypatch.setattr(
        held_out_evidence, "fit_held_out_classes", lambda x, *rest: fitted.append(len(x)) or fit(x, *rest)
    )
    part = sgoif.find_label_issues(*digits[:2])
    assert fitted == [700]
    assert abs(part.count - found.count) < 0.1 * found.count


def test_with_many_classes_the_trained_head_itself_is_asked(trees, monkeypatch):
    monkeypatch.setattr("sgoif.label_noise.held_out_evidence.MAX_LOGITS", 1)
    monkeypatch.setattr(held_out, "read_held_out_heads", None)
    with pytest.warns(UserWarning, match="3 classes are too many for heads that have not seen an example"):
        assert set(sgoif.find_label_issues(*trees).order[:8]) == set(range(8))


def test_many_small_classes_of_clean_labels_are_not_flagged():
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(120), 6)
    features = rng.normal(size=(len(codes), 16)) + 5 * rng.normal(size=(120, 16))[codes]
    assert sgoif.find_label_issues(features, codes).count < 0.02 * len(codes)


@pytest.mark.parametrize(
    ("n", "width", "n_classes", "expected"),
    [
        (50_000, 256, 100, 20_000),
        (50_000, 2048, 100, 20_000),
        (5_000, 256, 1000, 0),
        (5_000, 40, 1000, 5_000),
        (50_000, 256, 160, 12_500),
        (50_000, 256, 161, 12_422),
        (50_000, 256, 300, 6_666),
    ],
)
def test_heads_are_fitted_to_so_many_examples(n, width, n_classes, expected):
    assert held_out_evidence.fitted_examples(n, width, n_classes) == expected


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, partial(torch.autocast, "cpu")])
def test_it_may_be_called_where_gradients_are_off(trees, mode):
    expected = sgoif.find_label_issues(*trees)
    with mode():
        features = torch.from_numpy(trees[0]) * 1.0
        issues = sgoif.find_label_issues(features, trees[1])
    assert (issues.suspicion == expected.suspicion).all()


def test_random_numbers_and_the_default_type_of_the_caller_are_left_alone(trees):
    expected = sgoif.find_label_issues(*trees)
    torch.manual_seed(1)
    untouched = torch.rand(3)
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    try:
        issues = sgoif.find_label_issues(*trees)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(torch.rand(3), untouched)
    assert (issues.order == expected.order).all() and issues.count == expected.count


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"device": "gpu"}, 'it must be "cpu", or "cuda" for a GPU'),
        ({"recipe": {"epochs": 5}}, "recipe must be an sgoif.HeadRecipe, not a dict"),
        ({"seed": None}, "seed = None: must be a whole number"),
        ({"seed": -1}, "seed = -1: must be at least 0"),
        ({"checked": {"x": [[1.0]], "y": [0]}}, "checked must be a pair"),
    ],
)
def test_options_of_another_kind_are_told(trees, options, told):
    with pytest.raises(InfluenceError, match=told):
        sgoif.find_label_issues(*trees, **options)


def test_seeds_and_checked_labels_may_be_of_any_number_type(trees):
    features, labels = trees
    codes = np.unique(labels, return_inverse=True)[1]
    few = features[100:130], codes[100:130]
    expected = sgoif.find_label_issues(features, codes, checked=few, seed=3)
    issues = sgoif.find_label_issues(
        features, codes.astype(float), checked=(few[0], few[1].astype(float)), seed=np.int64(3)
    )
    assert (issues.suspicion == expected.suspicion).all()


def test_masked_labels_are_missing_ones(trees):
    codes = np.unique(trees[1], return_inverse=True)[1]
    masked = np.ma.masked_array(codes, np.arange(len(codes)) == 7)
    with pytest.raises(InfluenceError, match="labels: row 7 has none"):
        sgoif.find_label_issues(trees[0], masked)


def test_the_order_falls_with_the_suspicion_and_rows_follow_it(found):
    assert (np.diff(found.suspicion[found.order]) <= 0).all()
    rows = found.rows()
    assert len(rows) == found.count and all(row["flagged"] for row in rows)
    assert [row["index"] for row in found.rows(3)] == found.order[:3].tolist()
    assert rows[0]["label"] == found.labels[rows[0]["index"]]


def test_labels_and_suggestions_keep_their_names(trees):
    issues = sgoif.find_label_issues(*trees)
    assert set(issues.order[:8]) == set(range(8))
    assert issues.classes.tolist() == NAMES.tolist()
    assert {(row["label"], row["suggested"]) for row in issues.rows(8)} == {("cedar", "ash")}


def test_every_kind_of_array_gives_the_same(trees, tmp_path):
    features, labels = trees
    features = features.astype(np.float32)
    expected = sgoif.find_label_issues(features, labels).suspicion
    np.save(tmp_path / "features.npy", features)
    frame = pandas.DataFrame(features).assign(tree=labels)
    frame.columns = frame.columns.astype(str)
    for given in (
        (torch.from_numpy(features), labels.tolist()),
        (np.load(tmp_path / "features.npy", mmap_mode="r"), pandas.Series(labels)),
        (str(tmp_path / "features.npy"), labels),
        (features.tolist(), labels),
        (frame, "tree"),
        (frame.drop(columns="tree"), frame["tree"].astype("category")),
    ):
        assert np.array_equal(sgoif.find_label_issues(*given).suspicion, expected)


def test_a_large_file_is_read_in_blocks_and_gives_the_same(digits, found, tmp_path, monkeypatch):
    pixels, labels, _ = digits
    np.save(tmp_path / "pixels.npy", pixels)
    array, read = FeatureArray(pixels), []
    projection = choose_projection(array, labels, 10, fit_projection(array), seed=0)
    rows = FeatureArray.rows
    monkeypatch.setattr(head_module, "KEPT_ROWS", 100)
    monkeypatch.setattr(FeatureArray, "rows", lambda self, index: read.append(len(index)) or rows(self, index))
    mapped = FeatureArray(tmp_path / "pixels.npy", block_rows=256)
    recipe = sgoif.HeadRecipe.for_examples(len(mapped))
    training = HeadTraining(mapped, labels, 10, projection, recipe)
    for epoch in range(recipe.epochs):
        training.epoch(epoch)
    assert max(read) <= 256 and sum(read) == recipe.epochs * len(mapped)
    result = held_out.read_held_out(training, training.influence.scores())
    assert np.allclose(result.suspicion.numpy(), found.suspicion, atol=1e-2)


def test_checked_examples_name_the_classes():
    """Most labels of a class are wrong; without anybody who says so, the wrong ones are the class."""
    rng = np.random.default_rng(1)
    true = np.repeat(np.arange(3), 100)
    features = rng.normal(size=(300, 5)) + 4 * np.eye(3, 5)[true]
    labels = true.copy()
    labels[:70] = 1  # of the first class
    wrong = labels != true
    checked_labels = np.repeat(np.arange(3), 10)
    checked = (rng.normal(size=(30, 5)) + 4 * np.eye(3, 5)[checked_labels], checked_labels)
    without = average_precision_score(wrong, sgoif.find_label_issues(features, labels).suspicion)
    with_checked = average_precision_score(wrong, sgoif.find_label_issues(features, labels, checked=checked).suspicion)
    assert with_checked > 0.95 and with_checked > without + 0.02


def test_labels_may_be_whole_numbers_of_more_than_64_bits(trees):
    features, labels = trees
    large = {name: 2**80 + i for i, name in enumerate(NAMES)}
    found = sgoif.find_label_issues(features, np.array([large[name] for name in labels], dtype=object))
    assert np.array_equal(found.order, sgoif.find_label_issues(features, labels).order)


@pytest.mark.parametrize(("row", "value"), [(slice(100, 101), -9999.0), (slice(100, 105), 1e6), ((100, 2), 1e12)])
def test_rows_far_outside_are_told_and_do_not_set_the_scale_of_the_others(trees, row, value):
    features, labels = trees
    features[row] = value
    with pytest.warns(UserWarning, match="row 100 .*lies? more than 100 times as far out as half of all rows"):
        found = sgoif.find_label_issues(features, labels)
    others = [i for i in found.order if not 100 <= i < 105]
    assert set(others[:8]) == set(range(8)) and found.count <= 14


def test_without_a_row_far_outside_the_projection_is_that_of_all_rows(trees):
    features = trees[0].astype(np.float32)
    fitted = fit_projection(FeatureArray(features))
    assert fitted.far == [] and fitted.notes() == [] and fitted.limit == float("inf")
    torch.testing.assert_close(fitted.mean, torch.from_numpy(features.mean(0)))
    torch.testing.assert_close(fitted.basis.diagonal(), torch.from_numpy(1 / features.std(0)))


def test_a_column_in_large_units_does_not_silence_the_others(digits, found):
    pixels, labels, wrong = digits
    column = np.random.default_rng(0).normal(size=len(pixels)) * 1e6
    beside = sgoif.find_label_issues(np.c_[pixels, column], labels)
    assert average_precision_score(wrong, beside.suspicion) > average_precision_score(wrong, found.suspicion) - 0.02


def test_a_channel_that_is_switched_off_is_not_blown_up():
    features = np.random.default_rng(0).normal(size=(400, MAX_DIRECTIONS))
    features[:, 5] *= 1e-7
    spread = fit_projection(FeatureArray(features))(torch.tensor(features)).std(0)
    assert spread[5] < 0.01 < 0.9 < spread[0]


def test_columns_of_a_table_count_alike_whatever_their_units(trees):
    features, labels = trees
    units = np.array([5e4, 1e-5, 7e3, 1e6, 1e-9, 1.0])
    expected = sgoif.find_label_issues(features, labels)
    issues = sgoif.find_label_issues(features * units, labels)
    np.testing.assert_allclose(issues.probability, expected.probability, atol=1e-3)
    rounded = np.c_[features, 3e5 + 0.02 * np.random.default_rng(0).normal(size=len(features)), np.full(240, 7.0)]
    fitted = fit_projection(FeatureArray(rounded))
    spread = fitted(torch.tensor(rounded)).std(0)
    assert spread[:6].min() > 0.9 and spread[6:].max() < 0.1
    assert fitted.rounded == [6], "a constant column needs no note"
    (note,) = fitted.notes()
    assert "column 6 varies" in note


def test_main_directions_are_those_of_largest_variance():
    values = torch.randn(500, 40, generator=torch.Generator().manual_seed(0)) * torch.linspace(4, 0.1, 40)
    covariance = values.T @ values / 500
    found = main_directions(covariance, 5)
    assert torch.allclose(found.T @ found, torch.eye(5), atol=1e-5)
    kept, best = torch.trace(found.T @ covariance @ found), torch.linalg.eigvalsh(covariance)[-5:].sum()
    assert kept > 0.99 * best


def test_many_features_are_projected():
    values = np.random.default_rng(0).normal(size=(400, MAX_DIRECTIONS + 44)) * 7 + 3
    projected = fit_projection(FeatureArray(values))(torch.from_numpy(values))
    assert projected.shape == (400, MAX_DIRECTIONS)
    assert abs(float(projected.mean())) < 1e-3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x[:-1], y), "239 rows of features and 240 labels"),
        (lambda x, y: (x[:, 0], y), r"shape \[240\]; expected \[examples, features\]"),
        (lambda x, y: (x.reshape(240, 3, 2), y), "embed images first"),
        (lambda x, y: (np.where(np.arange(240)[:, None] == 17, np.nan, x), y), "row 17 has a missing"),
        (lambda x, y: (np.ones((240, 4)), y), "every example has the same ones"),
        (lambda x, y: (x.astype(str), y), "expected numbers"),
        (lambda x, y: (pandas.DataFrame({"a": x[:, 0], "b": y}), y), r"no numbers \(b\)"),
        (lambda x, y: (pandas.DataFrame(x), "tree"), "no such column"),
        (lambda x, y: (x, "tree"), "needs a pandas frame"),
        (lambda x, y: ("absent.npy", y), "no .npy file"),
        (lambda x, y: (np.zeros((240, 9000)), y), "at most 8192"),
        (lambda x, y: (x, np.array([*y[:-1], None], dtype=object)), "row 239 has none"),
        (lambda x, y: (x, np.where(np.arange(240) < 3, np.nan, 1.0)), "row 0 and 2 more has none"),
        (lambda x, y: (x, [*y[:-1].tolist(), float("nan")]), "row 239 has none"),
        (lambda x, y: (x, [*y[:-1].tolist(), ""]), "row 239 has none"),
        (lambda x, y: (x, np.array([*y[:-1], ""])), "row 239 has none"),
        (lambda x, y: (x, pandas.Series([*y[:-1], None], dtype="string")), "row 239 has none"),
        (lambda x, y: (scipy.sparse.csr_matrix(x), y), r"a sparse matrix; pass features\.toarray"),
        (lambda x, y: (np.ma.masked_less(x, 0), y), "masked entries"),
        (lambda x, y: (x, x[:, 0]), "regression"),
        (lambda x, y: (x, (x[:, :3] > 0).astype(int)), "multi-label"),
        (lambda x, y: (x, np.eye(3)[np.arange(240) % 3]), "argmax"),
        (lambda x, y: (x, [["ash"], ["ash", "birch"]] * 120), "multi-label"),
        (lambda x, y: (x, ["ash"] * 240), "one class only, 'ash'"),
        (lambda x, y: (x, np.where(np.arange(240) < 4, "rare", y)), r"too few examples of 'rare' \(4\)"),
    ],
)
def test_what_cannot_be_used_is_named(trees, change, message):
    with pytest.raises(sgoif.InfluenceError, match=message):
        sgoif.find_label_issues(*change(*trees))


def test_checked_examples_must_fit(trees):
    for checked, message in (
        ((np.zeros((3, 5)), ["ash"] * 3), "the others have 6"),
        ((np.zeros((3, 6)), ["ash"]), "3 rows of features and 1 labels"),
        ((np.zeros((3, 6)), ["ash", "elm", "ash"]), "'elm' is none of the 3 classes"),
    ):
        with pytest.raises(sgoif.InfluenceError, match=message):
            sgoif.find_label_issues(*trees, checked=checked)


def test_a_recipe_out_of_range_is_refused():
    wrong = [{"epochs": 1}, {"batch_size": 1}, {"lr": 0.0}, {"lr": "3"}, {"seed": -1}, {"weight_decay": -1.0}]
    for values in (*wrong, {"weight_decay": float("nan")}):
        with pytest.raises(sgoif.InfluenceError, match=next(iter(values))):
            sgoif.HeadRecipe(**values)
