"""Sums over visits, by hand: segments, the score window, predictions by weight, and a resumed state."""

import pytest
import torch

from sgoif.scores.visit_statistics import VisitStatistics

CPU, DOUBLE = torch.device("cpu"), torch.float64


def statistics(total_steps: int | None = 4, window: float = 0.5, n_classes: int = 0) -> VisitStatistics:
    return VisitStatistics(3, window, total_steps, CPU, DOUBLE, n_classes)


def visit(kept: VisitStatistics, scores: dict[int, float], upto: int, valid: list[bool] | None = None) -> None:
    """One visit of the examples named; confidence 0.5, residual 0.25, age 3."""
    index = torch.tensor(list(scores))
    kept.add(
        index,
        torch.tensor(valid or [True] * len(scores)),
        torch.tensor(list(scores.values()), dtype=DOUBLE),
        torch.tensor([0.5, 0.25], dtype=DOUBLE),
        torch.full((len(scores),), 3.0, dtype=DOUBLE),
        upto,
    )


def test_the_window_holds_the_second_half_and_its_own_range():
    kept = statistics()
    visit(kept, {0: 9.0, 1: -9.0}, upto=1)
    visit(kept, {0: 1.0}, upto=2)
    visit(kept, {0: 2.0, 2: -3.0}, upto=3)
    visit(kept, {0: 4.0, 1: 7.0}, upto=4, valid=[True, False])
    found = kept.read()
    assert found.columns["score"].tolist() == [6, 0, -3]
    assert found.columns["square"].tolist() == [20, 0, 9]
    assert found.columns["visits"].tolist() == [2, 0, 1]
    assert found.columns["confidence"].tolist() == [1.0, 0, 0.5]
    assert found.columns["residual"].tolist() == [0.5, 0, 0.25] and found.columns["age"].tolist() == [6, 0, 3]
    assert found.score_range.item() == 7  # the 9 lies before the window
    assert found.epoch_scores.tolist() == [[16 / 4, -9, -3]]


