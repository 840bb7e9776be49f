"""The queue of watched passes: recency, the newest sample of a step, what is dropped, and a stored queue."""

import pytest
import torch

from sgoif import InfluenceConfig
from sgoif.errors import BatchError
from sgoif.gradients.hooks import CapturedPass, GradientHooks
from sgoif.gradients.queue import Pass, PassQueue, remaining_weight, repeat_each, step_sizes
from tests.helpers.networks import linear_net

CPU = torch.device("cpu")


def queue(n_examples: int = 100) -> PassQueue:
    return PassQueue(GradientHooks(linear_net(), InfluenceConfig(), None), n_examples)


def captured(n: int, seed: int = 0) -> CapturedPass:
    generator = torch.Generator().manual_seed(seed)
    features, logits = torch.randn(n, 6, generator=generator), torch.randn(n, 3, generator=generator)
    return CapturedPass(features=features, head_output=logits, logits=logits)


def filled() -> PassQueue:
    """Steps 7, 7 and 8 of 2, 3 and 5 examples."""
    made = queue()
    for number, (step, n) in enumerate(((7, 2), (7, 3), (8, 5))):
        made.push(step, captured(n, number), torch.arange(n) + 10 * number, torch.arange(n) % 3)
    return made


def test_recency_is_what_later_examples_leave():
    """A half-life of 0.1 epochs of 100 examples are 10 examples: five later ones leave 1 / sqrt(2)."""
    assert remaining_weight(0, 0.1, 100) == 1 and remaining_weight(10, 0.1, 100) == 0.5
    made = filled()
    batch, out_of_range = made.to_batch(made.passes, 4.0, 0.1)
    assert batch.recency.tolist() == pytest.approx([0.5**0.5] * 5 + [1.0] * 5) and out_of_range == 0
    assert batch.step_sizes == (5, 5) and step_sizes(made.passes) == {7: 5, 8: 5}
    assert batch.index.tolist() == [0, 1, 10, 11, 12, 20, 21, 22, 23, 24]
    three = made._recency([10, 10, 5], 0.1, CPU)
    assert three[[0, 9, 10, 19, 20]].tolist() == pytest.approx([0.5**1.5, 0.5**1.5, 0.5**0.5, 0.5**0.5, 1.0])
    assert repeat_each([0.5, 2.0], [2, 1], CPU, torch.float32).tolist() == [0.5, 0.5, 2.0]


def test_what_is_out_of_range_on_a_device_is_counted_and_kept_inside():
    made = queue(n_examples=4)
    made.passes = [Pass(0, captured(4), torch.tensor([-1, 0, 3, 4]), torch.tensor([0, 3, 2, 1]))]
    batch, out_of_range = made.to_batch(made.passes, 4.0, 1.0)
    assert out_of_range == 3 and batch.index.tolist() == [0, 0, 3, 3] and batch.labels.tolist() == [0, 2, 2, 1]


@pytest.mark.parametrize(
    ("limit", "expected"), [(None, [0, 1, 10, 11, 12]), (5, [0, 1, 10, 11, 12]), (3, [0, 1, 10]), (1, [0])]
)
def test_a_sample_of_a_step_is_its_first_examples(limit, expected):
    made = filled()
    assert made.step_gradients(made.passes[:2], 4.0, limit).index.tolist() == expected


def test_the_newest_step_is_found_from_the_end():
    made = filled()
    assert [len(p) for p in made.newest(8)] == [5] and made.newest(9) == [] and queue().newest(0) == []
    made.pop_all()
    assert made.queued_numbers == 0 and made.newest(8) == []


def test_passes_wait_until_they_are_scored():
    made = filled()
    assert made.queued_numbers == 60 and [len(p) for p in made.unscored()] == [2, 3, 5] and len(made.tensors()) == 12
    made.mark_scored(made.unscored())
    assert made.unscored() == [] and made.queued_numbers == 60
    made.push(9, captured(4), torch.arange(4), torch.arange(4) % 3)
    made.passes[-1].captured.inputs = {"head": torch.ones(1)}
    assert [p.step for p in made.unscored()] == [9]
    made.drop_scored()
    assert made.queued_numbers == 24 and made.n_scored == 0 and made.passes[0].captured.inputs == {}
    assert [p.step for p in made.pop_all()] == [9] and made.passes == []


def test_a_copied_pass_is_not_overwritten():
    made, seen = queue(), captured(2)
    for copy in (True, False):
        made.push(0, seen, torch.arange(2), torch.arange(2), copy=copy)
    seen.features.zero_()
    assert (made.passes[0].features != 0).all() and (made.passes[1].features == 0).all()


def test_a_stored_queue_is_the_same_queue():
    made, copy = filled(), queue()
    made.n_scored = 1
    copy.load_state_dict(made.state_dict(), CPU)
    assert copy.n_scored == 1 and [p.step for p in copy.passes] == [7, 7, 8]
    for ours, theirs in zip(made.tensors(), copy.tensors(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("index", "labels", "message"),
    [
        ([0, 4], [0, 1], r"index 4 lies outside 0\.\.3"),
        ([-1, 0], [0, 1], r"index -1 lies outside 0\.\.3"),
        ([0, 3], [0, 3], r"labels 3 lies outside 0\.\.2"),
        ([0.0, 1.0], [0, 1], "index must be integers"),
        ([True, False], [0, 1], "index must be integers"),
        ([[0, 1]], [0, 1], r"index must be integers of shape \[n\], got torch.int64 of shape \(1, 2\)"),
        ([0], [0, 1], "1 indices but 2 labels"),
    ],
)
def test_what_is_watched_is_checked(index, labels, message):
    with pytest.raises(BatchError, match=message):
        PassQueue.validate(torch.tensor(index), torch.tensor(labels), 4, 3)


def test_the_ends_of_the_ranges_are_inside():
    index, labels = PassQueue.validate(torch.tensor([0, 3]), torch.tensor([0, 2]), 4, 3)
    assert index.tolist() == [0, 3] and labels.tolist() == [0, 2]
