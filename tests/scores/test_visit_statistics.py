"""Sums over visits, by hand: segments, the score window, and a resumed state."""

import torch

from sgoif.scores.visit_statistics import VisitStatistics

CPU, DOUBLE = torch.device("cpu"), torch.float64


def statistics(total_steps: int | None = 4, window: float = 0.5) -> VisitStatistics:
    return VisitStatistics(3, window, total_steps, CPU, DOUBLE)


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
    assert found.visited.tolist() == [True, True, True]
    assert found.score_range.item() == 7  # the 9 lies before the window
    assert found.epoch_scores.tolist() == [[16 / 4, -9, -3]]


def test_a_training_that_ends_before_its_length_is_read_as_one_of_unknown_length():
    """Planned were ten steps, it ended after six: the last visit of example 1 lies before the planned window."""
    kept, unknown = statistics(total_steps=10), statistics(total_steps=None)
    for step, scores in enumerate(({0: 1.0}, {1: 2.0}, {0: 4.0}, {1: 8.0}, {0: 16.0}, {0: 32.0})):
        for one in (kept, unknown):
            visit(one, scores, upto=step + 1)
            one.close(step + 1)
    assert kept.read().columns["score"].tolist() == unknown.read().columns["score"].tolist() == [48, 8, 0]
    visit(kept, {2: 64.0}, upto=10)
    assert kept.read().columns["score"].tolist() == [32, 0, 64], "the planned window, once the length is reached"


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
    assert kept.read().visited.tolist() == [True, False, False] and not statistics().read().visited.any()


def test_a_run_that_ends_before_its_window_keeps_what_it_has():
    kept = statistics(total_steps=100)
    visit(kept, {1: 2.0}, upto=1)
    assert kept.read().columns["score"].tolist() == [0, 2, 0] and kept.read().score_range == 2


def test_a_loaded_state_reads_the_same_and_goes_on_alone():
    kept = statistics()
    for step in range(1, 4):
        visit(kept, {0: float(step), 2: -1.0}, upto=step)
    state = kept.state_dict()
    copy = statistics(total_steps=99)
    copy.load_state_dict(state)
    assert copy.total_steps == 4

    def same(a: VisitStatistics, b: VisitStatistics) -> bool:
        mine, other = a.read(), b.read()
        equal = [torch.equal(mine.columns[c], other.columns[c]) for c in mine.columns]
        equal += [torch.equal(mine.epoch_scores, other.epoch_scores), mine.score_range == other.score_range]
        return all(map(bool, equal))

    assert same(kept, copy)
    visit(copy, {0: 50.0}, upto=4)
    third = statistics()
    third.load_state_dict(state)  # what is stored is not changed by who reads it
    assert same(kept, third) and not same(kept, copy)
