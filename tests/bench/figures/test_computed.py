"""What figures compute before anything is drawn: curves, ranks, places of names."""

from types import SimpleNamespace

import numpy as np
import pytest

from sgoif.bench.evaluation.detection_curves import example_setting, probability_bins, ranking_curves
from sgoif.bench.figures import _labels, _style
from sgoif.bench.figures.comparison import cleaning, pareto, ranks
from sgoif.bench.figures.method import parts, reproducibility


def test_ranking_curves_against_a_ranking_by_hand():
    scores, wrong = np.array([4.0, 3.0, 3.0, 1.0]), np.array([True, False, True, False])
    curves = ranking_curves(scores, wrong)
    x = np.linspace(0, 1, 51)
    expected = np.interp(4 * x, [0, 1, 3, 4], [0, 1, 2, 2]) / 2  # the tie of two counts half for each
    assert curves["recall"] == pytest.approx(expected)
    assert curves["precision"][x <= 0.5] == pytest.approx(1.0)
    assert curves["precision"][x > 0.5] == pytest.approx(2 / 3)


def test_the_area_under_the_precision_curve_is_average_precision():
    from sklearn.metrics import average_precision_score

    rng = np.random.default_rng(0)
    wrong = np.zeros(400, dtype=bool)
    wrong[:100] = True  # the grid's 50 steps of recall are two hits each
    scores = rng.normal(size=400) + 1.5 * wrong
    area = ranking_curves(scores, wrong)["precision"][1:].mean()
    assert area == pytest.approx(average_precision_score(wrong, scores), abs=0.005)


def test_the_example_is_human_noise_where_there_is_some():
    made, human = {"kind": "class_conditional"}, {"kind": "human"}
    assert example_setting({"a": {"kind": "symmetric"}, "b": made}) == "b"
    assert example_setting({"a": made, "b": human}) == "b"


def test_pareto_keeps_what_no_other_beats():
    points = {"cheap": (1, 50), "good": (2, 90), "dear": (3, 80), "best": (4, 95), "tie": (2, 90)}
    assert pareto.pareto(points) == ["cheap", "good", "best"]
    assert pareto.pareto(points | {"sgoif_trusted": (1, 99)}) == ["cheap", "good", "best"]  # has more to go by


def test_seeds_are_compared_where_sgoif_has_two():
    values = {
        ("easy", "sgoif"): {0: 0.5, 1: 0.7}, ("easy", "aum"): {0: 0.5, 1: 0.5}, ("easy", "loss"): {0: 0.1},
        ("hard", "sgoif"): {0: 0.4}, ("hard", "aum"): {0: 0.1, 1: 0.9}, ("hard", "loss"): {0: 0.1, 1: 0.2},
    }  # fmt: skip
    data = SimpleNamespace(
        config={"noisy": {"digits": {"settings": {"easy": {}, "hard": {}}}}},
        by_seed=lambda dataset, setting, method: values[setting, method],
    )
    found = reproducibility.deviations(data, "digits", ["sgoif", "aum", "loss"])
    assert found == {"sgoif": [pytest.approx(20 / 2**0.5)], "aum": [0.0]}, "a hard setting of AUM alone does not count"


def test_cliques_are_the_largest_groups_within_the_difference():
    found = ranks.cliques({"a": 1.0, "b": 2.0, "c": 2.5, "d": 5.0}, 1.6)
    assert found == [(1.0, 2.5)]
    assert ranks.cliques({"a": 1.0, "b": 2.0, "c": 3.0}, 1.5) == [(1.0, 2.0), (2.0, 3.0)]
    assert ranks.cliques({"a": 1.0, "b": 3.0}, 1.5) == []


def test_methods_with_the_same_values_are_one_entry_of_the_ranks():
    values = {"a": [0.5, 0.6], "b": [0.1, 0.2], "c": [0.5, 0.6]}
    assert ranks.merge_equal(values) == {"a|c": [0.5, 0.6], "b": [0.1, 0.2]}


