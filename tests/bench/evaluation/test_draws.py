"""Which numbers a test may count: a seed of a dataset once, labels that all seeds share once in all."""

import pytest

from sgoif.bench.evaluation.draws import draws_own_noise, panels_by_draw, values_by_draw
from sgoif.bench.evaluation.table_layout import Panel

OWN, SHARED = {"seeds": [0, 1], "values": [0.2, 0.2]}, {"seeds": [None], "values": [0.2]}
GRID = [Panel("noisy", "digits", s, "Digits", kind="class_conditional", seeds=[0, 1]) for s in ("n20", "n40")]
HUMAN = Panel("noisy", "cifar10", "worse", "CIFAR-10", kind="human", seeds=[0, 1])
OOD = Panel("ood", "cifar10", "clean", "CIFAR-10", seeds=[0, 1, 2])


def record(*values, seeds=(0, 1)):
    return {"mean": sum(values) / len(values), "seeds": list(seeds)[: len(values)], "values": list(values)}


def test_settings_of_one_seed_are_one_draw_and_shared_labels_are_one_in_all():
    facts = {"n20": OWN, "n40": OWN, "worse": SHARED}
    groups = panels_by_draw([*GRID, HUMAN], lambda panel: facts[panel.setting])
    assert list(groups) == [("digits", 0), ("digits", 1), ("cifar10", None)]
    numbers = {"n20": record(0.9, 0.7), "n40": record(0.5, 0.6), "worse": record(0.4, 0.2)}
    values = values_by_draw(groups, lambda panel: numbers[panel.setting])
    assert values == pytest.approx({("digits", 0): 0.7, ("digits", 1): 0.65, ("cifar10", None): 0.3})
    assert list(panels_by_draw(GRID, lambda panel: SHARED)) == [("digits", None)], "older records: one draw"


def test_a_draw_that_lacks_a_number_does_not_count():
    groups = panels_by_draw(GRID, lambda panel: OWN)
    numbers = {"n20": record(0.9, 0.7), "n40": record(0.5)}
    assert values_by_draw(groups, lambda panel: numbers[panel.setting]) == {("digits", 0): pytest.approx(0.7)}
    assert values_by_draw(groups, lambda panel: None) == {}


def test_clean_labels_leave_the_training_seeds_independent():
    assert draws_own_noise(OOD, None) and draws_own_noise(GRID[0], OWN) and not draws_own_noise(HUMAN, SHARED)
