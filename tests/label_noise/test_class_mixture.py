"""The mixture that knows the labels: planted noise of several kinds, rare classes, formulas by hand."""

import math

import pytest
import torch
from sklearn.metrics import average_precision_score

from sgoif.errors import InfluenceError
from sgoif.label_noise import class_mixture
from sgoif.label_noise.class_mixture import fit_class_mixture, noise_entropy

C = 5


def planted(transition: torch.Tensor, sizes: list[int], spread: float = 0.35, seed: int = 0):
    """Records around the corners of a simplex, and labels drawn from rows of the transition matrix."""
    generator = torch.Generator().manual_seed(seed)
    true = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    labels = torch.multinomial(transition[true], 1, generator=generator)[:, 0]
    records = torch.eye(len(sizes))[true] + spread * torch.randn(len(true), len(sizes), generator=generator)
    return records, labels, true


def mixing(rate: float) -> torch.Tensor:
    return (1 - rate) * torch.eye(C) + rate / (C - 1) * (1 - torch.eye(C))


def pairs(rate: float) -> torch.Tensor:
    return (1 - rate) * torch.eye(C) + rate * torch.eye(C).roll(1, 1)


@pytest.mark.parametrize("transition", [mixing(0.3), pairs(0.4)], ids=["symmetric", "pairs"])
def test_planted_noise_is_found_and_counted(transition):
    records, labels, true = planted(transition, [400] * C)
    found = fit_class_mixture(records, labels)
    wrong = labels != true
    right_calls = ((found.log_odds() > 0) == wrong).double().mean()
    assert right_calls > 0.95
    assert abs(found.log_odds().sigmoid().mean() - wrong.double().mean()) < 0.02
    torch.testing.assert_close(found.transition, transition.double(), atol=0.06, rtol=0)


def test_noise_entropy_tells_one_wrong_label_from_many():
    assert fit_class_mixture(*planted(mixing(0.3), [400] * C)[:2]).noise_entropy > 0.9
    assert fit_class_mixture(*planted(pairs(0.3), [400] * C)[:2]).noise_entropy < 0.2
    by_hand = torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.2, 0.2, 0.6]], dtype=torch.float64)
    sizes = torch.tensor([10.0, 5.0, 20.0], dtype=torch.float64)
    assert noise_entropy(by_hand, sizes) == pytest.approx(20 * 0.4 * 1 / (10 * 0.5 + 20 * 0.4))


@pytest.mark.parametrize(
    ("zero_to_one", "one_to_zero", "entropy"), [(0, 0, 0.5), (0.2, 0.2, 0.5), (0.3, 0.1, 0.25), (0.4, 0, 0)]
)
def test_with_two_classes_the_noise_entropy_is_the_share_of_the_rarer_way(zero_to_one, one_to_zero, entropy):
    transition = torch.tensor([[1 - zero_to_one, zero_to_one], [one_to_zero, 1 - one_to_zero]], dtype=torch.float64)
    assert noise_entropy(transition, torch.tensor([90.0, 10.0])) == pytest.approx(entropy)
    assert noise_entropy(transition.flip(0, 1), torch.tensor([90.0, 10.0])) == pytest.approx(entropy)


def test_clean_labels_are_left_alone():
    records, labels, _ = planted(torch.eye(C), [300] * C, spread=0.2)
    assert fit_class_mixture(records, labels).log_odds().sigmoid().mean() < 0.01


def test_a_rare_class_does_not_collect_the_examples_of_frequent_ones():
    records, labels, true = planted(mixing(0.1), [1000, 500, 250, 60, 20])
    found = fit_class_mixture(records, labels)
    counts = torch.bincount(labels, minlength=C)
    assert (found.class_sizes <= 1.5 * counts + 5).all()
    frequent = (true == 0) & (labels == 0)
    assert (found.log_odds()[frequent] > 0).double().mean() < 0.02


def long_tail():
    """Three frequent classes, a third of whose examples are hard. Most rare labels are wrong ones of these."""
    generator = torch.Generator().manual_seed(0)
    true = torch.repeat_interleave(torch.arange(6), torch.tensor([600, 600, 600, 12, 12, 12]))
    hard = (true < 3) & (torch.rand(len(true), generator=generator) < 0.3)
    wrong = hard & (torch.rand(len(true), generator=generator) < 0.35)
    labels = torch.where(wrong, torch.randint(3, 6, true.shape, generator=generator), true)
    records = torch.eye(6)[true]
    blurred = 0.45 * records + 0.25 * torch.rand(records.shape, generator=generator)
    records = torch.where(hard.unsqueeze(1), blurred, records)
    return records + 0.12 * torch.randn(records.shape, generator=generator), labels, wrong


def test_in_a_long_tail_frequent_classes_keep_their_hard_examples():
    records, labels, wrong = long_tail()
    alike, tail = (fit_class_mixture(records, labels, tail=t) for t in (0.0, 1.0))
    assert average_precision_score(wrong, alike.log_odds()) < 0.6, "or the tail is too easy to test anything"
    assert average_precision_score(wrong, tail.log_odds()) > 0.98
    assert (tail.class_sizes[3:] - 12).abs().max() < 3 < (alike.class_sizes[3:] - 12).abs().min()