def test_sgoif_and_the_best_others_are_told_apart_and_the_rest_is_pale():
    styles = _style.method_styles(["aum", "sgoif", *(f"m{i}" for i in range(8)), "sgoif_trusted"])
    assert styles["sgoif"] == _style.OURS_STYLE and styles["sgoif_trusted"] == _style.BESIDE_STYLE
    beside = _style.method_styles(["trusted_probe", "sgoif_trusted", "glc", "sgoif"])
    assert [beside[m] for m in ("trusted_probe", "sgoif_trusted", "glc")] == [
        _style.BESIDE_STYLE, _style.SECOND_BESIDE_STYLE, _style.PALE_STYLE,
    ]  # fmt: skip
    named = [m for m, style in styles.items() if style not in (_style.PALE_STYLE, _style.BESIDE_STYLE)]
    assert named == ["aum", "sgoif", "m0", "m1", "m2", "m3"] and len({styles[m] for m in named}) == 6


def test_names_are_moved_apart_as_little_as_needed():
    assert _labels.spread([0.1, 0.5, 0.9], 0.1, 0, 1) == [0.1, 0.5, 0.9]
    assert _labels.spread([0.5, 0.5, 0.1], 0.2, 0, 1) == pytest.approx([0.4, 0.6, 0.1])
    assert _labels.spread([1.0, 1.0], 0.2, 0, 1) == pytest.approx([0.8, 1.0])
    crowded = _labels.spread([0.5] * 11, 0.2, 0, 1)
    assert sorted(crowded) == pytest.approx(np.linspace(0, 1, 11))


def test_names_of_about_the_same_cost_stand_in_one_column():
    points = {"a": (1.0, 1), "b": (1.1, 2), "c": (2.0, 3), "d": (2.2, 4), "e": (3.0, 5)}
    assert pareto.columns(points) == [["a", "b"], ["c", "d"], ["e"]]


def test_probabilities_are_counted_by_bin():
    odds = np.log(np.array([0.25 / 0.75, 0.95 / 0.05, 0.95 / 0.05, 1e-300, np.exp(700.0)]))
    count, probability, wrong = probability_bins(odds, np.array([True, True, False, False, True]))
    assert count.tolist() == [1, 0, 1, 0, 0, 0, 0, 0, 0, 3] and wrong.tolist() == [0, 0, 1, 0, 0, 0, 0, 0, 0, 2]
    assert probability[9] == pytest.approx(2.9)


def test_another_method_and_the_parts_are_shown_over_the_seeds_that_both_have():
    found = {"sgoif": {0: 0.98, 1: 0.70}, "aum": {0: 0.90, 1: 0.66}, "incv": {0: 0.95}, "elr": {2: 0.99}}
    data = SimpleNamespace(
        by_seed=lambda dataset, setting, method, variant="": found[method],
        rivals=lambda dataset, metric: ["aum", "incv", "elr"],
    )
    best = parts._best_other(data, "cifar10", "n40_s2")
    assert (best.method, best.value, best.seeds) == ("incv", pytest.approx(95.0), {0}), "one easy seed is no lead"
    assert [parts._words(best, outside) for outside in (False, True)] == ["INCV, 1 seed", "INCV 95.0, 1 seed"]
    assert parts._values(data, "cifar10", "n40_s2", "", best).tolist() == [98.0]
    assert parts._values(data, "cifar10", "n40_s2", "", None).tolist() == [98.0, 70.0]


def test_accuracies_are_of_the_seeds_that_plain_training_and_sgoif_both_have():
    found = {"plain": {0: 0.8, 1: 0.6}, "sgoif": {0: 0.9}, "gce": {0: 0.7, 1: 0.5}, "elr": {1: 0.99}}
    data = SimpleNamespace(by_seed=lambda dataset, setting, method, metric: found[method])
    shown = cleaning._accuracies(data, "cifar10", "n40_s2", ["gce", "elr"])
    values = {method: [pytest.approx(v) for v in by_seed] for method, by_seed in shown.items()}
    assert values == {"plain": [80.0], "sgoif": [90.0], "gce": [70.0], "elr": []}
