"""Weighted means over visits, by hand: what a step counts for, what is kept, and a resumed state."""

import pytest
import torch

from sgoif.backend import collectives
from sgoif.scores.predictions import (
    MIN_STEP_VARIANCE,
    STATE,
    PredictedVisits,
    PredictionStatistics,
    spans,
    step_weights,
)

CPU, DOUBLE = torch.device("cpu"), torch.float64
WEIGHT = [name for name in STATE if name != "labels"].index("weight")
LOGIT = torch.tensor(3.0, dtype=DOUBLE).log().item()  # probabilities 3/4 and 1/4


def statistics(class_influence: bool = True) -> PredictionStatistics:
    return PredictionStatistics(3, 2, CPU, DOUBLE, class_influence)


def add(kept, logits, labels, place, index=None, valid=None, influence=None, first=0) -> None:
    n, logits = len(labels), torch.tensor(logits, dtype=DOUBLE)
    visits = PredictedVisits(
        torch.tensor(index or list(range(n))),
        torch.tensor(valid or [True] * n),
        logits,
        logits.softmax(1),
        torch.tensor(labels),
        None if influence is None else torch.tensor(influence, dtype=DOUBLE),
    )
    kept.add(visits, torch.tensor(place), range(first, first + max(place) + 1), epoch_steps=1)


def weights_of_steps(ratio, valid, place, steps, epoch_steps):
    """Of steps whose examples come from everywhere."""
    return step_weights(ratio, valid, place, steps, epoch_steps, torch.zeros(len(steps), dtype=torch.bool))


def test_a_step_counts_by_the_variance_of_its_ratios():
    ratio = torch.tensor([0.75, 0.25, 0.9, 0.9, 0.5], dtype=DOUBLE)
    valid = torch.tensor([True, True, True, True, False])
    weights = weights_of_steps(ratio, valid, torch.tensor([0, 0, 1, 1, 1]), range(3), 1)
    least = MIN_STEP_VARIANCE**2
    assert weights.tolist() == pytest.approx([0.25**4, 2**1.5 * least, 3**1.5 * least])


def test_of_two_equal_steps_the_later_one_counts_more_in_the_first_thirty_epochs():
    ratio, valid = torch.tensor([0.75, 0.25] * 2, dtype=DOUBLE), torch.ones(4, dtype=torch.bool)

    def weights(first: int) -> list[float]:
        return weights_of_steps(ratio, valid, torch.tensor([0, 0, 1, 1]), range(first, first + 2), 4).tolist()

    assert weights(0) == pytest.approx([0.25**4, 1.25**1.5 * 0.25**4])
    assert weights(115) == pytest.approx([29.75**1.5 * 0.25**4, 30**1.5 * 0.25**4])
    assert weights(4000) == pytest.approx([30**1.5 * 0.25**4] * 2)


def test_the_span_of_a_step_counts_valid_visits_alone():
    index, valid = torch.tensor([7, 2, 5, 0, 9, 4]), torch.tensor([True, True, True, False, True, True])
    found = spans(index, valid, torch.tensor([0, 0, 1, 1, 2, 2]), 4)
    assert found[:3].tolist() == [5, 0, 5] and found[3] < 0  # nothing in the last


def test_steps_of_neighbours_have_the_variance_of_all_steps():
    """Four examples side by side, all with wrong labels, and four from everywhere, half of them wrong."""
    right, wrong = [LOGIT, 0], [0, LOGIT]
    logits, place = [wrong] * 4 + [right, wrong, right, wrong], [0] * 4 + [1] * 4

    def weights(index: list[int]) -> list[float]:
        kept = PredictionStatistics(100, 2, CPU, DOUBLE, False)
        add(kept, logits, [0] * 8, place, index=index)
        return kept.weight[torch.tensor(index)[[0, 4]]].tolist()

    alone, both = (1 / 3) ** 2, ((2 / 3) ** 2 * 2 / 8 * 6 / 8)  # variances of q, which is 1 or 1/3
    assert weights([30, 31, 32, 33, 1, 90, 50, 60]) == pytest.approx([both**2, 2**1.5 * alone**2])
    least = MIN_STEP_VARIANCE
    assert weights([30, 31, 32, 80, 1, 90, 50, 60]) == pytest.approx([least**2, 2**1.5 * alone**2])