def test_frequent_classes_count_no_more_where_all_labels_are_equally_frequent():
    records, labels, _ = planted(torch.eye(C), [50] * C)
    alike, tail = (fit_class_mixture(records, labels, tail=t) for t in (0.0, 1.0))
    torch.testing.assert_close(tail.log_odds(), alike.log_odds())


def test_every_class_has_its_own_variances():
    """Frequent classes scatter little along the coordinate of a rare one, whose own examples scatter much."""
    generator = torch.Generator().manual_seed(0)
    sizes, true = [900, 900, 40], torch.repeat_interleave(torch.arange(3), torch.tensor([900, 900, 40]))
    spread = torch.tensor([[0.3, 0.3, 0.02], [0.3, 0.3, 0.02], [0.3, 0.3, 0.3]])
    records = torch.eye(3)[true] + spread[true] * torch.randn(len(true), 3, generator=generator)
    labels = true.clone()
    wrong = torch.randperm(900, generator=generator)[:30]  # frequent class, labelled as the rare one
    labels[wrong] = 2
    records[wrong, 2] += 0.15  # and learnt a little: much for a frequent class, little for the rare one
    found = fit_class_mixture(records, labels)
    assert (found.log_odds()[wrong] > 0).double().mean() > 0.9
    assert (found.log_odds()[labels == true] > 0).double().mean() < 0.02
    assert sum(sizes) == len(labels)


def test_with_many_classes_none_claims_the_atypical_examples(monkeypatch):
    """Sixty classes, some of which scatter more along every coordinate, and one example in seven twice as far out."""
    generator = torch.Generator().manual_seed(0)
    classes = 60
    true = torch.arange(classes).repeat_interleave(100)
    labels = torch.where(torch.rand(len(true), generator=generator) < 0.3, (true + 1) % classes, true)
    atypical = torch.rand(len(true), 1, generator=generator) < 0.15
    spread = torch.linspace(0.1, 0.2, classes)[true].unsqueeze(1) * (1 + atypical)
    records = torch.eye(classes)[true] + spread * torch.randn(len(true), classes, generator=generator)
    wrong = labels != true
    assert average_precision_score(wrong, fit_class_mixture(records, labels).log_odds()) > 0.99
    monkeypatch.setattr(class_mixture, "SHARED_PER_COORDINATE", 0.0)
    assert average_precision_score(wrong, fit_class_mixture(records, labels).log_odds()) < 0.9


def test_up_to_twenty_classes_share_their_variances_alike(monkeypatch):
    records, labels, _ = planted(mixing(0.3), [100] * C)
    before = fit_class_mixture(records, labels).log_odds()
    monkeypatch.setattr(class_mixture, "SHARED_PER_COORDINATE", 0.0)
    assert torch.equal(before, fit_class_mixture(records, labels).log_odds())


def test_log_odds_do_not_depend_on_order_chunks_or_units(monkeypatch):
    records, labels, _ = planted(mixing(0.2), [100] * C)
    whole = fit_class_mixture(records, labels).log_odds()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(fit_class_mixture(records[order], labels[order]).log_odds(), whole[order])
    torch.testing.assert_close(fit_class_mixture(3 * records + 7, labels).log_odds(), whole, atol=1e-5, rtol=1e-5)
    monkeypatch.setattr("sgoif.label_noise.class_mixture.CHUNK_ROWS", 7)
    torch.testing.assert_close(fit_class_mixture(records, labels).log_odds(), whole)


def test_log_odds_under_names_are_the_mean_over_the_classes_that_a_label_may_name(monkeypatch):
    records, labels, _ = planted(mixing(0.3), [60] * C)
    found = fit_class_mixture(records, labels)
    torch.testing.assert_close(found.log_odds(torch.eye(C).double()), found.log_odds())
    others = torch.stack([found.log_odds(torch.eye(C).double().roll(k, 0)) for k in range(C)])
    uniform = found.log_odds(torch.full((C, C), 1 / C).double())
    torch.testing.assert_close(uniform, others.mean(0))
    monkeypatch.setattr("sgoif.label_noise.class_mixture.CHUNK_ROWS", 7)
    torch.testing.assert_close(found.log_odds(torch.full((C, C), 1 / C).double()), uniform)


def test_log_odds_of_certain_classes_keep_their_digits():
    far = class_mixture._class_log_odds(torch.tensor([[0.0, -80.0, -90.0]], dtype=torch.float64))
    torch.testing.assert_close(far, torch.tensor([[-80.0 + math.log1p(math.exp(-10)), 80.0, 90.0]]).double())


def test_records_that_say_nothing_say_nothing():
    labels = torch.arange(C).repeat(20)
    found = fit_class_mixture(torch.zeros(len(labels), C), labels)
    assert torch.isfinite(found.log_odds()).all() and (found.log_odds() < 0).all()


def test_labels_without_examples_and_a_single_example():
    records, labels, _ = planted(mixing(0.2), [50] * C)
    kept = labels != 3
    assert torch.isfinite(fit_class_mixture(records[kept], labels[kept]).log_odds()).all()
    assert torch.isfinite(fit_class_mixture(records[:1], labels[:1]).log_odds()).all()
    with pytest.raises(InfluenceError, match="class mixture"):
        fit_class_mixture(records, labels[:-1])
    with pytest.raises(InfluenceError, match="class mixture"):
        fit_class_mixture(records[:0], labels[:0])