def test_segments_end_with_the_epoch_and_where_the_window_begins():
    kept = statistics(total_steps=6)
    for step in range(1, 7):
        visit(kept, {0: float(step)}, upto=step)
        if step in (2, 4):
            kept.close(step // 2)
    assert [(s.epoch, s.first, s.last) for s in kept.closed] == [(0, 0, 2), (1, 2, 3), (1, 3, 4)]
    assert kept.open.first == 4 and kept.read().columns["score"][0] == 4 + 5 + 6
    assert kept.read().epoch_scores[:, 0].tolist() == [1.5, 3.5, 5.5]


def test_an_unknown_length_takes_the_segments_whose_middle_is_late():
    kept = statistics(total_steps=None)
    for epoch, score in enumerate((1.0, 10.0, 100.0)):
        visit(kept, {0: score}, upto=epoch + 1)
        kept.close(epoch + 1)
    assert kept.window_start is None
    assert kept.read().columns["score"][0] == 110  # middles 0.5, 1.5 and 2.5 of 3 steps
    assert statistics(total_steps=None).read().columns["visits"].sum() == 0
    assert statistics().read().epoch_scores.shape == (0, 3)


def test_a_run_that_ends_before_its_window_keeps_what_it_has():
    kept = statistics(total_steps=100)
    visit(kept, {1: 2.0}, upto=1)
    assert kept.read().columns["score"].tolist() == [0, 2, 0] and kept.read().score_range == 2


def predictions(kept: VisitStatistics, logits, labels, place, upto, valid=None) -> None:
    logits = torch.tensor(logits, dtype=DOUBLE)
    n, steps = len(labels), max(place) + 1
    valid = torch.tensor(valid or [True] * n)
    kept.add_predictions(torch.arange(n), valid, logits, torch.tensor(labels), torch.tensor(place), steps, upto)


def test_a_step_counts_by_what_it_does_not_yet_agree_with():
    """Probabilities 3/4 and 1/4; step 0 has agreements 3/4 and 1/4 (weight 1/2), step 1 has 3/4 (weight 1/4)."""
    kept = statistics(total_steps=None, n_classes=2)
    logit = torch.tensor(3.0).log().item()
    predictions(kept, [[logit, 0], [logit, 0], [0, logit]], [0, 1, 1], [0, 0, 1], upto=2)
    found = kept.read_predictions()
    assert found.labels.tolist() == [0, 1, 1]
    torch.testing.assert_close(
        found.predictions, torch.tensor([[3 / 8, 1 / 8], [3 / 8, 1 / 8], [1 / 16, 3 / 16]], dtype=DOUBLE)
    )
    torch.testing.assert_close(found.margin, torch.tensor([-logit, logit, -logit], dtype=DOUBLE))
    predictions(kept, [[0, logit]] * 3, [0, 1, 1], [0, 0, 0], upto=3)  # agreements 1/4, 3/4, 3/4: weight 5/12
    expected = (-logit / 2 + logit * 5 / 12) / (1 / 2 + 5 / 12)
    assert kept.read_predictions().margin[0].item() == pytest.approx(expected)


def test_a_step_never_counts_less_than_a_fifth_and_spoiled_visits_not_at_all():
    kept = statistics(total_steps=None, n_classes=2)
    predictions(
        kept, [[50.0, 0], [float("nan"), 0], [50.0, 0]], [0, 0, 0], [0, 0, 0], upto=1, valid=[True, False, True]
    )
    found = kept.read_predictions()
    torch.testing.assert_close(found.predictions, torch.tensor([[0.2, 0], [0, 0], [0.2, 0]], dtype=DOUBLE))
    assert found.margin.tolist() == pytest.approx([-50, 0, -50])


def test_predictions_are_of_the_window_and_margins_of_all_visits():
    kept = statistics(total_steps=4, n_classes=2)
    predictions(kept, [[1.0, 0.0]] * 3, [0, 1, 0], [0, 0, 0], upto=2)
    early = kept.read_predictions()
    assert (early.predictions == 0).all() and early.labels.tolist() == [-1] * 3 and (early.margin != 0).all()
    predictions(kept, [[1.0, 0.0]] * 3, [0, 1, 0], [0, 0, 0], upto=3)
    assert (kept.read_predictions().predictions > 0).all()
    assert statistics().read_predictions() is None
    nothing = statistics()
    predictions(nothing, [[1.0, 0.0]] * 3, [0, 1, 0], [0, 0, 0], upto=3)  # where none are kept, none are added
    assert len(nothing.margins) == 0


def test_a_loaded_state_reads_the_same_and_goes_on_alone():
    kept = statistics(n_classes=2)
    for step in range(1, 4):
        visit(kept, {0: float(step), 2: -1.0}, upto=step)
        predictions(kept, [[float(step), 0.0]] * 3, [0, 1, 1], [0, 0, 0], upto=step)
    state = kept.state_dict()
    copy = statistics(total_steps=99, n_classes=2)
    copy.load_state_dict(state)
    assert copy.total_steps == 4

    def same(a: VisitStatistics, b: VisitStatistics) -> bool:
        mine, other = a.read(), b.read()
        equal = [torch.equal(mine.columns[c], other.columns[c]) for c in mine.columns]
        equal += [torch.equal(mine.epoch_scores, other.epoch_scores), mine.score_range == other.score_range]
        ours, theirs = a.read_predictions(), b.read_predictions()
        equal += [torch.equal(getattr(ours, n), getattr(theirs, n)) for n in ("predictions", "labels", "margin")]
        return all(map(bool, equal))

    assert same(kept, copy)
    visit(copy, {0: 50.0}, upto=4)
    predictions(copy, [[5.0, 0.0]] * 3, [0, 1, 0], [0, 0, 0], upto=4)
    third = statistics(n_classes=2)
    third.load_state_dict(state)  # what is stored is not changed by who reads it
    assert same(kept, third) and not same(kept, copy)