def test_the_ratio_is_the_labels_probability_over_the_largest_one():
    """Two sure and two unsure predictions of the same ratios, 1 and 1/3, count alike."""

    def weight(scale: float) -> float:
        kept = PredictionStatistics(2, 9, CPU, DOUBLE, False)
        logits = [[LOGIT, 0.0] + [scale] * 7] * 2
        add(kept, logits, [0, 1], [0, 0])
        return kept.weight[0].item()

    assert weight(-30.0) == pytest.approx(weight(0.0)) == pytest.approx((1 / 9) ** 2)


def test_weights_are_small_before_and_after_learning():
    """Untrained, half-way and learnt by heart: only the middle one counts."""
    untrained, midway, by_heart = torch.full((4,), 0.1), torch.tensor([0.9, 0.9, 0.1, 0.9]), torch.full((4,), 0.999)
    place = torch.arange(3).repeat_interleave(4)
    weights = weights_of_steps(
        torch.cat([untrained, midway, by_heart]), torch.ones(12, dtype=torch.bool), place, range(3), 1
    )
    assert weights.argmax() == 1 and weights[1] > 1e4 * weights[[0, 2]].max()


def test_means_are_weighted_by_step():
    kept = statistics()
    add(kept, [[LOGIT, 0], [LOGIT, 0], [0, 0]], [0, 1, 1], [0, 0, 0], influence=[[1.0, 0], [2, 0], [3, 0]])
    weights = weights_of_steps(torch.tensor([1, 1 / 3, 1], dtype=DOUBLE), torch.ones(3, dtype=torch.bool),
                           torch.zeros(3, dtype=torch.long), range(1), 1)  # fmt: skip
    add(kept, [[0, LOGIT], [2 * LOGIT, 0]], [0, 1], [0, 0], index=[0, 1], influence=[[5.0, 1], [6, 1]], first=7)
    second = weights_of_steps(torch.tensor([1 / 3, 1 / 9], dtype=DOUBLE), torch.ones(2, dtype=torch.bool),
                          torch.zeros(2, dtype=torch.long), range(7, 8), 1)  # fmt: skip
    found, first, last = kept.read(), weights.item(), second.item()
    both = first + last
    assert found.labels.tolist() == [0, 1, 1]
    right = (0.75 * first + 0.25 * last) / both
    assert found.predictions[0].tolist() == pytest.approx([right, 1 - right])
    assert found.margin[0].item() == pytest.approx((-LOGIT * first + LOGIT * last) / both)
    assert found.class_influence[0].tolist() == pytest.approx([(first + 5 * last) / both, last / both])
    assert found.predictions[2].tolist() == [0.5, 0.5] and found.margin[2] == 0


def test_spoiled_and_missing_visits_leave_nothing():
    kept = statistics(class_influence=False)
    add(kept, [[1.0, 0], [float("nan"), 0]], [0, 1], [0, 0], valid=[True, False])
    found = kept.read()
    assert found.labels.tolist() == [0, -1, -1] and found.class_influence is None
    assert found.predictions[1:].tolist() == [[0.5, 0.5]] * 2 and found.margin[1:].tolist() == [0, 0]
    assert torch.isfinite(found.predictions).all()


def test_the_label_of_an_example_comes_from_the_process_that_saw_it(monkeypatch):
    """Another process saw example 2 under label 1 with weight 1."""

    def summed(*tensors):
        tensors[WEIGHT][2] += 1

    kept = statistics(class_influence=False)
    add(kept, [[1.0, 0], [0, 1.0]], [1, 0], [0, 0])
    monkeypatch.setattr(collectives, "sum_", summed)
    monkeypatch.setattr(collectives, "max_", lambda labels: labels.copy_(labels.maximum(torch.tensor([0, 0, 1]))))
    assert kept.read().labels.tolist() == [1, 0, 1]


def test_a_loaded_state_reads_the_same_and_goes_on_alone():
    kept = statistics()
    add(kept, [[1.0, 0], [0, 2.0], [3.0, 0]], [0, 1, 1], [0, 0, 0], influence=[[1.0, 2], [3, 4], [5, 6]])
    state = kept.state_dict()
    copy = statistics()
    copy.load_state_dict(state)
    names = ("predictions", "labels", "margin", "class_influence")
    assert all(torch.equal(getattr(kept.read(), n), getattr(copy.read(), n)) for n in names)
    add(copy, [[9.0, 0], [0, 9.0], [1.0, 0]], [0, 1, 1], [0, 0, 0], influence=[[1.0, 2], [3, 4], [5, 6]])
    third = statistics()
    third.load_state_dict(state)
    assert torch.equal(third.read().margin, kept.read().margin) and not torch.equal(
        copy.read().margin, kept.read().margin
    )
